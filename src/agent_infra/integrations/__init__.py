"""Ways in for what users already have: other agent frameworks, environments and protocols.

Their steps, calls and traces come in, and become nodes like any others; contracts and trajectories go out in the forms
that they expect. Each integration depends on its framework alone and is imported by name; nothing is exported here.

    bfcl    function documents of the Berkeley Function Calling Leaderboard, as tools
"""
