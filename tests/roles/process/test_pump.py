"""The pump: one order in which events are performed, whoever drives the machine, and one meaning of a refusal."""

from __future__ import annotations

import pytest

from tests.roles.process.test_driver import ALICE, DONE, Script
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.decisions import AttemptEntered, RoundSpent
from veilsum.protocol.machines.events import DecisionMade, Event, Send, Warned, WorkRequested
from veilsum.protocol.machines.session import Knock
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.roles.process.pump import Keep, Pump, Refused, Tell, Transmit

DECISION = DecisionMade(RoundSpent(0, 4, frozenset({ALICE}), frozenset({ALICE})))
KNOCK = Knock(Stamp())


def pump_of(answer: object = None) -> Pump:
    return Pump(Script([], answer), PersistentState(0, None))  # type: ignore[arg-type]  # a script's answer


def test_a_decision_is_kept_then_told_and_only_then_the_next_message_leaves() -> None:
    """At each action the state is that of the events so far, and of none that comes later."""
    pump = pump_of()
    later = DecisionMade(AttemptEntered(0, 7))
    done = [
        (type(action), pump.state.attempt)
        for action in pump.drain([Send(ALICE, KNOCK), DECISION, Send(ALICE, KNOCK), later])
    ]
    assert done == [(Transmit, 0), (Keep, 5), (Tell, 5), (Transmit, 5), (Keep, 8), (Tell, 8)]


def test_a_fact_that_need_not_survive_is_told_and_not_kept() -> None:
    assert [type(action) for action in pump_of().drain([Warned("thin")])] == [Tell]


def test_one_message_to_several_is_one_action_in_the_order_of_its_receivers() -> None:
    bob = PartyId("bob")
    (action,) = pump_of().drain([Send(bob, KNOCK), Send(ALICE, KNOCK)])
    assert action == Transmit([bob, ALICE], KNOCK)


def test_work_is_handed_over_in_its_place() -> None:
    request = WorkRequested(lambda: None, lambda *_: [], lambda *_: [])
    assert list(pump_of().drain([request, Warned("thin")])) == [request, Tell(Warned("thin"))]


def test_the_end_is_known_when_it_is_told() -> None:
    pump = pump_of()
    assert [pump.ended for action in pump.drain([DONE]) if isinstance(action, Tell)] == [DONE]


def test_a_refusal_names_the_sender_of_the_message_and_changes_nothing() -> None:
    error = RemoteProtocolError(SERVER, AbortReason.WRONG_ROUND)

    def refuse(sender: PartyId, message: Message) -> list[Event]:
        raise error

    pump = pump_of(refuse)
    before = pump.state.copy()
    assert list(pump.receive(SERVER, KNOCK, 0.0)) == [Refused(SERVER, KNOCK, error)]
    assert pump.state == before


@pytest.mark.parametrize(
    "error", [LocalProtocolError("ours"), Rejection(AbortReason.REPLAY), KeyError("ours")]
)
def test_a_mistake_of_the_machine_is_not_taken_for_a_refusal(error: Exception) -> None:
    def fail(sender: PartyId, message: Message) -> list[Event]:
        raise error

    with pytest.raises(type(error)):
        list(pump_of(fail).receive(SERVER, KNOCK, 0.0))


def test_what_a_step_raises_is_never_a_refusal() -> None:
    def fail(now: float) -> list[Event]:
        raise RemoteProtocolError(SERVER, AbortReason.WRONG_ROUND)

    with pytest.raises(RemoteProtocolError):
        list(pump_of().take(fail, 0.0))


def test_a_copy_of_the_state_is_what_a_disk_holds() -> None:
    """What is noted later is not in it."""
    state = PersistentState(0, None)
    state.note(DECISION)
    copied = state.copy()
    state.note(DecisionMade(RoundSpent(1, 5, frozenset({SERVER}), frozenset({SERVER}))))
    state.memory[1] = b"later"
    assert (copied.attempt, list(copied.record.spent), len(copied.record.cohorts)) == (5, [0], 1)
    assert copied.memory == {}
