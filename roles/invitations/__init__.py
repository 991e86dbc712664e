"""Invitation files: how a party comes to a federation by one file there, one file back and twelve words each way.

Above the room of federations, which it uses and which knows nothing of it.
"""
