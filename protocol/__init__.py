"""The pure core: values in, values out. No sockets, no event loop, no clock, no entropy of its own.

Rooms stand in a fixed order and know earlier ones only; scheme authors import `protocol.schemes` and nothing else.
"""
