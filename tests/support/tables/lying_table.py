"""What a test says and asks at a table where any message can be replaced, withheld or invented.

    table = lying_table("masked", parties=5)
    flight = until(table, SurvivorList, "p0")     run until the server's list for p0 is on the wire
    error = say(table, "server", "p0", lie)       p0 hears something else; the refusal, or None

The table is the one of the testing kit: `table.tamper` sees every message when it is sent, and returns what travels
instead (None: nothing). When a lie is refused, everything that the receiver holds, in memory and on disk, is compared
with what it was before: a refusal changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.support.snapshots import picture
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import AttemptMachine
from veilsum.protocol.machines.events import RoundCommitted, RoundFailed, RunFailed, RunFinished, Warned
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.run.federation import simulated_identities
from veilsum.simulations.testing.federation import MAX_WEIGHT, TableFederation
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

_CACHES = frozenset(["_verified"])
"""What was verified once stays verified, whatever it came with."""


@dataclass(frozen=True)
class RandomInputs:
    """Numbers that depend on the party and the round, unless a test fixed others."""

    dimension: int
    fixed: dict[tuple[PartyId, int], LocalResult] = field(default_factory=dict)

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        if (party, round) in self.fixed:
            return self.fixed[party, round]
        numbers = np.random.default_rng([round, *party.encode()])
        payload = numbers.uniform(-1, 1, self.dimension).astype(np.float32)
        return LocalResult(payload, int(numbers.integers(1, MAX_WEIGHT + 1)))


def party_names(count: int) -> list[PartyId]:
    return [PartyId(f"p{index}") for index in range(count)]


def make_identities(scheme: Scheme, names: Iterable[PartyId], seed: int) -> dict[PartyId, Identity]:
    """Keys that are not those of a table, unless it has the same seed."""
    return simulated_identities(scheme, list(names), SeededEntropy(seed))


def lying_table(
    scheme: str,
    parties: int = 5,
    *,
    dimension: int = 6,
    rounds: int = 1,
    seed: int = 7,
    absent: Iterable[str] = (),
    **fields: Any,
) -> Table:
    """A table at which everyone who is not absent has begun; `fields` are those of `Parameters`, and `bits`."""
    learner = RandomInputs(dimension)
    table = Table.build(
        scheme,
        party_names(parties),
        dimension=dimension,
        rounds=rounds,
        seed=seed,
        learner=learner,
        **fields,
    )
    for name in absent:
        table.crash(name)
    table.start()
    return table


def new_machine(federation: TableFederation, name: PartyId) -> ServerMachine | ParticipantMachine:
    """A party's first machine under these terms."""
    state = PersistentState(0, federation.initial_model)
    return federation.machine(name, state, federation.entropy.for_party(name))


def fix_input(table: Table, party: PartyId, round_number: int, result: LocalResult) -> None:
    """What this party will train in this round."""
    learner = table.federation.learner
    assert isinstance(learner, RandomInputs)
    learner.fixed[party, round_number] = result


def input_of(table: Table, party: PartyId, round_number: int) -> LocalResult:
    """What this party trains in this round, whether it was asked yet or not."""
    return table.federation.learner.train(party, round_number, table.federation.initial_model)


def participant(table: Table, name: str) -> ParticipantMachine:
    machine = table.machines[PartyId(name)]
    assert isinstance(machine, ParticipantMachine)
    return machine


def attempt_of(table: Table, name: str) -> AttemptMachine:
    machine = table.machines[PartyId(name)].machine
    assert machine is not None, f"{name} is in no attempt"
    return machine


def until(
    table: Table, kind: type[Message], receiver: str | None = None, sender: str | None = None
) -> InFlight:
    """Run until such a message is the next of its sender to its receiver; it stays on the wire."""
    while True:
        links = set()
        for flight in table.wire:
            wanted = receiver in (None, flight.receiver) and sender in (None, flight.sender)
            link = (flight.sender, flight.receiver)
            if wanted and isinstance(flight.message, kind) and link not in links:
                return flight
            links.add(link)
        if table.wire:
            step(table)
        else:
            assert table.advance(), f"no {kind.__name__} was ever sent"


