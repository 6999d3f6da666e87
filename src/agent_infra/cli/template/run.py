"""One request, from the customer's words to a reward that can be explained."""

from agent_infra import Infra, Signal

SESSION = "parcel_demo_001"

with Infra.open() as infra:
    graph = infra.session(SESSION, agent="desk")
    graph.add_node(
        type="user_intent",
        data={"query": "Where is my parcel P-1001?", "parcel": "P-1001", "confidence": 0.95},
        ttl=3600,
    )
    result = infra.run("goal.yaml", session=SESSION, agent="desk")
    print("outputs ", result)

    answer = result.event_ids[-1]
    infra.weaver.ingest(Signal("customer_rating", 5, event_id=answer, evidence={"comment": "that was quick"}))
    reward = infra.weaver.weave(answer, wait=5)
    print("reward  ", reward.value, reward.status)
    print("because ", ", ".join(f"{part.source} {part.micro / 1e6:+.3f}" for part in reward.contributions))
    print("report  ", infra.save_report(reward))
