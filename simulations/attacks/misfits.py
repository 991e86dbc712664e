"""The one error of attacks: what they were given does not fit them."""

from __future__ import annotations

from veilsum.protocol.errors import ParameterError


class AttackDoesNotFit(ParameterError):
    """The view holds nothing that this attack can work on, so that the request cannot work; the text says what is
    missing."""

    def __init__(self, text: str) -> None:
        super().__init__([text])
