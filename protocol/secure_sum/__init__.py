"""A sum of masked vectors that survives dropouts, in parts: attendance, shares, the running total, agreed survivors.

`masked`, `ampc` and `bilateral` hand these parts to their machines; schemes from outside have the masking of it
by way of `protocol.schemes`.
"""
