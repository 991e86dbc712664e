"""What the invariants of the testing kit notice: each is shown a run that breaks it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from veilsum.protocol.machines.events import (
    DecisionMade,
    RoundCommitted,
    Send,
    WorkRequested,
)
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.simulations.testing import (
    InvariantViolated,
    Table,
    check_invariants,
)
from veilsum.simulations.testing.trace import KeyUse


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
    flight = next(one for one in table.trace.sent if isinstance(one.message, ReleasedShares))
    message = flight.message
    stamp = replace(message.stamp, round=7) if other_round else message.stamp
    decided = next(
        one
        for one in table.trace.entries
        if one.party == flight.sender
        and isinstance(one.event, DecisionMade)
        and "spent_round" in one.event.record
    )
    again = DecisionMade({**decided.event.record, "spent_round": stamp.round})
    table.trace.entries.append(replace(decided, event=again))
    swapped = ReleasedShares(stamp, {}, message.self_masks)
    table.trace.sent.append(replace(flight, message=swapped))
    if other_round:
        check_invariants(table)
    else:
        assert violated(table) == "I4"


def test_shares_in_two_attempts_of_a_round_violate_i4_unless_for_one_list() -> None:
    table = finished()
    flight = next(one for one in table.trace.sent if isinstance(one.message, ReleasedShares))
    stamp = flight.message.stamp
    again = replace(flight.message, stamp=replace(stamp, attempt=1))
    table.trace.sent.append(replace(flight, message=again))
    assert violated(table) == "I4"
    listed = next(
        one
        for one in table.trace.sent
        if isinstance(one.message, SurvivorList)
        and (one.receiver, one.message.stamp) == (flight.sender, stamp)
    )
    table.trace.sent.append(replace(listed, message=replace(listed.message, stamp=again.stamp)))
    check_invariants(table)


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


@pytest.mark.parametrize(
    ("scheme", "kind", "decision", "name"),
    [
        ("masked", ReleasedShares, "spent_round", "I4"),
        ("masked", MaskedInput, "given_round", "I5"),
        ("ampc", MaskedInput, "given_round", "I5"),
        ("bilateral", MaskedInput, "given_round", "I5"),
    ],
)
def test_a_machine_that_sends_before_its_decision_is_durable_is_caught(
    scheme: str, kind: type, decision: str, name: str
) -> None:
    """The same events in the other order, from a machine that swaps them."""
    table = Table.build(scheme, inline=True)
    for machine in table.machines.values():
        _swap_decisions_and_sends(machine, kind, decision)
    table.start()
    with pytest.raises(InvariantViolated) as caught:
        for _ in range(1000):
            table.deliver(table.wire[0])
            check_invariants(table)
    assert caught.value.name == name


def _swap_decisions_and_sends(machine: object, kind: type, decision: str) -> None:
    """Let one decision come right after the message that must follow it, wherever both are in one answer."""

    def swapped(events: list) -> list:
        decided = [e for e in events if isinstance(e, DecisionMade) and decision in e.record]
        if decided and any(isinstance(e, Send) and isinstance(e.message, kind) for e in events):
            return [*(e for e in events if e not in decided), *decided]
        return [_with_results(e, swapped) if isinstance(e, WorkRequested) else e for e in events]

    receive = machine.receive
    machine.receive = lambda sender, message, now: swapped(receive(sender, message, now))


def _with_results(request: WorkRequested, change: Callable[[list], list]) -> WorkRequested:
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
