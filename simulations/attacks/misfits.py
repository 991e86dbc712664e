"""The one error of attacks: what they were given does not fit them."""

from __future__ import annotations

from veilsum.protocol.errors import LocalProtocolError


class AttackDoesNotFit(LocalProtocolError):
    """The view holds nothing that this attack can work on; the text says what is missing."""
