"""A lying server without accomplices that wants many sums of one model, and what it computes from those that it gets.

Its code is the honest one, over a disk that it made up and without the checks that it makes for its own sake: it says
that a position is new which is not, and hears nobody whom it wants to leave out. Honest parties rely on none of that.

    v, a, b = VICTIM, *OTHERS
    all - {v, a},  all - {v, b},  all - {a, b}  and  all  together give v's words away
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from tests.support.tables.lying_table import participant, party_names
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState, hash_model
from veilsum.protocol.chain.votes import Ballot, Certificate
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.on_chain import ServerOnChain
from veilsum.protocol.machines.session import Farewell, RoundClosed
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets, add_biases_back
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.verification import untagged
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing.federation import MAX_WEIGHT
from veilsum.simulations.testing.table import FINISHING, Table, honest
from veilsum.simulations.testing.trace import InFlight

PARTIES = 8
VICTIM, *OTHERS = party_names(PARTIES)[-3:]
TURNS = ((), (VICTIM, OTHERS[0]), (VICTIM, OTHERS[1]), tuple(OTHERS))
"""Whom the server leaves out of its sums, one after the other."""
INSIDER = PartyId("p0")
"""A peer that is in all sums: under ampc the tests look at them with its secrets, which the server does not have."""


@dataclass(frozen=True)
class FromModel:
    """Training as it is: the same update at the same model, whatever a server calls the round."""

    dimension: int

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        numbers = np.random.default_rng([zlib.crc32(model.tobytes()), *party.encode()])
        payload = numbers.uniform(-1, 1, self.dimension).astype(np.float32)
        return LocalResult(payload, int(numbers.integers(1, MAX_WEIGHT + 1)))


@dataclass(frozen=True)
class OpenedSum:
    """A sum that the server opened: over whom, and its words as signed integers."""

    cohort: frozenset[PartyId]
    words: tuple[int, ...]


class StillServer:
    """Tells the lie at a table, turn by turn. The sums that it opens it keeps for itself, so that no state follows."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.sums: dict[tuple[bytes, int, int], OpenedSum] = {}
        self._left_out: frozenset[PartyId] = frozenset()
        table.tamper = self._tamper

    def _tamper(self, flight: InFlight) -> Message | None:
        message = flight.message
        if flight.sender == SERVER and isinstance(message, SumOpened | Aggregate):
            stamp = message.stamp
            self.sums[stamp.session, stamp.round, stamp.attempt] = self._opened(message)
        if self._left_out & {flight.sender, flight.receiver}:
            return None
        return None if isinstance(message, SumOpened | Aggregate | RoundClosed | Farewell) else message

    def _opened(self, message: SumOpened | Aggregate) -> OpenedSum:
        words = np.array(message.words if isinstance(message, SumOpened) else message.vector)
        if isinstance(message, Aggregate):
            self._add_biases_back(words, message)
        signed = self.table.federation.parameters.encoding.ring.signed(untagged(words))
        return OpenedSum(frozenset(message.survivors), tuple(map(int, signed)))

    def _add_biases_back(self, words: RingVector, message: Aggregate) -> None:
        """What hides the sums of ampc from the server; those of mpc have no biases."""
        machine, parameters = participant(self.table, INSIDER), self.table.federation.parameters
        secrets = machine.secrets
        assert isinstance(secrets, SessionSecrets)
        assert machine.model is not None
        stamp = replace(message.stamp, model_hash=hash_model(machine.model))
        add_biases_back(parameters.encoding.ring, words, secrets, stamp, message.survivors, parameters.bias)

    def turn(self, number: int, left_out: Collection[PartyId] = (), *, all_restart: bool = False) -> None:
        """The server begins anew at a round of its choice, from the first model, without some parties."""
        table = self.table
        table.crash(SERVER)
        table.wire.clear()
        table.disks[SERVER] = made_up_disk(table, number)
        self._left_out = frozenset(left_out)
        for name in table.participants:
            if all_restart or table.machines[name].phase in FINISHING:
                table.crash(name)
                table.restart(name)
        table.restart(SERVER)
        before = len(self.sums)
        while len(self.sums) == before and table.server.phase not in FINISHING:
            if table.wire:
                table.deliver(table.wire[0])
            else:
                assert table.advance()

    def repent(self, disk: PersistentState) -> None:
        """From here on the server is honest, and everyone who has ended starts again."""
        table = self.table
        table.tamper = honest
        table.crash(SERVER)
        table.wire.clear()
        table.disks[SERVER] = disk
        for name in table.participants:
            if table.machines[name].phase in FINISHING:
                table.crash(name)
                table.restart(name)
        table.restart(SERVER)
        table.run()


def made_up_disk(table: Table, number: int) -> PersistentState:
    """The first model, as if it were the state of this round and nothing had happened there."""
    federation, anchor = table.federation, table.federation.roster.anchor
    disk = PersistentState(number, federation.initial_model)
    if number == 0:
        return disk
    assert anchor is not None
    first = ChainState.of(anchor.chain, 0, b"", federation.initial_model)
    ballot = Ballot(number, b"", first.hash, anchor.electorate, anchor.electorate)
    state = replace(first, position=number) if federation.scheme.server_holds_model else None
    disk.chain = ChainRecord(number, state, Certificate(ballot, {}), anchor=anchor.digest, chain=anchor.chain)
    return disk


def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks nobody to prove anything, and opens sessions that an honest one would not."""
    monkeypatch.setattr(ServerOnChain, "admit", lambda *_: None)
    monkeypatch.setattr(ServerOnChain, "catch_up", lambda *_: [])
    monkeypatch.setattr(ServerOnChain, "no_quorum", lambda *_: None)
    monkeypatch.setattr(ServerOnChain, "can_certify", lambda *_: True)


def solve_for(victim: PartyId, sums: Collection[OpenedSum]) -> tuple[Fraction, ...] | None:
    """The victim's words, if they are a combination of these sums; exactly, or not at all."""
    cohorts = list({one.cohort: one for one in sums}.values())
    everyone = sorted(frozenset[PartyId]().union(*(one.cohort for one in cohorts)))
    if victim not in everyone:
        return None
    rows = np.array([[name in one.cohort for one in cohorts] for name in everyone], dtype=np.float64)
    wanted = np.array([name == victim for name in everyone], dtype=np.float64)
    found = np.linalg.lstsq(rows, wanted)[0]
    if not np.allclose(rows @ found, wanted):
        return None
    factors = [Fraction(float(one)).limit_denominator(100) for one in found]
    words = zip(*(one.words for one in cohorts), strict=True)
    return tuple(sum((f * w for f, w in zip(factors, column, strict=True)), Fraction(0)) for column in words)


def words_of(table: Table, name: PartyId) -> tuple[Fraction, ...]:
    """The party's update of the first model as it encodes it: payload, sample count and the one that is counted."""
    parameters = table.federation.parameters
    result = parameters.weights.weigh(table.federation.learner.train(name, 0, table.federation.initial_model))
    words = parameters.encoding.encode(result.payload, result.samples)
    return tuple(Fraction(int(word)) for word in parameters.encoding.ring.signed(words))
