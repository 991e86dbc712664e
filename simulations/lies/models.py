"""Servers that would choose the model: one that stands still, one for a single party, one made for a purpose.

Every party holds the state of the chain itself. It goes back to none, begins from no other than its own, and takes one
over only with the certificate of those who voted for it.

Implements specs/lies.md, section 3.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.session import RoundClosed, RoundOpened, SessionOpened
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.lies.lie import Liars, Lie
from veilsum.simulations.lies.sums import shifted


class StillModel(Lie):
    """Without the chain, sums at one model over {all but a and v}, {all but b and v}, {all but a and b} give v away."""

    name = "server:still-model"
    does = (
        "opens the first round again once it is committed, at the same model, and leaves a pair out in turn"
    )
    noticed_as = "REPLAY at all who are asked to go back; nothing is committed after the first round"
    rounds = 2

    def __init__(self, liars: Liars) -> None:
        super().__init__(liars)
        self._first: dict[PartyId, Stamp] = {}
        self._openings: list[bytes] = []

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        if not isinstance(message, SessionOpened | RoundOpened):
            return message
        stamp = message.stamp
        if stamp.round == 0:
            self._first[receiver] = stamp
            return message
        if receiver in self._left_out(stamp):
            return None
        first = self._first[receiver].model_hash
        again = Stamp(self._session_at_first(stamp), 0, stamp.attempt + 1, first)
        if isinstance(message, SessionOpened):
            return replace(message, stamp=again, certificate=None)
        return replace(message, stamp=again)

    def _session_at_first(self, stamp: Stamp) -> bytes:
        """The id that the session of these hellos has at position 0."""
        session = self.liars.server_machine().session
        assert session is not None
        assert session.id == stamp.session
        return session.terms.open(session.hellos, 0).id

    def _left_out(self, stamp: Stamp) -> frozenset[PartyId]:
        """Two of three parties, another pair in each session."""
        if stamp.session not in self._openings:
            self._openings.append(stamp.session)
        three = self.liars.rules.roster.participants[-3:]
        staying = three[len(self._openings) % len(three)]
        return frozenset(three) - {staying}


class OtherModel(Lie):
    name = "server:other-model"
    does = "names another state to one party as a round opens or, where it knows none, shows that party another sum"
    noticed_as = "WRONG_MODEL or SUM_FALSIFIED at that party; the others commit what is true, or nothing"

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        if receiver != self.liars.victim:
            return message
        match message:
            case RoundOpened() if message.stamp.model_hash:
                other = hashlib.sha256(message.stamp.model_hash).digest()
                return replace(message, stamp=replace(message.stamp, model_hash=other))
            case Aggregate():
                return replace(message, vector=shifted(self.liars.parameters.encoding, message.vector))
            case _:
                return message


class CraftedModel(Lie):
    """One that was never told of a sum is behind, and is given what it missed; here, something else."""

    name = "server:crafted-model"
    does = (
        "keeps the sum of the first round from one party, and gives it a model of its own making in the next"
    )
    noticed_as = "WRONG_MODEL at that party; the others go on"
    rounds = 2
    about_models = True

    def instead_of(self, sender: PartyId, receiver: PartyId, message: Message) -> Message | None:
        if receiver != self.liars.victim:
            return message
        match message:
            case SumOpened() | RoundClosed() if message.stamp.round == 0:
                return None
            case RoundOpened() if len(message.model):
                return replace(message, model=np.ones_like(message.model))
            case _:
                return message
