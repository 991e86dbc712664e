"""The invariants that hold after every step of every run, whatever is delivered, lost or forged.

    I1  the opened ring sum is the integer sum over the agreed set, bit for bit
    I2  marker slots are 0 or the party's own mark, and mark exactly the agreed set
    I3  all who finish a round report the same set and the same model
    I4  a holder releases one kind of share of one party, and for one survivor list in a round; nobody rebuilds both
    I5  a mask key is used in one attempt only, once by each job, and an attempt has one upload of each party
    I6  committed rounds never regress
    I7  every wait has a deadline that lies ahead, and whoever ends says how
    I9  no key seals two boxes under one nonce
    I10  no tag key covers two updates

What a party did that the test itself made lie is not held against it; what its lies made others do is.
A liar's own vector cannot be told from an honest one where it travels in the clear: there the sum of a set
with a liar in it is left out of I1 and I2.

Implements specs/testing.md, section 2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from operator import attrgetter

import numpy as np

from veilsum.protocol.identifiers import SERVER, PartyId, shown_attempt, shown_number
from veilsum.protocol.machines.events import RoundCommitted
from veilsum.protocol.secure_sum.shares import ReleasedShares, ShareKind
from veilsum.simulations.run.invariants import InvariantMonitor, InvariantViolated
from veilsum.simulations.testing.federation import MarkedLearner
from veilsum.simulations.testing.reference import Reference
from veilsum.simulations.testing.table import FINISHING, Table
from veilsum.simulations.testing.trace import Entry, InFlight

_FLOAT32_ROUNDING = 2.0**-23


def check_invariants(table: Table) -> None:
    """Raise `InvariantViolated` at the first invariant that does not hold."""
    for violation in _violations(table):
        raise violation


def _violations(table: Table) -> Iterator[InvariantViolated]:
    reference = Reference(table.federation.parameters, table.inputs)
    for party, commit in table.trace.commits:
        if commit.total is not None or commit.model is not None:
            yield from _sum_violations(table, reference, party, commit)
    yield from _watched_violations(table)
    yield from _share_violations(table)
    yield from _key_violations(table)
    yield from _waiting_violations(table)
    yield from _recorded_violations(table)


def _watched_violations(table: Table) -> Iterator[InvariantViolated]:
    """I3 to I6 as every simulation is watched for them, over all that the machines said and sent, in its order."""
    monitor = InvariantMonitor(server_lies=SERVER in table.liars)
    try:
        happened: list[Entry | InFlight] = [*table.trace.entries, *table.trace.sent]
        for one in sorted(happened, key=attrgetter("number")):
            if isinstance(one, Entry):
                monitor.noted(one.time, one.party, one.event)
            else:
                monitor.sent(0.0, one.sender, one.receiver, one.message, 0)
    except InvariantViolated as violation:
        yield violation


def _sum_violations(
    table: Table, reference: Reference, party: PartyId, commit: RoundCommitted
) -> Iterator[InvariantViolated]:
    if table.liars & set(commit.members) and not table.federation.scheme.exact:
        return
    where = f"round {shown_number(commit.round)} at {party} over {', '.join(commit.members)}"
    untrained = [name for name in commit.members if (name, commit.round) not in table.inputs]
    if untrained:
        yield InvariantViolated("I1", f"{where}: {untrained[0]} never trained")
        return
    if commit.total is not None:
        found = [int(word) for word in commit.total]
        yield from _marker_violations(table, reference, commit, found, where)
        if found != reference.total(commit.members, commit.round):
            yield InvariantViolated("I1", f"{where}: the ring sum is not the sum of the inputs")
    if commit.model is not None:
        uploaded = np.array(reference.mean(commit.members, commit.round))
        expected = uploaded[: len(commit.model)]
        encoding, count = table.federation.parameters.encoding, len(commit.members)
        samples = sum(table.inputs[name, commit.round].samples for name in commit.members) / count
        bound = encoding.worst_case_error(samples, count) + np.abs(expected) * _FLOAT32_ROUNDING
        if not (np.abs(commit.model - expected) <= bound).all():
            yield InvariantViolated("I1", f"{where}: the model is not the mean of the inputs")


def _marker_violations(
    table: Table, reference: Reference, commit: RoundCommitted, found: list[int], where: str
) -> Iterator[InvariantViolated]:
    if not isinstance(table.federation.learner, MarkedLearner):
        return
    for slot, name in enumerate(table.participants):
        own = reference.words(name, commit.round)[slot] if name in commit.members else 0
        if found[slot] != own:
            expected = "in" if name in commit.members else "not in"
            yield InvariantViolated("I2", f"{where}: {name} is {expected} the set, its slot says otherwise")


def _share_violations(table: Table) -> Iterator[InvariantViolated]:
    holders: dict[tuple[bytes, int, int, PartyId, ShareKind], set[PartyId]] = defaultdict(set)
    for flight in table.trace.sent:
        if not isinstance(flight.message, ReleasedShares):
            continue
        message, stamp = flight.message, flight.message.stamp
        for kind, shares in (
            (ShareKind.SELF_MASK, message.self_masks),
            (ShareKind.MASKING_KEY, message.masking_keys),
        ):
            for target in shares:
                holders[stamp.session, stamp.round, stamp.attempt, target, kind].add(flight.sender)
    yield from _rebuilt_violations(table, holders)


def _rebuilt_violations(
    table: Table, holders: dict[tuple[bytes, int, int, PartyId, ShareKind], set[PartyId]]
) -> Iterator[InvariantViolated]:
    """Some holders gave one kind, others the other: as long as one kind stays below its threshold, nothing opens."""
    threshold = table.federation.parameters.threshold_of(len(table.participants))
    for (session, round_number, attempt, target, kind), who in list(holders.items()):
        others = holders.get((session, round_number, attempt, target, ShareKind.MASKING_KEY), set())
        if kind is ShareKind.SELF_MASK and min(len(who), len(others)) >= threshold:
            yield InvariantViolated(
                "I4",
                f"both secrets of {target} can be rebuilt in {shown_attempt(round_number, attempt)}",
            )


def _key_violations(table: Table) -> Iterator[InvariantViolated]:
    attempts: dict[bytes, tuple[bytes, int, int]] = {}
    jobs: set[tuple[int, bytes]] = set()
    for use in table.trace.key_uses:
        attempt = (use.stamp.session, use.stamp.round, use.stamp.attempt)
        if attempts.setdefault(use.key, attempt) != attempt:
            yield InvariantViolated("I5", f"{use.party} uses a mask key of another attempt in {attempt[1:]}")
        if (use.job, use.key) in jobs:
            yield InvariantViolated("I5", f"{use.party} uses one mask key twice in one vector")
        jobs.add((use.job, use.key))


def _recorded_violations(table: Table) -> Iterator[InvariantViolated]:
    for require in (table.trace.seals.require_once, table.trace.tags.require_one_update_each):
        try:
            require()
        except InvariantViolated as violation:
            yield violation


def _waiting_violations(table: Table) -> Iterator[InvariantViolated]:
    busy = {job.party for job in table.jobs}
    timing = table.federation.rules.timing
    longest = max(timing.patience_s, timing.training_s + timing.phase_s, 2 * timing.phase_s)
    for name in table.present:
        machine = table.machines[name]
        deadline = machine.next_deadline()
        if machine.phase in FINISHING:
            if deadline is not None or name not in table.trace.endings:
                yield InvariantViolated("I7", f"{name} ended without a word, or still waits for something")
        elif deadline is None and name not in busy:
            yield InvariantViolated("I7", f"{name} is {machine.phase.value} without a deadline")
        elif deadline is not None and not table.now <= deadline <= table.now + longest:
            yield InvariantViolated("I7", f"{name} waits until {deadline:g} s, now is {table.now:g} s")
