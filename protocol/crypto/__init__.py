"""Keys, signatures, boxes, seals and shares of secrets, each behind a function that raises when something is wrong.

Knows nothing of rounds or parties; every other room of the protocol may use any of it.
"""
