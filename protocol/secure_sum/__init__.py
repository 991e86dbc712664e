"""A sum of masked vectors that survives dropouts: what `masked` and `ampc` share.

Schemes hand the parts of this room over to their machines; nothing else uses it.
"""
