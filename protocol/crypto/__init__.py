"""Keys, signatures, boxes, seals and shares of secrets, each behind a function that raises when something is wrong.

Knows no message and no machine: what a key is bound to comes as names and numbers. Every other room may use any of it.
"""
