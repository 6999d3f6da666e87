"""Every question that can be asked of a graph, each answered as of one version and one moment.

view        one line of a session up to one step: what all the others read through
query       nodes by index, with limit and cursor; explain
causality   what led to what, and the shortest way; diff: what two versions differ by
everywhere  questions over all sessions
activation  what conditions see as `state`
watch       each move of a head, once and in order
verify      whether everything is as it was written
"""
