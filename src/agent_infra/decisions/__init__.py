"""Decisions: how one action is chosen where a step leaves something open.

In come an action space, computed from the graph, and a policy: rules, chance, a model, a person. Out goes a decision
node with what was proposed, what was chosen, by whom and how likely it was. Nothing is exported yet: whoever calls an
action names it, and gives its open parameters.
"""
