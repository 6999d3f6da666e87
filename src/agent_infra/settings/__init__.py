"""Live settings: values that change while agents run.

In comes a change with its name, value, reason and author; out go a node of the system session `_control` and a new
typed value, which every layer reads. Nothing is exported yet: the settings in force are those that the home was opened
with.
"""
