"""The weaving policy: rule files in, a `RuleSet` out, identified by the hash of what it means.

model      RuleSet, Rule, and what they are made of
compiling  a file or a folder into one set, or every problem of all files
reading    one rule of a YAML file
drl        rules in Drools' language
checking   what shows only when all rules are known
compiled   their expressions, compiled once a process
trials     tests that stand beside the rules
watching   files that change
differences   two sets compared
"""