def step(table: Table) -> None:
    """Deliver what was sent first."""
    table.deliver(table.wire[0])


def hold(table: Table, kind: type[Message], receiver: str, sender: str) -> InFlight:
    """Take such a message off the wire and deliver everything else; `hand_over` it when its time has come."""
    flight = until(table, kind, receiver, sender)
    table.drop(flight)
    table.deliver_all()
    return flight


def hand_over(table: Table, flight: InFlight) -> RemoteProtocolError | None:
    """Deliver a message now, before everything on the wire; the refusal, or None."""
    assert flight.receiver not in table.crashed, f"{flight.receiver} hears nothing"
    return table.deliver(table.duplicate(flight))


def say(table: Table, sender: str, receiver: str, message: Message) -> RemoteProtocolError | None:
    """Deliver a message that no machine sent; if it is refused, nothing may have changed."""
    name = PartyId(receiver)
    assert name not in table.crashed, f"{name} hears nothing"
    before = picture((table.machines[name], table.disks[name]), without=_CACHES)
    error = table.deliver(table.inject(sender, receiver, message))
    if error is not None:
        after = picture((table.machines[name], table.disks[name]), without=_CACHES)
        assert after == before, "a refused message changed something"
    return error


def lose_before(table: Table, kind: type[Message], *lost: str, in_round: int = 0) -> Table:
    def tamper(flight: InFlight) -> Message | None:
        if (
            isinstance(flight.message, kind)
            and flight.sender in lost
            and flight.message.stamp.round == in_round
        ):
            table.crash(flight.sender)
            return None
        return flight.message

    table.tamper = tamper
    return table


def refuses(table: Table, receiver: str, sender: str, message: Message, reason: AbortReason) -> str:
    """Assert that the message is refused for this reason and blamed on its sender; returns the detail."""
    error = say(table, sender, receiver, message)
    assert error is not None, "the lie was believed"
    assert (error.reason, error.culprit) == (reason, sender), error
    return error.detail


@dataclass(frozen=True)
class Told:
    """What one party said about itself."""

    commits: list[RoundCommitted]
    failures: list[RoundFailed]
    warnings: list[str]
    ending: RunFinished | RunFailed | None


def told(table: Table, name: str) -> Told:
    events = [entry.event for entry in table.trace.entries if entry.party == name]
    return Told(
        commits=[event for event in events if isinstance(event, RoundCommitted)],
        failures=[event for event in events if isinstance(event, RoundFailed)],
        warnings=[event.text for event in events if isinstance(event, Warned)],
        ending=table.trace.endings.get(PartyId(name)),
    )


def messages(
    table: Table, kind: type[Any], sender: str | None = None, receiver: str | None = None
) -> list[Any]:
    """What the machines themselves sent."""
    return [
        flight.message
        for flight in table.trace.sent
        if isinstance(flight.message, kind)
        and sender in (None, flight.sender)
        and receiver in (None, flight.receiver)
    ]


def reasons(table: Table, *names: str) -> set[AbortReason]:
    """Why attempts failed at these parties (all participants if none is named)."""
    return {failure.reason for name in names or table.participants for failure in told(table, name).failures}


def nobody_has_a_result(table: Table, *names: str) -> bool:
    return not any(told(table, name).commits for name in names or table.participants)


def exact_model(table: Table, members: Iterable[PartyId], round_number: int = 0) -> bytes:
    """The model after one round from zeros, by integer arithmetic on the inputs alone."""
    parameters = table.federation.parameters
    cohort = [input_of(table, name, round_number) for name in members]
    factors = [one.samples / MAX_WEIGHT * parameters.encoding.scale for one in cohort]
    weight = sum(round(factor) for factor in factors)
    sums = [
        sum(round(float(one.payload[at]) * factor) for one, factor in zip(cohort, factors, strict=True))
        for at in range(parameters.dimension)
    ]
    return np.array([float(total) / float(weight) for total in sums]).astype(np.float32).tobytes()
