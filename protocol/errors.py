"""Who erred, and how.

Every failure of a protocol is one of three kinds, and the kind tells the caller what to do:

* `LocalProtocolError`: our own caller asked for something impossible; fix the call.
* `Rejection`: a value failed a check, at a depth where its sender is not known yet.
* `RemoteProtocolError`: a named party sent something it must not send; drop it and, by policy, the party.

A `Rejection` becomes a `RemoteProtocolError` with `blamed_on`, in the first place that knows the sender.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import ClassVar


class AbortReason(enum.Enum):
    """Why a message was refused or a round ended without a result; the value is the text shown to people."""

    BAD_ENCODING = "message does not decode"
    BAD_SIGNATURE = "signature does not verify"
    BAD_SEAL = "sealed box does not open"
    BAD_KEY = "public key is not acceptable"
    BAD_SHARE = "share is missing, or not what its dealer signed"
    BAD_VECTOR = "vector has the wrong length or type"
    CHECK_FAILED = "opened sum is not one that honest parties can have"
    SUM_FALSIFIED = "sum is not what its parties tagged"
    OVER_BUDGET = "value does not fit the fixed-point budget"
    UNEXPECTED_MESSAGE = "message does not belong to this phase"
    UNKNOWN_PARTY = "party is not in the roster"
    WRONG_SESSION = "message belongs to another session"
    WRONG_ROUND = "message belongs to another round or attempt"
    WRONG_RECEIVER = "message is addressed to another party"
    WRONG_SENDER = "message is carried by another than its sender"
    WRONG_VERSION = "protocol versions differ"
    WRONG_CONFIG = "configurations differ"
    WRONG_ROSTER = "rosters differ"
    WRONG_MODEL = "models differ"
    EQUIVOCATION = "one sequence number carries two different messages"
    REPLAY = "message was seen before"
    COHORT_TOO_SMALL = "fewer parties than the agreed minimum"
    GRAPH_TOO_THIN = "communication graph is too thin"
    SURVIVOR_LIST = "survivor list is not acceptable"
    BOTH_SHARE_KINDS = "both share kinds were asked for one party"
    DIFFERENCING = "cohort differs from an earlier one by too few parties"
    MISSING_UPLOAD = "an upload is missing and recovery is off"
    PRECISION_LOST = "recovery would return rounding noise"
    AGGREGATES_DIFFER = "parties hold different aggregates"
    BAD_CERTIFICATE = "certificate does not count"
    NO_QUORUM = "too few of those who vote are present"
    POSITION_LOST = "a position has two sums and needs a checkpoint"
    SERVER_BEHIND = "server has fewer rounds done than its parties"
    TIMED_OUT = "deadline passed"
    WITHDRAWN = "party withdrew"
    LINK_LOST = "a party lost its connection"


class ProtocolError(Exception):
    """Base of everything the protocol raises on purpose."""


class LocalProtocolError(ProtocolError):
    """Our own caller asked for something the protocol does not allow.

    `told` is what the server hears when a party withdraws because of it: the remedy, and no value of the party's.
    """

    told: ClassVar[str] = ""


class ParameterError(LocalProtocolError):
    """A configuration cannot work; all problems are reported together."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class EncodingError(LocalProtocolError):
    """A value of ours cannot be encoded: not finite, beyond the clip, or of the wrong type or shape."""

    told = "a value of its update is not finite or beyond the agreed range; lower the learning rate, or raise clip"


class WeightNotAgreed(EncodingError):
    """A party's sample count is not within the agreed range; which one it is stays with the party."""

    told = (
        "its sample count is not within 1 and max_weight, on which all agreed: raise max_weight in federation.toml for "
        "everyone (veilsum roster sign), or leave it out"
    )


class Rejection(ProtocolError):
    """A value failed verification; the sender is known only further up."""

    def __init__(self, reason: AbortReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)

    def blamed_on(self, culprit: str) -> RemoteProtocolError:
        """The same refusal, with the party whose fault it is."""
        return RemoteProtocolError(culprit, self.reason, self.detail)


class RemoteProtocolError(ProtocolError):
    """A named party broke the rules."""

    def __init__(self, culprit: str, reason: AbortReason, detail: str = "") -> None:
        self.culprit = culprit
        self.reason = reason
        self.detail = detail
        super().__init__(f"{culprit}: {reason.value}" + (f": {detail}" if detail else ""))
