"""How a graph is written down: the keys of its rows, their values, and a step as one batch of them.

keys     what each row is found by, with the table of all kinds of rows
records  what each row holds
batch    a step on its way in: nodes, edges and deaths become the rows of one atomic write
"""
