"""Who exchanges secrets with whom: graphs of parties, and the rule that a federation agrees on for drawing one.

`Graph` and `GraphPolicy` may be used from outside.
"""
