"""Who exchanges secrets with whom: graphs of parties, and the rule that a federation agrees on for drawing one.

A federation agrees on a `GraphPolicy` (`parse_graph` reads one); parties draw a `Graph` from it in each session or
attempt, or make one with `complete` and `explicit`.
"""
