"""Control: experiments, the life of agents, monitors, and the way back from a bad reward to its cause.

In come rewards, metrics and what operators want; out go changes of live settings, alarms and comparisons, each a node
with its reason. Nothing is exported yet.
"""
