"""What the invariants of the testing kit notice: each is shown a run that breaks it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.crypto.kdf import KeyContext
from veilsum.protocol.crypto.linear_tag import attempt_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.decisions import Decision, RoundSpent, UpdateGiven, VoteCast
from veilsum.protocol.machines.events import (
    DecisionMade,
    RoundCommitted,
    Send,
    TrainingRequested,
    WorkRequested,
)
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.schemes.ampc.messages import ResultDigest, SeedsComplete
from veilsum.protocol.secure_sum import verification
from veilsum.protocol.secure_sum.shares import ReleasedShares, ShareKeeper
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing import (
    InvariantViolated,
    Table,
    check_invariants,
)
from veilsum.simulations.testing.trace import Entry, InFlight, KeyUse


def finished() -> Table:
    table = Table.build("masked")
    table.start()
    table.run()
    return table


def spoiled(table: Table, **changes: object) -> None:
    """Change the last result that shows a sum."""
    entries = table.trace.entries
    index = max(i for i, entry in enumerate(entries) if getattr(entry.event, "total", None) is not None)
    event = entries[index].event
    assert isinstance(event, RoundCommitted)
    entries[index] = replace(entries[index], event=replace(event, **changes))


def violated(table: Table) -> str:
    with pytest.raises(InvariantViolated) as caught:
        check_invariants(table)
    return caught.value.name


def last_total(table: Table) -> np.ndarray:
    return next(one.total.copy() for _, one in reversed(table.trace.commits) if one.total is not None)


def test_a_sum_that_is_one_off_violates_i1() -> None:
    table = finished()
    total = last_total(table)
    total[5] += 1
    spoiled(table, total=total)
    assert violated(table) == "I1"


def test_a_model_that_is_not_the_mean_violates_i1() -> None:
    table = finished()
    model = next(one.model for _, one in table.trace.commits if one.model is not None)
    spoiled(table, model=model + np.float32(1e-3))
    assert violated(table) == "I1"


def test_a_doubled_contribution_violates_i2() -> None:
    table = finished()
    total = last_total(table)
    total[2] *= 2
    spoiled(table, total=total)
    assert violated(table) == "I2"


def test_a_set_that_is_not_in_the_sum_violates_i2() -> None:
    table = finished()
    spoiled(table, members=("p0", "p1", "p2"))
    assert violated(table) == "I2"


def test_different_models_of_one_round_violate_i3() -> None:
    table = finished()
    spoiled(table, model_hash=bytes(32))
    assert violated(table) == "I3"


@pytest.mark.parametrize("other_round", [False, True])
def test_both_kinds_of_share_of_one_party_violate_i4(other_round: bool) -> None:
    """In one round; in another round they are shares of other secrets."""
    table = finished()
    flight, listed = _a_release_and_its_list(table)
    stamp = replace(flight.message.stamp, round=7) if other_round else flight.message.stamp
    _decide_again(table, flight.sender, stamp)
    table.trace.sent.append(_at_the_end(table, listed, replace(listed.message, stamp=stamp)))
    swapped = ReleasedShares(stamp, {}, flight.message.self_masks)
    table.trace.sent.append(_at_the_end(table, flight, swapped))
    if other_round:
        check_invariants(table)
    else:
        assert violated(table) == "I4"


def test_shares_in_two_attempts_of_a_round_violate_i4_unless_for_one_list() -> None:
    table = finished()
    flight, listed = _a_release_and_its_list(table)
    stamp = replace(flight.message.stamp, attempt=1)
    _decide_again(table, flight.sender, stamp)
    shorter = replace(listed.message, stamp=stamp, survivors=listed.message.survivors[:-1])
    table.trace.sent.append(_at_the_end(table, listed, shorter))
    table.trace.sent.append(_at_the_end(table, flight, replace(flight.message, stamp=stamp)))
    assert violated(table) == "I4"
    table.trace.sent[-2] = replace(table.trace.sent[-2], message=replace(listed.message, stamp=stamp))
    check_invariants(table)


def _a_release_and_its_list(table: Table) -> tuple[InFlight, InFlight]:
    """Of the last session of a table: shares, and the list that they were released for."""
    flight = [one for one in table.trace.sent if isinstance(one.message, ReleasedShares)][-1]
    return flight, next(
        one
        for one in table.trace.sent
        if isinstance(one.message, SurvivorList)
        and (one.receiver, one.message.stamp) == (flight.sender, flight.message.stamp)
    )


def _decide_again(table: Table, holder: PartyId, stamp: Stamp) -> None:
    """Let the server and a holder also spend another round or attempt, after all that happened."""
    for party in (SERVER, holder):
        spent = DecisionMade(RoundSpent(stamp.round, stamp.attempt, frozenset(), frozenset()))
        table.trace.entries.append(Entry(table.now, party, spent, _last_number(table) + 1))


def _at_the_end(table: Table, flight: InFlight, message: Message) -> InFlight:
    return replace(flight, message=message, number=_last_number(table) + 1)


def _last_number(table: Table) -> int:
    return max(one.number for one in (*table.trace.entries, *table.trace.sent))


def test_a_mask_key_in_two_attempts_violates_i5() -> None:
    table = finished()
    use = table.trace.key_uses[0]
    table.trace.key_uses.append(KeyUse(use.party, replace(use.stamp, attempt=1), 10**6, use.key))
    assert violated(table) == "I5"


def test_a_mask_key_twice_in_one_vector_violates_i5() -> None:
    table = finished()
    table.trace.key_uses.append(table.trace.key_uses[0])
    assert violated(table) == "I5"


def test_two_uploads_in_one_attempt_violate_i5() -> None:
    table = finished()
    first, second = [one for one in table.trace.sent if isinstance(one.message, MaskedInput)][:2]
    table.trace.sent.append(replace(first, message=second.message))
    assert violated(table) == "I5"


Job = WorkRequested | TrainingRequested
HONEST, NO_RECOVERY = {"threat": Threat.SEMI_HONEST}, {"recovery": Recovery.NONE}


@pytest.mark.parametrize("missing", [False, True], ids=["after", "never"])
@pytest.mark.parametrize(
    ("scheme", "chosen", "kind", "decision", "name"),
    [
        ("masked", {}, ReleasedShares, RoundSpent, "I4"),
        ("ampc", {}, ReleasedShares, RoundSpent, "I4"),
        ("masked", {}, MaskedInput, UpdateGiven, "I5"),
        ("ampc", {}, MaskedInput, UpdateGiven, "I5"),
        ("bilateral", {}, MaskedInput, UpdateGiven, "I5"),
        ("masked", NO_RECOVERY, MaskedInput, RoundSpent, "I4"),
        ("ampc", NO_RECOVERY, MaskedInput, RoundSpent, "I4"),
        ("mpc", {}, ResultDigest, VoteCast, "I3"),
        ("masked", HONEST, SurvivorList, RoundSpent, "I4"),
        ("masked", {}, SurvivorProof, RoundSpent, "I4"),
        ("ampc", {}, SurvivorProof, RoundSpent, "I4"),
    ],
)
def test_a_machine_that_sends_before_its_decision_is_durable_is_caught(
    scheme: str, chosen: dict, kind: type, decision: type[Decision], name: str, missing: bool
) -> None:
    """The same events in the other order, or without the decision, from a machine that decides late or never."""
    assert _broken_by_late_decisions(Table.build(scheme, **chosen), kind, decision, missing) == name


@pytest.mark.parametrize("missing", [False, True], ids=["after", "never"])
def test_a_server_that_asks_for_shares_of_a_round_with_a_lost_peer_before_it_decides_is_caught(
    missing: bool,
) -> None:
    """It asks with another message there: the list counts, and the keys shared with the lost peer come first."""
    table = Table.build("ampc", 6)
    table.crash_before("p1", MaskedInput)
    assert _broken_by_late_decisions(table, SeedsComplete, RoundSpent, missing) == "I4"


def test_a_server_that_the_test_made_lie_is_not_held_to_its_own_decisions() -> None:
    """What made the holders release was the test's message, not the server's."""
    table = finished()
    table.trace.entries = [one for one in table.trace.entries if not _is_decision_of(one, SERVER)]
    assert violated(table) == "I4"
    table.liars.add(SERVER)
    check_invariants(table)


def _is_decision_of(entry: Entry, party: str) -> bool:
    return entry.party == party and isinstance(entry.event, DecisionMade)


def _broken_by_late_decisions(table: Table, kind: type, decision: type[Decision], missing: bool) -> str:
    for machine in table.machines.values():
        _decide_late(machine, kind, decision, missing)
    table.start()
    with pytest.raises(InvariantViolated) as caught:
        for _ in range(1000):
            if table.wire:
                table.deliver(table.wire[0])
            else:
                table.advance()
            check_invariants(table)
    return caught.value.name


def _decide_late(machine: object, kind: type, decision: type[Decision], missing: bool) -> None:
    """Let one decision come right after the message that must follow it, or never, where both are in one answer."""

    def late(events: list) -> list:
        decided = [e for e in events if isinstance(e, DecisionMade) and isinstance(e.decision, decision)]
        if decided and any(isinstance(e, Send) and isinstance(e.message, kind) for e in events):
            return [*(e for e in events if e not in decided), *([] if missing else decided)]
        return [_with_results(e, late) if isinstance(e, Job) else e for e in events]

    receive, handle_deadline = machine.receive, machine.handle_deadline
    machine.receive = lambda sender, message, now: late(receive(sender, message, now))
    machine.handle_deadline = lambda now: late(handle_deadline(now))


def _with_results(request: Job, change: Callable[[list], list]) -> Job:
    return replace(request, then=lambda result, now: change(request.then(result, now)))


def test_a_round_committed_again_violates_i6() -> None:
    table = finished()
    entry = next(one for one in table.trace.entries if isinstance(one.event, RoundCommitted))
    table.trace.entries.append(entry)
    assert violated(table) == "I6"


def test_a_wait_without_a_deadline_violates_i7(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table.build("plain")
    table.start()
    check_invariants(table)
    monkeypatch.setattr(table.server, "next_deadline", lambda: None)
    assert violated(table) == "I7"


def test_two_boxes_under_one_key_and_nonce_violate_i9(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares that are all boxed under one key arrive and open, and nobody else would notice."""
    monkeypatch.setattr(ShareKeeper, "_box_secret", lambda *_: Secret(bytes(32)))
    table = finished()
    assert [commit.round for _, commit in table.trace.commits]
    assert violated(table) == "I9"


