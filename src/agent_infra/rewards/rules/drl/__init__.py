"""Rules in the part of Drools' rule language that business users write: `.drl` texts in, the same rules as of YAML out.

grammar      what is read, as a grammar; what is not in it is refused at its place
advice       what to write instead of what is refused
expressions  constraints and values, as CEL
texts        texts in quotes, and numbers
rule         one rule, from its tree
reader       the files of a set into rules, with every problem of them
"""

from agent_infra.rewards.rules.drl.reader import Drl, read_drl, read_drl_files

__all__ = ["Drl", "read_drl", "read_drl_files"]
