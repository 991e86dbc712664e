"""Who holds up a session's set-up, by what its members report: the server's side, without phases.

A peer that lacks something says of whom. That is a dispute between the two, unless the other has an excuse: who is
behind cannot say what it holds, and who was given another common secret than the rest can neither read their statements
nor be read. In the second case the dispute is with the owner of that secret. A peer that says nothing at all, or is
behind and lacks nothing, is slow, or pretends to be: it is left out and called nothing worse. What did not come may
have been lost on the way; another common secret than others have, and another state than the certified one, in a
statement that was read, are false.

Implements specs/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from veilsum.protocol.chain.state import OTHER_MODEL
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Dispute, Failed
from veilsum.protocol.schemes.ampc.messages import SetupReport

Reports = Mapping[PartyId, SetupReport]


def who_stalls(members: tuple[PartyId, ...], reports: Reports) -> Failed:
    """Why a set-up is not complete after all the time it had."""
    secrets = frozenset(_secret_disputes(reports))
    disputed = secrets.union(_disputes(reports))
    slow = tuple(name for name in members if name not in reports or _is_slow(reports[name]))
    if not slow and not disputed:
        slow = tuple(name for name in members if reports[name].behind)
    accusations = [f"{accuser} lacks what {accused} owes it" for accuser, accused in sorted(disputed)]
    said = [*([f"not ready: {', '.join(slow[:10])}"] if slow else []), *accusations[:10]]
    detail = f"the set-up of the session is incomplete; {'; '.join(said)}"
    others = {pair for pair in disputed if _read_another_state(reports, pair)}
    falsified = dict.fromkeys(others, AbortReason.WRONG_MODEL)
    falsified |= dict.fromkeys(secrets, AbortReason.EQUIVOCATION)
    reason, culprit = AbortReason.TIMED_OUT, ""
    if others:
        reason, (culprit, told) = AbortReason.WRONG_MODEL, _who_differs(others)
        detail = f"{told}; {detail}"
    return Failed(reason, culprit, detail, slow, left_out=slow, disputed=disputed, falsified=falsified)


def _who_differs(others: Set[Dispute]) -> tuple[PartyId, str]:
    """Whom the most say to hold another model than they do; nobody, where two halves say it of each other."""
    accusers: dict[PartyId, list[PartyId]] = {}
    for accuser, accused in sorted(others):
        accusers.setdefault(accused, []).append(accuser)
    most = max(len(names) for names in accusers.values())
    odd = [name for name, names in accusers.items() if len(names) == most]
    told = f"{', '.join(odd[:10])} {'holds' if len(odd) == 1 else 'hold'} another model than "
    told += ", ".join(sorted({name for one in odd for name in accusers[one]})[:10])
    return (odd[0] if len(odd) == 1 else PartyId("")), f"{told}; {OTHER_MODEL}"


def _is_slow(report: SetupReport) -> bool:
    return report.behind and not report.lacking and not report.waiting


def _read_another_state(reports: Reports, pair: Dispute) -> bool:
    """Whether the first has the secret of the second and still finds it lacking: what it read was another state."""
    report, other = reports[pair[0]], pair[1]
    return other in report.lacking and other in report.secrets


def _disputes(reports: Reports) -> Iterator[Dispute]:
    for name, report in reports.items():
        for other in report.lacking:
            if other in reports:
                yield name, other
        for other in report.waiting:
            answer = reports.get(other)
            if answer is not None and not answer.behind and not _differ(report, answer):
                yield name, other


def _differ(one: SetupReport, other: SetupReport) -> bool:
    """Whether the two were given different secrets by the same owner."""
    shared = one.secrets.keys() & other.secrets.keys()
    return any(one.secrets[owner] != other.secrets[owner] for owner in shared)


def _secret_disputes(reports: Reports) -> Iterator[Dispute]:
    """Those who were given another common secret than most were, with its owner."""
    for owner in reports:
        versions: dict[bytes, list[PartyId]] = {}
        for name, report in reports.items():
            if owner in report.secrets:
                versions.setdefault(report.secrets[owner], []).append(name)
        if len(versions) < 2:
            continue
        most = max(versions.values(), key=lambda names: (len(names), owner in names))
        for names in versions.values():
            if names is not most:
                yield from ((name, owner) for name in (most if owner in names else names) if name != owner)
