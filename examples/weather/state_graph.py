"""What the agent knows before it acts: the user's wish, as a node of the session's graph."""

from agent_infra import Node, StateGraph

SESSION = "weather_demo_001"
QUERY = "北京明天天气"


def note_intent(graph: StateGraph, confidence: float) -> Node:
    """Add the user's intent; it is valid for an hour."""
    data = {"query": QUERY, "city": "Beijing", "confidence": confidence}
    return graph.add_node(type="user_intent", data=data, ttl=3600)
