"""The table does what a test tells it, and keeps what a disk would keep."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import ballot
from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import (
    Event,
    RunFailed,
    RunFinished,
    TrainingRequested,
)
from veilsum.protocol.machines.session import Knock
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.secure_sum.group_key import GroupKeyDealt, GroupKeyDelivered
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.process.machines import Machine
from veilsum.roles.process.observer import Observers, RunObserver
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.invariants import InvariantMonitor
from veilsum.simulations.run.simulation import Simulation
from veilsum.simulations.testing import (
    MarkedLearner,
    Stuck,
    Table,
    check_invariants,
    graph_policies,
    party_names,
    payload_vectors,
    play,
    schedules,
    table_settings,
)
from veilsum.simulations.testing.trace import InFlight

SCHEMES = ["plain", "masked", "mpc", "ampc", "perturbed", "bilateral", ballot.Ballot.name]
ALL = ("p0", "p1", "p2", "p3")


def finished(scheme: str = "masked") -> Table:
    table = Table.build(scheme)
    table.start()
    table.run()
    return table


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_undisturbed_run_commits_every_round_at_every_party(scheme: str) -> None:
    table = finished(scheme)
    check_invariants(table)
    assert {(name, one.round, one.members) for name, one in table.trace.commits} == {
        (name, number, ALL) for name in (SERVER, *ALL) for number in (0, 1)
    }
    assert all(isinstance(ending, RunFinished) for ending in table.trace.endings.values())
    assert not table.trace.refusals
    assert not table.trace.failures


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
@pytest.mark.parametrize("seed", [0, 1])
def test_models_do_not_depend_on_the_entropy(scheme: str, seed: int) -> None:
    """Masks cancel exactly: another seed gives other messages and the same model."""
    table = Table.build(scheme, seed=seed)
    table.start()
    table.run()
    uploads = {
        flight.message.vector.tobytes()
        for flight in table.trace.sent
        if isinstance(flight.message, MaskedInput)
    }
    assert len(uploads) == 8
    models = {one.model.tobytes() for _, one in table.trace.commits if one.model is not None}
    expected = {one.model.tobytes() for _, one in finished(scheme).trace.commits if one.model is not None}
    assert models == expected
    assert len(models) == 2


@pytest.mark.parametrize(
    ("scheme", "point"),
    [
        (name, point)
        for name in ("plain", "masked", "mpc", "ampc", "perturbed", "bilateral")
        for point in find_scheme(name).drop_points
    ],
)
def test_one_party_may_vanish_at_any_point(scheme: str, point: str) -> None:
    """Also where it is the second: keys of dropped peers are revealed only if there is one."""
    table = Table.build(scheme, 7 if point == "reveal" else 4)
    if point == "reveal":
        table.crash_before("p1", MaskedInput)
    table.crash_before("p2", find_scheme(scheme).drop_points[point])
    table.start()
    table.run()
    check_invariants(table)
    assert table.server.rounds_done == 2
    assert "p2" in table.crashed


@pytest.mark.parametrize(
    ("scheme", "point"),
    [
        (name, point)
        for name in ("masked", "mpc", "ampc", "bilateral")
        for point in find_scheme(name).drop_points
        if point != "reveal"
    ],
)
def test_as_many_as_may_vanish_do_so_at_any_point(scheme: str, point: str) -> None:
    """Two of eight, where six rebuild, sign and certify: the others commit every round, if need be in a new attempt."""
    table = Table.build(scheme, 8)
    for name in ("p2", "p5"):
        table.crash_before(name, find_scheme(scheme).drop_points[point])
    table.start()
    table.run()
    check_invariants(table)
    assert {"p2", "p5"} == set(table.crashed)
    assert all(isinstance(table.trace.endings[name], RunFinished) for name in table.present)
    assert table.server.rounds_done == 2


def test_a_missing_vote_ends_a_ballot_with_a_typed_reason() -> None:
    table = Table.build(ballot.Ballot.name)
    table.crash_before("p2", ballot.Vote)
    table.start()
    table.run()
    check_invariants(table)
    ending = table.trace.endings[SERVER]
    assert isinstance(ending, RunFailed)
    assert (ending.reason, ending.culprit) == (AbortReason.MISSING_UPLOAD, "p2")
    assert not table.trace.commits


def test_messages_wait_on_the_wire_until_the_test_delivers_them() -> None:
    table = Table.build("plain")
    table.start()
    first, second = table.wire[:2]
    table.hold(first)
    copied = table.duplicate(second)
    table.drop(second)
    assert first not in table.wire
    assert table.wire[-1] == copied
    table.release(first)
    assert table.wire[-1] == first
    with refusal(LocalProtocolError, f"<{second.number}:", second.sender, second.receiver, "wire"):
        table.drop(second)
    table.run()
    assert table.server.rounds_done == 2


def test_a_message_on_the_wire_is_shown_with_its_round_and_attempt_counted_from_1() -> None:
    flight = InFlight(7, SERVER, PartyId("p1"), Knock(Stamp(round=0, attempt=1)))
    assert repr(flight) == "<7: Knock server -> p1, round 1 attempt 2>"


def test_a_refusal_is_returned_and_written_down() -> None:
    table = finished()
    refusal = table.deliver(table.inject("stranger", SERVER, Knock(Stamp())))
    assert isinstance(refusal, RemoteProtocolError)
    assert refusal.reason is AbortReason.UNKNOWN_PARTY
    assert table.trace.refusals[-1].error is refusal
    assert table.liars == {"stranger"}


def test_work_waits_for_the_test_unless_it_runs_inline() -> None:
    table = Table.build("plain", inline=False)
    table.start()
    while table.wire:
        table.deliver(table.wire[0])
    assert {job.party for job in table.jobs} == set(ALL)
    assert all(isinstance(job.request, TrainingRequested) for job in table.jobs)
    table.fail_job(table.jobs[0], LocalProtocolError("out of memory"))
    table.run()
    assert table.trace.commits[0][1].members == ALL[1:]


def test_a_restarted_party_has_its_committed_rounds_and_its_spent_ones() -> None:
    table = Table.build("ampc", rounds=3)
    table.start()
    while not any(name == "p1" for name, _ in table.trace.commits):
        table.deliver(table.wire[0])
    before = table.machines[PartyId("p1")]
    table.crash("p1")
    table.restart("p1")
    after = table.machines[PartyId("p1")]
    assert after is not before
    assert (after.rounds_done, after.record) == (1, before.record)
    assert 0 in after.record.spent
    np.testing.assert_array_equal(after.model, before.model)
    table.run()
    check_invariants(table)


def test_a_restarted_server_goes_on_after_the_last_committed_round() -> None:
    table = Table.build("masked", rounds=3)
    table.start()
    while not any(name == SERVER for name, _ in table.trace.commits):
        table.deliver(table.wire[0])
    table.crash(SERVER)
    table.restart(SERVER)
    assert table.server.rounds_done == 1
    table.run()
    check_invariants(table)
    assert [one.round for name, one in table.trace.commits if name == SERVER] == [0, 1, 2]


def test_participants_give_up_on_a_server_that_never_comes_back() -> None:
    table = Table.build("masked")
    table.start()
    table.crash(SERVER)
    table.run()
    check_invariants(table)
    endings = table.trace.endings
    assert {endings[name].reason for name in table.participants} == {AbortReason.TIMED_OUT}


def test_only_a_crashed_party_restarts_and_only_a_present_one_crashes() -> None:
    table = Table.build("plain")
    with pytest.raises(LocalProtocolError, match="has not crashed"):
        table.restart("p0")
    with pytest.raises(LocalProtocolError, match="does not sit"):
        table.crash("p9")


def test_a_table_without_deadlines_is_stuck_not_endless() -> None:
    table = Table.build("plain")
    with pytest.raises(Stuck):
        table.run()


def test_bad_tables_are_refused_with_the_numbers() -> None:
    with pytest.raises(ParameterError, match="at least one"):
        Table.build("plain", 0)
    with pytest.raises(ParameterError, match="5 markers"):
        Table.build("plain", 5, dimension=4)
    with pytest.raises(ParameterError, match="unknown scheme 'morse'"):
        Table.build("morse")


def test_a_message_may_be_replaced_or_withheld_as_it_is_sent() -> None:
    """What travels is what the hook returns; whoever's message was changed counts as a liar."""
    table = Table.build("plain", tamper=lambda flight: None if flight.sender == "p1" else flight.message)
    table.start()
    table.run()
    assert all(flight.sender != "p1" for flight in table.wire)
    assert "p1" in {flight.sender for flight in table.trace.sent}
    assert table.liars == {"p1"}
    assert {one.members for _, one in table.trace.commits} == {("p0", "p2", "p3")}


