"""Messages to bytes and back, strictly: declared fields, bounded lengths, signed envelopes, no replays.

Scheme authors declare messages with `wire.messages`; drivers use `wire.codec` and `wire.envelope`.
"""
