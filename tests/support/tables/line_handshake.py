"""One handshake of a line with given draws, and all that comes of it, as a case of the test vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from veilsum.protocol.crypto.lines import LineAcceptance, LineEnds, LineOpening
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import PartyId

NUMBER = 7


def line_case(draws: str, fixed: Callable[[str, int], bytes]) -> dict[str, Any]:
    """`fixed` makes bytes of a size from a description."""
    signing = {
        end: SigningKey.from_private(Secret(fixed(f"{end} signs", 32))) for end in ("opener", "accepter")
    }
    drawn = {
        f"{end}_{what}": fixed(f"{draws} {what} of {end}", size)
        for end in signing
        for what, size in (("private", 32), ("nonce", 16))
    }
    ends = LineEnds(b"federation", PartyId("alice"), PartyId("bob"))
    draw = iter(drawn.values())
    opening = LineOpening(ends, signing["opener"], lambda _: next(draw))
    acceptance = LineAcceptance(
        ends, opening.datagram, signing["opener"].public, signing["accepter"], lambda _: next(draw)
    )
    line, confirm = opening.accepted(acceptance.datagram, signing["accepter"].public)
    header, text = fixed("line header", 32), fixed("line content", 48)
    return {
        "federation": ends.federation.hex(),
        "opener": ends.opener,
        "accepter": ends.accepter,
        **{f"{end}_signs": key.private.reveal().hex() for end, key in signing.items()},
        **{name: value.hex() for name, value in drawn.items()},
        "open": opening.datagram.hex(),
        "accept": acceptance.datagram.hex(),
        "transcript": ends.transcript(opening.datagram[:48], acceptance.datagram[16:64]).hex(),
        "confirm": confirm.hex(),
        "line": line.id.hex(),
        "number": NUMBER,
        "header": header.hex(),
        "plaintext": text.hex(),
        "box": line.seal(NUMBER, text, header).hex(),
        "answer": acceptance.keys.seal(NUMBER, text, header).hex(),
    }
