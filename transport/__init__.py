"""Opaque bytes between addresses: reliable framing, and the links that carry it.

Roles use the interfaces of `base` and the types of `errors`, and read in the headers of `framing.datagrams` for which
life to seal; only `roles/broker/` names a link. A transport of one's own needs a `base.Link` only. Nothing here knows
the protocol.
"""
