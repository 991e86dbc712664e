"""How a party is doing, signed: what `veilsum status` shows.

A status is a small JSON text with the signature of the party's identity key over its exact bytes. It carries what
the broker sees anyway (who, when, how much) and where the party stands; never a hash, a training loss or a sample
count, and metrics of the common model only where the organiser signed `tell_metric` (specs/page.md, section 1). The
number grows, so that an old status played back is recognised. Statuses are shown to people; the one thing that they
decide is when a server begins, which waits until enough parties have told one (roles/process/waiting/quorum.py).

Implements specs/keys.md, section 11.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.phases import ParticipantPhase

STATUS_DOMAIN = "status"
EVERY_S = 1.0
EARLY_S = 0.2
EARLY_STATUSES = 50
"""How often, and how many times at most, a party that has found no server yet says that it is here."""
MOST_LATE = 64
"""So many late parties are named: a status stays small in a federation of thousands."""
_LONGEST = 64 * 1024
_LONGEST_WORD = 64
_MOST_METRICS = 16
_LARGEST_NUMBER = 2**53 - 1
"""What every reader of JSON keeps exact, and a table can divide."""
_WRITTEN: dict[str, type] = {"int": int, "str": str, "Mapping[str, float]": dict}
_OPTIONAL = {"measured", "metrics"}
"""What statuses of an earlier version do not have."""


def tellable(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics that fit a status: the first, under names that are not too long."""
    short = {name: float(value) for name, value in metrics.items() if len(name) <= _LONGEST_WORD}
    return dict(list(short.items())[:_MOST_METRICS])


def pause_after(number: int, phase: str) -> float:
    """Seconds to the next status: fewer where a server that comes later is to hear soon that we are here."""
    early = number <= EARLY_STATUSES and phase == ParticipantPhase.KNOCKING.value
    return EARLY_S if early else EVERY_S


@dataclass(frozen=True)
class Status:
    """`life` and `number` order the statuses of one party; `late` are those who have not acknowledged us.

    A life is told by the milliseconds of its start by the party's own clock: a lost disk does not put them back.
    """

    party: str
    role: str
    life: int
    number: int
    round: int
    rounds: int
    attempt: int
    phase: str
    sent_bytes: int
    received_bytes: int
    refused: int
    late: tuple[str, ...] = ()
    measured: int = 0
    """How many rounds are behind the model that `metrics` are of."""
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int]:
        return self.life, self.number


def sign_status(me: Identity, federation_id: str, status: Status) -> bytes:
    text = json.dumps(asdict(status), sort_keys=True, separators=(",", ":"))
    signature = me.signing.sign(STATUS_DOMAIN, _digest(federation_id, text))
    return json.dumps({"status": text, "signature": base64.b64encode(signature).decode("ascii")}).encode()


def open_status(roster: Roster, federation_id: str, data: bytes) -> Status:
    """The status, if the party that it names is in the roster and signed it."""
    try:
        if len(data) > _LONGEST:
            raise ValueError("too long")
        outer = json.loads(data)
        text, signature = outer["status"], base64.b64decode(outer["signature"], validate=True)
        status, digest = _parse(json.loads(text)), _digest(federation_id, text)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Rejection(AbortReason.BAD_ENCODING, "this is no status") from None
    roster.verify(PartyId(status.party), STATUS_DOMAIN, digest, signature)
    return status


def _parse(values: dict[str, Any]) -> Status:
    types = {one.name: str(one.type) for one in fields(Status)}
    if not set(types) - _OPTIONAL <= set(values) <= set(types):
        raise ValueError("other fields")
    for name, value in values.items():
        if not isinstance(value, _WRITTEN.get(types[name], list)) or isinstance(value, bool):
            raise TypeError(name)
        if isinstance(value, int) and not 0 <= value <= _LARGEST_NUMBER:
            raise ValueError(name)
    if not all(isinstance(name, str) for name in values["late"]):
        raise TypeError("late")
    if not all(_is_metric(value) for value in values.get("metrics", {}).values()):
        raise TypeError("metrics")
    if len(values["late"]) > MOST_LATE or len(values.get("metrics", {})) > _MOST_METRICS:
        raise ValueError("too much")
    if any(len(text) > _LONGEST_WORD for text in _words(values)):
        raise ValueError("too long")
    return Status(**{**values, "late": tuple(values["late"])})


def _is_metric(value: object) -> bool:
    return type(value) is float and math.isfinite(value)


def _words(values: dict[str, Any]) -> Iterator[str]:
    yield from (value for value in values.values() if isinstance(value, str))
    yield from values["late"]
    yield from values.get("metrics", ())


def _digest(federation_id: str, text: str) -> bytes:
    return hashlib.sha256(
        length_prefixed(domain_tag(STATUS_DOMAIN), federation_id.encode(), text.encode())
    ).digest()
