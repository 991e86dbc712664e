"""What parties of a simulated run did not accept, told so that one sees who refused what, and why; each reason once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from veilsum.protocol.errors import ProtocolError
from veilsum.protocol.machines.events import RunFailed
from veilsum.protocol.wire.messages import kind_of
from veilsum.simulations.run.simulation import RefusedDelivery

MOST_SHOWN = 5


@dataclass(frozen=True)
class Refused:
    """Messages that a party refused of another for one reason; both names are empty where bytes did not decode."""

    party: str
    sender: str
    kind: str
    why: str


def told_refusals(refusals: Iterable[RefusedDelivery]) -> list[dict[str, Any]]:
    """All of them, the most frequent first."""
    return [{**asdict(one), "count": count} for one, count in _counted(refusals)]


def shown_refusals(refusals: Iterable[RefusedDelivery]) -> Iterator[str]:
    """The most frequent, for people."""
    found = _counted(refusals)
    for one, count in found[:MOST_SHOWN]:
        sender = f" of {one.sender}" if one.sender else ""
        yield f"{one.party} refused {one.kind or 'bytes'}{sender}: {one.why}" + (
            f" ({count} x)" if count > 1 else ""
        )
    if len(found) > MOST_SHOWN:
        yield f"and {len(found) - MOST_SHOWN} other kinds of refusals (--json has all)"


def in_words(failed: RunFailed) -> str:
    """Why a run failed, over whom, and what exactly happened."""
    who = f" ({failed.culprit})" if failed.culprit else ""
    return f"{failed.reason.value}{who}" + (f": {failed.detail}" if failed.detail else "")


def _counted(refusals: Iterable[RefusedDelivery]) -> list[tuple[Refused, int]]:
    return Counter(_told(one) for one in refusals).most_common()


def _told(one: RefusedDelivery) -> Refused:
    kind = kind_of(type(one.message)) if one.message is not None else ""
    return Refused(one.party, getattr(one.error, "culprit", ""), kind, _why(one.error))


def _why(error: ProtocolError) -> str:
    """The reason and its details, without the culprit that stands beside them."""
    reason, detail = getattr(error, "reason", None), getattr(error, "detail", "")
    if reason is None:
        return str(error)
    return f"{reason.value}: {detail}" if detail else str(reason.value)
