"""Rules in the part of Drools' rule language that business users write: `.drl` texts in, the same rules as of YAML out.

grammar      what is read, as a grammar; what is not in it is refused at its place
expressions  constraints and values, as CEL
reader       one file into rules, with every problem of it
"""

from agent_infra.rewards.rules.drl.reader import read_drl

__all__ = ["read_drl"]
