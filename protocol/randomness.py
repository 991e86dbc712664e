"""Randomness is an argument.

Nothing in the protocol draws from a generator of its own: each function that needs fresh bytes is given a
source. Role processes pass the operating system's, simulations a seeded one, test vectors a fixed string.
"""

from __future__ import annotations

from collections.abc import Callable

from veilsum.protocol.errors import LocalProtocolError

RandomBytes = Callable[[int], bytes]


def require_random(random: RandomBytes, n: int) -> bytes:
    """Draw exactly `n` bytes; a source that returns anything else must never be used for a key."""
    drawn = random(n)
    if not isinstance(drawn, bytes) or len(drawn) != n:
        got = f"{len(drawn)} bytes" if isinstance(drawn, bytes) else type(drawn).__name__
        raise LocalProtocolError(f"the randomness source returned {got} where {n} bytes were asked for")
    return drawn
