"""Every phase of every machine meets every kind of message, from everyone; what it refuses changes nothing.

Real runs are driven step by step. Whenever a machine is seen in a phase for the first time, every registered
kind of message is thrown at it from the server, from a member of the session, from a party of the roster that
is not in the session, and from a stranger; with the stamp of the attempt, and from the server also with none.
The content is that of a real message of this kind where the run has one, else the smallest valid one. Each
throw must end in one of two ways: accepted, along a move of the table; or refused with a typed reason that
names the sender, the machine exactly as before. A participant may also keep a message for later, and nothing
else changes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from tests.examples import ballot
from tests.support.sample_messages import smallest_message
from tests.support.snapshots import picture
from veilsum.protocol.agreed.parameters import Parameters, Recovery, Schedule, ShareMode
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.votes import Certificate, SupportedBallot, Vote
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, RemoteProtocolError
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import AttemptMachine
from veilsum.protocol.machines.phases import PARTICIPANT_TABLE, SERVER_TABLE, ParticipantPhase, ServerPhase
from veilsum.protocol.machines.transitions import Phase
from veilsum.protocol.schemes.ampc.messages import Aggregate, ModelHeld
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp, registered_messages
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.testing import Table

ABSENT = PartyId("p4")
STRANGER = PartyId("stranger")
PARTIES = 5
NOT_EXPECTED = {
    AbortReason.UNEXPECTED_MESSAGE,
    AbortReason.UNKNOWN_PARTY,
    AbortReason.WRONG_SESSION,
    AbortReason.WRONG_ROUND,
}
NEVER_SEEN = {"closed", "idling"}
EARLY = frozenset({"_early"})

Reached = tuple[str, Phase, type[AttemptMachine] | None, Phase | None]


@dataclass(frozen=True)
class Scenario:
    """A run, and what is done to it besides delivering everything in order."""

    scheme: str
    settings: dict[str, Any]
    disturb: Callable[[Table], None] = lambda table: None


def lose_an_upload(table: Table) -> None:
    table.crash_before("p1", MaskedInput)


def lose_a_statement(table: Table) -> None:
    """In the set-up, so that the session is made again."""
    table.crash_before("p1", ModelHeld)


def lose_the_sum(table: Table) -> None:
    """For all but two, who vote: the result is passed on."""
    table.tamper = lambda flight: (
        None
        if isinstance(flight.message, SumOpened | Aggregate) and flight.receiver in ("p2", "p3")
        else flight.message
    )


SCENARIOS = [
    Scenario("plain", {}),
    Scenario("plain", {"schedule": Schedule.ROUND_ROBIN}),
    Scenario("masked", {}, lose_an_upload),
    Scenario("masked", {"recovery": Recovery.NONE}),
    Scenario("masked", {}, lose_the_sum),
    Scenario("mpc", {}, lose_an_upload),
    Scenario("mpc", {}),
    Scenario("mpc", {}, lose_the_sum),
    Scenario("ampc", {}, lose_an_upload),
    Scenario("ampc", {"share_mode": ShareMode.TENSOR, "graph": "ring"}),
    Scenario("ampc", {"recovery": Recovery.NONE}),
    Scenario("ampc", {}, lose_a_statement),
    Scenario("ampc", {}, lose_the_sum),
    Scenario("perturbed", {}),
    Scenario("bilateral", {}, lose_an_upload),
    Scenario(ballot.Ballot.name, {}),
]
SCHEMES = sorted({scenario.scheme for scenario in SCENARIOS})


def drive(scenario: Scenario) -> Iterator[Table]:
    """The table after every step. One party is absent at first; it comes when a round is done."""
    table = Table.build(scenario.scheme, PARTIES, rounds=3, inline=False, **scenario.settings)
    scenario.disturb(table)
    table.crash(ABSENT)
    table.start()
    yield table
    while not table.finished:
        if table.server.rounds_done and ABSENT in table.crashed:
            table.restart(ABSENT)
        elif table.wire:
            table.deliver(table.wire[0])
        elif table.jobs:
            table.run_job(table.jobs[0])
        else:
            table.advance()
        yield table


def state_of(table: Table, name: PartyId) -> Reached:
    machine = table.machines[name]
    inner = machine.machine
    role = "server" if name == SERVER else "participant"
    return (
        role,
        machine.phase,
        None if inner is None else type(inner),
        None if inner is None else inner.phase,
    )


@pytest.fixture(autouse=True)
def copies_share_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys refuse to be copied, and never change: a copy of a machine shares such things with the original."""
    for kind in (
        Secret,
        AgreementKey,
        Identity,
        Roster,
        Parameters,
        Graph,
        Message,
        SeededEntropy,
        Certificate,
        SupportedBallot,
        Vote,
    ):
        monkeypatch.setattr(kind, "__deepcopy__", lambda key, memo: key, raising=False)


