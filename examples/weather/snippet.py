"""The shortest whole program: state in, action, reward out."""

from agent_infra import GDEPScheduler, RewardWeaver, StateGraph

graph = StateGraph(session_id="weather_demo_001")
user_intent = graph.add_node(
    type="user_intent", data={"query": "北京明天天气", "city": "Beijing", "confidence": 0.95}, ttl=3600
)
weather = graph.add_node(type="api_response", data={"city": "Beijing", "temp": 22, "condition": "sunny"}, ttl=1800)
graph.add_edge(user_intent.id, weather.id, type="triggers")
scheduler = GDEPScheduler()
weaver = RewardWeaver()
gdep = scheduler.compile_gdep("weather_action.yaml", state_graph=graph)
result = scheduler.execute_gdep(gdep)
reward = weaver.weave_reward(result)
print(result, reward.value, reward.cid, reward.report())
