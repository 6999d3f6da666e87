"""What is kept, and how the rest goes.

keeping  the policy; pins, what each session asks for of its line, what was taken: small tables, always in memory
spans    sets of step numbers
needs    which nodes some readable version still shows
collect  one bounded pass over one session: what goes, and when
removal  how it goes: one node, version or blob with all that points at it
erasure  one node's data gone by name, for good
janitor  passes in the background
"""
