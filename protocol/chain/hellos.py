"""What a party says as a session opens: a key for it, how far it is, and what it did at its position before.

All that it says is signed, and hashed into the session's id.

Implements specs/protocol.md, section 1, and specs/chain.md, section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.chain.position import PositionStatement
from veilsum.protocol.chain.statements import EnteredAttempt
from veilsum.protocol.crypto.domains import length_prefixed
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.limits import DEFAULT_LIMITS
from veilsum.protocol.wire.messages import Length, record

NONCE_BYTES = 32


@record
@dataclass(frozen=True, slots=True)
class HelloRecord:
    """`fresh`: has no vote at its position; `attempts`: what it did there before, where parties keep a chain."""

    nonce: Annotated[bytes, Length(NONCE_BYTES)]
    box_key: Annotated[bytes, Length(32)]
    rounds_done: int
    signature: Annotated[bytes, Length(64)]
    fresh: bool = False
    attempts: tuple[EnteredAttempt, ...] = ()

    def statement(
        self, sender: PartyId, position: int, recovery: Recovery = Recovery.SHARES
    ) -> PositionStatement:
        """What it says of a position: one that is behind was in no attempt there, if it has not lost its disk.

        One that is behind, and shows no attempt where it stands either, cannot be told from one that lost it. One that
        is beyond the position says nothing of what it did there.
        """
        here = self.attempts if self.rounds_done == position else ()
        blank = self.rounds_done > position or (self.rounds_done < position and not self.attempts)
        said = tuple(one.described(position, recovery) for one in here)
        return PositionStatement(sender, said, self.fresh or blank)

    def votes_at(self, position: int) -> bool:
        """Whether it has a vote there, once it has the state.

        One position further it has one if it gave its update here, and the certificate names it.
        """
        if self.rounds_done == position:
            return not self.fresh
        return self.rounds_done == position - 1 and any(one.uploaded for one in self.attempts)


def voters_among(hellos: Mapping[PartyId, HelloRecord], position: int) -> frozenset[PartyId]:
    return frozenset(name for name, hello in hellos.items() if hello.votes_at(position))


def statements_among(
    hellos: Mapping[PartyId, HelloRecord], position: int, recovery: Recovery
) -> dict[PartyId, PositionStatement]:
    """What these say they did at a position before."""
    return {name: hello.statement(name, position, recovery) for name, hello in hellos.items()}


def proven_release(
    hellos: Mapping[PartyId, HelloRecord], position: int, colluders: int
) -> EnteredAttempt | None:
    """An attempt whose list more parties state to have released shares for than may lie: one of them did.

    So its sum may be open, and the server that asked for these shares asks for no others, whatever it forgot.
    """
    stating: dict[tuple[object, ...], list[EnteredAttempt]] = {}
    for hello in hellos.values():
        for one in hello.attempts if hello.rounds_done == position else ():
            if one.released:
                same = stating.setdefault((one.session, one.attempt, one.released, one.members), [])
                same.append(one)
    return next((found[0] for found in stating.values() if len(found) > colluders), None)


def hello_parts(hello: HelloRecord) -> tuple[bytes, ...]:
    """All that a hello says, without its signature."""
    said = [
        (
            one.session,
            one.attempt.to_bytes(8, "big"),
            bytes([one.uploaded]),
            _listed(one.members),
            _listed(one.released),
        )
        for one in hello.attempts
    ]
    counters = hello.rounds_done.to_bytes(8, "big") + bytes([hello.fresh])
    return (hello.nonce, hello.box_key, counters, *(length_prefixed(*parts) for parts in said))


def require_small(hello: HelloRecord, participants: int) -> None:
    """Refuse a hello that would leave others no room in the message that shows all of them."""
    size = sum(len(part) for part in hello_parts(hello))
    most = DEFAULT_LIMITS.max_fields_bytes // (2 * participants)
    if size > most:
        raise Rejection(
            AbortReason.POSITION_LOST,
            f"a hello of {size} bytes, {most} is the most: the organiser goes on with a checkpoint",
        )


def _listed(names: tuple[PartyId, ...]) -> bytes:
    return "\n".join(names).encode()
