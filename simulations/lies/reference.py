"""Which state of the chain every position should have: from the inputs of its members, whatever anyone said.

A commit is falsified if its state is not this one. A liar's input is what it trained, as an honest party's is.

Implements specs/lies.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.state import ChainState, TakeStep
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.rules import MachineRules
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.ring import add_into
from veilsum.roles.learning.contract import LocalUpdate


class StagedFederation(Protocol):
    """What a federation in memory has that lies are told in: a simulated one, or that of a table."""

    @property
    def scheme(self) -> Scheme: ...
    @property
    def rules(self) -> MachineRules: ...
    @property
    def roster(self) -> Roster: ...
    @property
    def identities(self) -> Mapping[PartyId, Identity]: ...
    @property
    def initial_model(self) -> Model: ...
    def chain_step(self) -> TakeStep: ...


@dataclass(frozen=True)
class Claim:
    """A state that an honest party took for that of a position."""

    party: PartyId
    position: int
    hash: bytes


class HonestChain:
    """The states that follow from what parties trained, as soon as somebody says who is in the sum of a round."""

    def __init__(self, federation: StagedFederation) -> None:
        anchor = federation.roster.anchor
        assert anchor is not None
        self._chain, self._take_step = anchor.chain, federation.chain_step()
        self._parameters = federation.rules.parameters
        self._last = ChainState.of(self._chain, 0, b"", federation.initial_model)
        self._hashes = {0: self._last.hash}
        self._updates: dict[tuple[int, PartyId], LocalUpdate] = {}
        self._claims: list[Claim] = []

    def train(self, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        weight = self._parameters.weights.of(update.samples)
        self._updates[round_number, party] = replace(update, samples=weight)

    def claim(self, party: PartyId, position: int, members: tuple[PartyId, ...], state_hash: bytes) -> None:
        """An honest party holds this state; it is judged at the end."""
        self._claims.append(Claim(party, position, state_hash))
        if position == self._last.position + 1:
            self._follow(members)

    def _follow(self, members: tuple[PartyId, ...]) -> None:
        before, encoding = self._last, self._parameters.encoding
        total = encoding.ring.zeros(self._parameters.vector_length)
        for name in members:
            update = self._updates[before.position, name]
            add_into(total, encoding.encode(update.payload, update.samples))
        mean, _ = encoding.decode_mean(total, len(members))
        model, memory = self._take_step(before.model, before.memory, mean, before.position)
        self._last = ChainState.of(self._chain, before.position + 1, before.hash, model, memory)
        self._hashes[self._last.position] = self._last.hash
        self._updates = {key: one for key, one in self._updates.items() if key[0] > before.position}

    @property
    def falsified(self) -> tuple[Claim, ...]:
        """Claims of a state that is not the one which follows from the inputs, or of a position that nobody reached."""
        return tuple(one for one in self._claims if self._hashes.get(one.position) != one.hash)
