"""The stateful test that every scheme gets for free.

    from veilsum.simulations.testing import rounds_under_faults

    TestMyScheme = rounds_under_faults("my-scheme", tolerated_crashes=1).TestCase

Hypothesis plays the network, the machine room and the liars: it delivers in any order, loses, repeats and
keeps back messages, crashes and restarts parties, lets deadlines pass, finishes work early or late, and
sends forged messages. After every step all invariants hold, and every run ends. What it ends with is compared
with the reference: a run that met only delays, repetitions and few enough crashes must commit every round.

Lies are of three kinds: a message that its sender did send, to another party or at another time; such a
message under the stamp of the attempt that its receiver is in; and a random well-formed message of any
kind. The server's own announcement of a result (`RoundClosed`) is forged only where the scheme has a chain, whose
parties commit what they certified themselves. Without one a server that holds the model can falsify it, and nobody can
tell (specs/threat-model.md).

Implements specs/testing.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.session import RoundClosed
from veilsum.protocol.wire.messages import Message, registered_messages
from veilsum.simulations.testing.invariants import check_invariants
from veilsum.simulations.testing.message_strategies import message_strategy
from veilsum.simulations.testing.reference import Reference
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

OUTSIDER = PartyId("outsider")
CHOICES = st.integers(0, 2**16)


class RoundsUnderFaults(RuleBasedStateMachine):
    """The stateful test of a scheme: whatever is lost, late, repeated or forged, the invariants hold and it ends."""

    scheme: ClassVar[str] = "plain"
    settings_of_table: ClassVar[Mapping[str, Any]] = {}
    tolerated_crashes: ClassVar[int] = 0
    with_lies: ClassVar[bool] = True

    table: Table
    reference: Reference
    faults_left: int

    @initialize(
        seed=st.integers(0, 2**16), inline=st.booleans(), faults=st.integers(0, 6), calm=st.integers(0, 150)
    )
    def sit_down(self, seed: int, inline: bool, faults: int, calm: int) -> None:
        """A few faults in each run, after a calm beginning: a run in which all goes wrong gets nowhere."""
        self.faults_left = faults
        self.table = Table.build(self.scheme, seed=seed, inline=inline, **self.settings_of_table)
        self.reference = Reference(
            self.table.federation.parameters, self.table.inputs, self.tolerated_crashes
        )
        self.table.start()
        self.deliver_some(calm)

    @rule(count=st.integers(1, 60))
    def deliver_some(self, count: int) -> None:
        """The oldest messages, in order, and the work they cause; when all is quiet, time passes."""
        for _ in range(count):
            if self.table.wire:
                self.table.deliver(self.table.wire[0])
            elif self.table.jobs:
                self.table.run_job(self.table.jobs[0])
            elif not self.table.finished:
                self.table.advance()

    @precondition(lambda self: self.table.wire)
    @rule(choice=CHOICES)
    def deliver_from_one_link(self, choice: int) -> None:
        """The oldest message of one pair of parties: links are independent of each other."""
        self.table.deliver(self._oldest_of_a_link(choice))

    @precondition(lambda self: self.faults_left and self.table.wire)
    @rule(choice=CHOICES)
    def deliver_twice(self, choice: int) -> None:
        """A message arrives, and again later."""
        self.faults_left -= 1
        flight = self._oldest_of_a_link(choice)
        copied = self.table.duplicate(flight)
        self.table.deliver(flight)
        self.table.deliver(copied)

    @precondition(lambda self: self.faults_left and self.table.wire)
    @rule(choice=CHOICES)
    def deliver_out_of_order(self, choice: int) -> None:
        """A message overtakes others of its link."""
        self._disturb()
        self.table.deliver(self._any_flight(choice))

    @precondition(lambda self: self.faults_left and self.table.wire)
    @rule(choice=CHOICES)
    def lose(self, choice: int) -> None:
        """A message is lost."""
        self._disturb()
        self.table.drop(self._any_flight(choice))

    @precondition(lambda self: self.faults_left and self.table.wire)
    @rule(choice=CHOICES)
    def repeat(self, choice: int) -> None:
        """A message is put on the wire twice."""
        self.faults_left -= 1
        self.table.duplicate(self._any_flight(choice))

    @precondition(lambda self: self.faults_left and self.table.wire)
    @rule(choice=CHOICES)
    def keep_back(self, choice: int) -> None:
        """A message is kept back for later."""
        self._disturb()
        self.table.hold(self._any_flight(choice))

    @precondition(lambda self: self.table.held)
    @rule(choice=CHOICES)
    def let_go(self, choice: int) -> None:
        """A message that was kept back goes on."""
        self.table.release(self.table.held[choice % len(self.table.held)])

    @precondition(lambda self: self.table.jobs)
    @rule(choice=CHOICES)
    def finish_work(self, choice: int) -> None:
        """Work that a machine asked for is done."""
        self.table.run_job(self.table.jobs[choice % len(self.table.jobs)])

    @precondition(lambda self: self.faults_left and self.table.present)
    @rule(choice=CHOICES)
    def crash(self, choice: int) -> None:
        """A party or the server dies."""
        names = self.table.present
        self.faults_left -= 1
        self.reference.note_crash(names[choice % len(names)])
        self.table.crash(names[choice % len(names)])

    @precondition(lambda self: self.faults_left)
    @rule(choice=CHOICES, point=CHOICES)
    def crash_before_a_message(self, choice: int, point: int) -> None:
        """At one of the points that the scheme names, for a participant."""
        classes = list(self.table.federation.scheme.drop_points.values())
        name = self.table.participants[choice % len(self.table.participants)]
        self.faults_left -= 1
        self.reference.note_crash(name)
        self.table.crash_before(name, classes[point % len(classes)])

    @precondition(lambda self: self.faults_left)
    @rule(choice=CHOICES, server=st.booleans())
    def crash_and_restart_at_once(self, choice: int, server: bool) -> None:
        """As a supervisor does it; half of the time it is the server."""
        self._disturb()
        name = SERVER if server else self._anyone(choice)
        self.table.crash(name)
        self.table.restart(name)

    @precondition(lambda self: self.table.crashed)
    @rule(choice=CHOICES)
    def restart(self, choice: int) -> None:
        """Who crashed comes back with what it had on disk."""
        self.reference.note_disturbance()
        names = sorted(self.table.crashed)
        self.table.restart(names[choice % len(names)])

    @precondition(lambda self: self.faults_left)
    @rule()
    def let_time_pass_too_early(self) -> None:
        """Deadlines pass while messages are under way."""
        self._disturb()
        self.table.advance()

    @precondition(lambda self: self.with_lies and self.faults_left)
    @rule(choice=CHOICES, receiver_choice=CHOICES, restamped=st.booleans())
    def lie_with_an_old_message(self, choice: int, receiver_choice: int, restamped: bool) -> None:
        """Somebody sends to anyone what it once sent."""
        sent = self.table.trace.sent
        flight = sent[choice % len(sent)]
        receiver = self._anyone(receiver_choice)
        message = flight.message
        if restamped and self._may_forge(flight.sender, type(message)):
            message = _under_stamp_of(self.table, receiver, message)
        self._lie(flight.sender, receiver, message)

    @precondition(lambda self: self.with_lies and self.faults_left)
    @rule(liar=CHOICES, receiver_choice=CHOICES, data=st.data())
    def lie_with_a_made_up_message(self, liar: int, receiver_choice: int, data: st.DataObject) -> None:
        """Somebody sends a well-formed message of random content."""
        senders = [*self.table.machines, OUTSIDER]
        sender, receiver = senders[liar % len(senders)], self._anyone(receiver_choice)
        kinds = [cls for cls in registered_messages().values() if self._may_forge(sender, cls)]
        kind = data.draw(st.sampled_from(sorted(kinds, key=lambda cls: cls.__qualname__)))
        message = data.draw(message_strategy(kind, stamp=st.just(self.table.stamp_of(receiver))))
        self._lie(sender, receiver, message)

    @invariant()
    def invariants_hold(self) -> None:
        """After every step."""
        if hasattr(self, "table"):
            check_invariants(self.table)

    def teardown(self) -> None:
        """Without further faults, every run ends; one that met nothing serious ends well."""
        if not hasattr(self, "table"):
            return
        for flight in list(self.table.held):
            self.table.release(flight)
        self.table.run()
        check_invariants(self.table)
        endings = self.table.trace.endings
        assert set(self.table.present) <= endings.keys()
        if self.reference.must_complete:
            rounds = self.table.federation.rules.rounds
            assert self.table.server.rounds_done == rounds, endings[SERVER]
            assert all(isinstance(endings[name], RunFinished) for name in self.table.present), endings

    def _disturb(self) -> None:
        self.faults_left -= 1
        self.reference.note_disturbance()

    def _lie(self, sender: PartyId, receiver: PartyId, message: Message) -> None:
        self._disturb()
        self.table.deliver(self.table.inject(sender, receiver, message))

    def _may_forge(self, sender: PartyId, kind: type[Message]) -> bool:
        return sender != SERVER or kind is not RoundClosed or self.table.federation.scheme.has_chain

    def _anyone(self, choice: int) -> PartyId:
        names = list(self.table.machines)
        return names[choice % len(names)]

    def _oldest_of_a_link(self, choice: int) -> InFlight:
        heads: dict[tuple[PartyId, PartyId], InFlight] = {}
        for flight in self.table.wire:
            heads.setdefault((flight.sender, flight.receiver), flight)
        return list(heads.values())[choice % len(heads)]

    def _any_flight(self, choice: int) -> InFlight:
        return self.table.wire[choice % len(self.table.wire)]


def _under_stamp_of(table: Table, receiver: PartyId, message: Message) -> Message:
    """The message as if it belonged to what the receiver is working on, with its own model hash."""
    return replace(message, stamp=replace(table.stamp_of(receiver), model_hash=message.stamp.model_hash))


def rounds_under_faults(
    scheme: str, *, tolerated_crashes: int = 0, with_lies: bool = True, **table_settings: Any
) -> type[RoundsUnderFaults]:
    """The stateful test of one registered scheme; further arguments go to `Table.build`.

    A scheme that is not registered, or that such a table does not suit, is refused here, before any test.
    """
    Table.build(scheme, **table_settings)
    attributes = {
        "scheme": scheme,
        "settings_of_table": table_settings,
        "tolerated_crashes": tolerated_crashes,
        "with_lies": with_lies,
    }
    return type(f"RoundsOf{scheme.title()}", (RoundsUnderFaults,), attributes)
