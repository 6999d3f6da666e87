"""Learning: from what happened to a better policy.

In come trajectories, read from the graph together with the versions and the reward of each decision; out go data sets,
evaluations and policy versions, trained on the very contracts that execution enforces. Nothing is exported yet.
"""
