"""Opaque bytes between addresses: reliable framing, and the links that carry it.

Roles use the interfaces of `base`; a transport of one's own needs a `base.Link` only. Nothing here knows the
protocol.
"""