def real_messages(scenario: Scenario) -> dict[type[Message], Message]:
    table = list(drive(scenario))[-1]
    return {type(flight.message): flight.message for flight in table.trace.sent}


def senders_for(table: Table, name: PartyId) -> list[PartyId]:
    member = next(other for other in table.present if other not in (name, SERVER))
    return [SERVER, member, ABSENT, STRANGER]


class Probe:
    """Throws everything at copies of one machine and checks what happens."""

    def __init__(self, table: Table, name: PartyId, real: dict[type[Message], Message]) -> None:
        self.table = table
        self.name = name
        self.real = real
        self.original = table.machines[name]
        self.outcomes: Counter[str] = Counter()
        self.renew_copy()

    def throw_everything(self) -> None:
        current = self.table.stamp_of(self.name)
        for kind in registered_messages().values():
            sample = self.real.get(kind) or smallest_message(kind)
            for sender in senders_for(self.table, self.name):
                self.throw(sender, replace(sample, stamp=current))
            self.throw(SERVER, replace(sample, stamp=Stamp()))

    def throw(self, sender: PartyId, message: Message) -> None:
        machine = self.copy
        try:
            machine.receive(sender, message, self.table.now)
        except RemoteProtocolError as refusal:
            self.require_sound_refusal(sender, message, refusal)
            self.outcomes["refused"] += 1
            return
        kept = picture(machine, without=EARLY) == self.before_without_early
        self.renew_copy()
        assert sender != STRANGER, (self.name, message)
        if kept:
            assert self.in_table(message) or self.name != SERVER, (self.name, message)
            self.outcomes["kept or ignored"] += 1
            return
        assert self.in_table(message), (self.name, message)
        self.require_allowed_move(machine, message)
        self.outcomes["accepted"] += 1

    def require_sound_refusal(self, sender: PartyId, message: Message, refusal: RemoteProtocolError) -> None:
        assert refusal.culprit == sender
        assert picture(self.copy) == self.before, (self.name, message, refusal)
        if not self.in_table(message):
            assert refusal.reason in NOT_EXPECTED, (self.name, message, refusal)

    def renew_copy(self) -> None:
        self.copy = copy.deepcopy(self.original)
        self.before = picture(self.copy)
        self.before_without_early = picture(self.copy, without=EARLY)

    def in_table(self, message: Message) -> bool:
        inner = self.original.machine
        outer = (self.original.phase, type(message)) in self.original.table.moves
        return outer or (inner is not None and (inner.phase, type(message)) in inner.table.moves)

    def require_allowed_move(self, machine: Any, message: Message) -> None:
        """The machine of the attempt followed its table, as far as the same one is still there."""
        was, now = self.original.machine, machine.machine
        same_attempt = was is not None and now is not None and now.stamp == was.stamp
        if same_attempt and type(now) is type(was) and now.phase is not was.phase:
            assert now.phase in was.table.moves[was.phase, type(message)]
        if machine.phase is not self.original.phase:
            targets = {
                target
                for (phase, trigger), after in self.original.table.moves.items()
                if phase is self.original.phase and trigger in (type(message), "outcome")
                for target in after
            }
            assert machine.phase in targets


@pytest.mark.parametrize("index", range(len(SCENARIOS)))
def test_what_the_table_does_not_name_is_refused_and_changes_nothing(index: int) -> None:
    scenario = SCENARIOS[index]
    real = real_messages(scenario)
    probed: set[Reached] = set()
    outcomes: Counter[str] = Counter()
    for table in drive(scenario):
        for name in table.present:
            state = state_of(table, name)
            if state not in probed:
                probed.add(state)
                probe = Probe(table, name, real)
                probe.throw_everything()
                outcomes += probe.outcomes
    assert outcomes["refused"] > 100
    assert outcomes["accepted"] > 5


@cache
def reached_by(scheme: str) -> frozenset[Reached]:
    return frozenset(
        state_of(table, name)
        for scenario in SCENARIOS
        if scenario.scheme == scheme
        for table in drive(scenario)
        for name in table.present
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_runs_visit_every_phase_of_every_machine(scheme: str) -> None:
    """So the table above is exhaustive; a closed attempt is gone and an idle server has not started."""
    reached = reached_by(scheme)
    for machine in find_scheme(scheme).machines.values():
        seen = {phase for _, _, cls, phase in reached if cls is machine}
        unseen = {phase.value for phase in machine.table.phases if phase not in seen}
        assert unseen <= NEVER_SEEN, (machine, unseen)
    outer = {phase for _, phase, _, _ in reached}
    setup = scheme in ("mpc", "ampc")
    wanted = {*PARTICIPANT_TABLE.phases, *SERVER_TABLE.phases} - {ServerPhase.IDLING}
    wanted -= set() if setup else {ParticipantPhase.PREPARING, ServerPhase.PREPARING}
    assert wanted <= outer