class Heard(RunObserver):
    """Counts what it is told, by notification, party and kind.

    Who deals the group key is drawn anew in every run: there the participant is left open.
    """

    def __init__(self) -> None:
        self.counted: Counter[tuple[object, ...]] = Counter()

    def began(self, now: float, party: PartyId, machine: Machine) -> None:
        self.counted["began", party, type(machine)] += 1

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        self.counted["sent", *_ends(party, receiver, message)] += size > 0

    def received(self, now: float, party: PartyId, sender: PartyId, message: Message, size: int) -> None:
        self.counted["received", *_ends(party, sender, message)] += size > 0

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        self.counted["trained", party, round_number] += update.samples > 0

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        self.counted["noted", party, type(event)] += 1


def _ends(party: PartyId, other: PartyId, message: Message) -> tuple[object, ...]:
    if isinstance(message, GroupKeyDealt | GroupKeyDelivered):
        return party == SERVER, other == SERVER, type(message)
    return party, other, type(message)


@pytest.mark.parametrize("scheme", ["plain", "masked", "ampc", "perturbed"])
def test_a_table_tells_an_observer_what_a_simulation_tells_it(scheme: str) -> None:
    """All five notifications, as often and of the same parties; and the monitor has nothing to say about them."""
    at_table, simulated = Heard(), Heard()
    table = Table.build(scheme, ALL, observer=Observers([at_table, InvariantMonitor()]))
    table.start()
    table.run()
    config = FederationConfig(scheme=scheme, parties=ALL, task="digits", rounds=2, seed=7)
    Simulation(Federation.build(config), observer=simulated).run()
    assert {what for what, *_ in at_table.counted} == {"began", "sent", "received", "trained", "noted"}
    assert at_table.counted == simulated.counted


