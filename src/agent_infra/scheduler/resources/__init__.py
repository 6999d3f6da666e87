"""Resources: what there is to run on, and which subgoal gets which part of it.

In come the inventory of CPUs, memory and GPUs and the profile that each tool asks for; out goes a placement, or the
reason why something waits. Nothing is exported yet: a subgoal runs where its executor is.
"""