CHAINED = ("masked", "mpc", "ampc")


def unbound(*forgotten: str) -> Callable[[Secret, KeyContext], Secret]:
    """A derivation of attempt keys that leaves a part of the context out; without the session it has one group key."""

    def derive(group_key: Secret, context: KeyContext) -> Secret:
        known = Secret(bytes(32)) if "session" in forgotten else group_key
        blank: dict[str, object] = {"session": bytes(32), "round": 0, "attempt": 0, "model_hash": bytes(32)}
        return attempt_key(known, replace(context, **{name: blank[name] for name in forgotten}))  # type: ignore[arg-type]  # the values belong to their names

    return derive


@pytest.mark.parametrize("scheme", CHAINED)
def test_every_tag_of_an_honest_run_is_seen_under_a_key_of_its_own(scheme: str) -> None:
    table = Table.build(scheme, 4, rounds=2)
    table.start()
    check_invariants(table.run())
    assert len(table.trace.tags) == 8


@pytest.mark.parametrize("scheme", CHAINED)
def test_keys_of_tags_that_forget_round_and_model_violate_i10(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sums verify and every round is committed: nobody else would notice."""
    monkeypatch.setattr(verification, "attempt_key", unbound("round", "model_hash"))
    table = Table.build(scheme, 4, rounds=2)
    table.start()
    table.run()
    assert {commit.round for _, commit in table.trace.commits} == {0, 1}
    assert violated(table) == "I10"


class NeverTheSame:
    """A learner that trains something else whenever it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        self.calls += 1
        return LocalResult(np.full(len(model), self.calls / 100, dtype=np.float32), 10)


@pytest.mark.parametrize("scheme", CHAINED)
@pytest.mark.parametrize("bound", [False, True])
def test_an_update_trained_anew_after_a_restart_violates_i10_unless_its_session_has_other_keys(
    scheme: str, bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two planted bugs: a party gives another update at one position, under keys that say nothing of the session."""
    monkeypatch.setattr(ParticipationRecord, "require_same_update", lambda *_: None)
    if not bound:
        monkeypatch.setattr(verification, "attempt_key", unbound("session", "attempt"))
    table = Table.build(scheme, 4, rounds=1, learner=NeverTheSame())
    table.start()
    while len(table.trace.tags) < 4:
        table.deliver(table.wire[0])
    table.wire.clear()
    for name in list(table.machines):
        table.crash(name)
        table.restart(name)
    table.run()
    if bound:
        assert len(table.trace.tags) == 8
        table.trace.tags.require_one_update_each()
    else:
        with pytest.raises(InvariantViolated, match="I10"):
            table.trace.tags.require_one_update_each()