@given(party_names(), st.integers(0, 100))
def test_every_party_marks_its_own_slot_and_no_other(names: tuple[PartyId, ...], number: int) -> None:
    learner = MarkedLearner(names, len(names) + 2)
    payloads = [learner.train(name, number, np.zeros(0, dtype=np.float32)).payload for name in names]
    np.testing.assert_array_equal(np.array(payloads)[:, : len(names)], np.eye(len(names)))
    assert len({payload.tobytes() for payload in payloads}) == len(names)


@given(st.data())
def test_drawn_graphs_are_safe_for_decomposition(data: st.DataObject) -> None:
    names = data.draw(party_names(3, 9))
    policy = data.draw(graph_policies(names))
    policy.draw(names, bytes(32)).require_safe_for_decomposition()


@given(payload_vectors(5))
def test_drawn_payloads_can_be_encoded(payload: np.ndarray) -> None:
    Table.build("plain").federation.parameters.encoding.encode(payload, 1)


@settings(max_examples=15)
@given(st.sampled_from(SCHEMES).flatmap(lambda name: st.tuples(st.just(name), table_settings(name))))
def test_drawn_settings_make_a_table_that_runs_to_its_end(drawn: tuple[str, dict[str, object]]) -> None:
    scheme, drawn_settings = drawn
    table = Table.build(scheme, **drawn_settings)
    table.start()
    table.run()
    check_invariants(table)
    assert table.server.rounds_done == 2


@settings(max_examples=15)
@given(st.sampled_from(SCHEMES), schedules())
def test_whatever_is_played_the_run_ends_and_the_invariants_hold(scheme: str, schedule: list) -> None:
    table = Table.build(scheme)
    table.start()
    play(table, schedule)
    check_invariants(table)
    table.run()
    check_invariants(table)
