"""The weaving policy: rule files in, a `RuleSet` out, identified by the hash of what it means.

model      RuleSet, Rule, and what they are made of
compiling  a file or a folder into one set, or every problem of all files
reading    one rule of a YAML file
"""
