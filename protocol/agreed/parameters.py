"""What all parties of a federation must agree on, checked at construction with all problems reported together.

`config_hash` covers exactly these fields: they are the safety part of a configuration. How many rounds are
run, where the broker is and how long a phase may take are not in it; those may differ without anyone being
less safe.

Implements specs/federation-file.md, section 1.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from veilsum.protocol.agreed.threat import Threat, agreement_threshold, tolerated_colluders
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.graphs.policy import GraphKind, GraphPolicy
from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.protocol.numbers.model import LocalResult

COMPLETE_GRAPH = GraphPolicy(GraphKind.COMPLETE)


class Recovery(enum.Enum):
    """What happens when an upload is missing: rebuild from shares, or end the run (the papers' protocols)."""

    SHARES = "shares"
    NONE = "none"


class Bias(enum.Enum):
    """AMPC's second decomposition: each peer hides behind its own bias, or all behind the common sum."""

    OWN = "own"
    COMMON = "common"


class ShareMode(enum.Enum):
    """AMPC's first decomposition: a share travels as its seed, or as the vector itself."""

    SEEDED = "seeded"
    TENSOR = "tensor"


class Rekey(enum.Enum):
    """How often AMPC's sealed seeds are exchanged: once per session, or every round."""

    EPOCH = "epoch"
    ROUND = "round"


class Schedule(enum.Enum):
    """All participants train at once, or one after the other on the model the last one left."""

    FEDAVG = "fedavg"
    ROUND_ROBIN = "round-robin"


class Differencing(enum.Enum):
    """What a participant does when a cohort differs from an earlier one by too few parties."""

    WARN = "warn"
    REFUSE = "refuse"


class Weights(enum.Enum):
    """By what an update counts: its samples, the power of two at or below their number, or the same for all.

    A party's number hardly changes, so two sums whose cohorts differ by one party show that party's weight.
    """

    SAMPLES = "samples"
    BUCKETED = "bucketed"
    EQUAL = "equal"

    def of(self, samples: int) -> int:
        """The weight of so many samples; what is no number of samples is left for the encoder to refuse."""
        if self is Weights.SAMPLES or not isinstance(samples, (int, np.integer)) or samples < 1:
            return samples
        return 1 if self is Weights.EQUAL else 1 << (int(samples).bit_length() - 1)

    def weigh(self, result: LocalResult) -> LocalResult:
        return replace(result, samples=self.of(result.samples))


@dataclass(frozen=True)
class Parameters:
    """What all parties of a federation agree on: the organiser signs it, and every session hashes it."""

    scheme: str
    encoding: FixedPoint
    dimension: int
    colluders: int
    """How many participants may work with the server: a number of the whole roster, whoever is in a session."""

    min_parties: int
    """No party takes part in a smaller sum."""

    graph: GraphPolicy = COMPLETE_GRAPH
    threat: Threat = Threat.LYING
    threshold: int | None = None
    recovery: Recovery = Recovery.SHARES
    bias: Bias = Bias.OWN
    share_mode: ShareMode = ShareMode.SEEDED
    rekey: Rekey = Rekey.EPOCH
    schedule: Schedule = Schedule.FEDAVG
    payload: str = "model"
    weights: Weights = Weights.SAMPLES
    differencing: Differencing = Differencing.WARN
    max_attempts: int = 3
    step: str = ""
    """The step on the mean in canonical form (`ModelStep.describe`) where participants can take it, else empty."""
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        problems = list(self._problems())
        if problems:
            raise ParameterError(problems)

    @property
    def vector_length(self) -> int:
        """How many words an upload has: the model's values and what is added to them."""
        return self.encoding.vector_length(self.dimension)

    @property
    def config_hash(self) -> bytes:
        """SHA-256 over a canonical description of every field."""
        return hashlib.sha256(length_prefixed(domain_tag("config"), self.describe().encode())).digest()

    def describe(self) -> str:
        """Canonical text: the JSON of all fields, keys sorted."""
        encoding = self.encoding
        fields = {
            "scheme": self.scheme,
            "bits": encoding.ring.bits,
            "fractional_bits": encoding.fractional_bits,
            "clip": float(encoding.clip).hex(),
            "max_parties": encoding.max_parties,
            "max_weight": encoding.max_weight,
            "dimension": self.dimension,
            "colluders": self.colluders,
            "min_parties": self.min_parties,
            "graph": self.graph.describe(),
            "threat": self.threat.value,
            "threshold": self.threshold,
            "recovery": self.recovery.value,
            "bias": self.bias.value,
            "share_mode": self.share_mode.value,
            "rekey": self.rekey.value,
            "schedule": self.schedule.value,
            "payload": self.payload,
            "weights": self.weights.value,
            "differencing": self.differencing.value,
            "max_attempts": self.max_attempts,
            "step": self.step,
            "options": dict(self.options),
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @property
    def lists_neighbourhoods(self) -> bool:
        """Whether clients are told about their neighbours only.

        A server that follows the protocol need not prove the rest of a list to anyone, and on a k-regular
        graph the lists are what would make the cost of a round grow with the square of the parties.
        """
        return self.threat is Threat.SEMI_HONEST and self.graph.kind is GraphKind.K_REGULAR

    def threshold_of(self, voters: int) -> int:
        """How many of `voters`, all members of something that the server may have chosen, must agree."""
        return agreement_threshold(voters, self.colluders)

    def holders_threshold(self, holders: int, members: int) -> int:
        """How many of the holders of a party's shares rebuild its secret or make a survivor list count.

        Where all members are holders, all colluders may be among them. In a neighbourhood of a thin graph there
        are as many as the federation's own threshold was sized for, or else as many as in a federation of its size.
        """
        if not self._is_neighbourhood(holders, members):
            return self.threshold_of(holders)
        if self.threshold is not None and self.counts_neighbours(holders, members):
            return self.threshold
        return agreement_threshold(holders, tolerated_colluders(holders, self.threat))

    def counts_neighbours(self, holders: int, members: int) -> bool:
        """Whether the federation's own threshold is meant: it counts the k neighbours of a party, not itself."""
        neighbours = self._is_neighbourhood(holders, members)
        return neighbours and self.threshold is not None and holders == self.graph.k + 1

    def _is_neighbourhood(self, holders: int, members: int) -> bool:
        """Whether the holders are some of the members; who is told about neighbours alone knows no other members."""
        return holders != members or (self.lists_neighbourhoods and holders == self.graph.k + 1)

    def _threshold_problems(self) -> Iterator[str]:
        threshold, k = self.threshold, self.graph.k
        if threshold is None:
            return
        if self.graph.kind is not GraphKind.K_REGULAR:
            yield "a threshold of its own is for k-regular graphs; elsewhere it follows from the threat"
        elif not 2 <= threshold <= k:
            yield f"threshold must be from 2 to {k}, the number of neighbours, not {threshold}"
        elif self.threat is Threat.LYING and 2 * threshold <= k:
            yield (
                f"threshold {threshold} of {k} neighbours lets a lying server get two survivor lists signed: "
                f"use at least {k // 2 + 1}, more if neighbours may lie too"
            )

    def _weight_problems(self) -> Iterator[str]:
        if self.weights is Weights.EQUAL and self.encoding.max_weight != 1:
            yield f"weights 'equal' are all 1: plan the numbers for a max weight of 1, not {self.encoding.max_weight}"
        if self.weights is Weights.SAMPLES and self.differencing is Differencing.REFUSE:
            yield (
                "differencing 'refuse' does not hide sample counts, which show where cohorts differ by one party: "
                "use weights 'bucketed' or 'equal'"
            )

    def _problems(self) -> Iterator[str]:
        if self.dimension < 1:
            yield f"dimension must be at least 1, not {self.dimension}"
        if self.colluders < 0:
            yield f"colluders must be at least 0, not {self.colluders}"
        if self.min_parties < 1:
            yield f"min_parties must be at least 1, not {self.min_parties}"
        if self.min_parties > self.encoding.max_parties:
            yield (
                f"min_parties {self.min_parties} is more than the {self.encoding.max_parties} parties there are: "
                "add parties; a smaller sum would hide each update among too few"
            )
        yield from self._threshold_problems()
        if self.bias is Bias.COMMON and self.recovery is not Recovery.NONE:
            yield "bias 'common' does not survive a missing upload: use recovery 'none' or bias 'own'"
        yield from self._weight_problems()
        if self.max_attempts < 1:
            yield f"max_attempts must be at least 1, not {self.max_attempts}"


@dataclass(frozen=True)
class Timing:
    """How long each wait may last, in seconds. Local: parties may differ."""

    opening_s: float = 30.0
    phase_s: float = 30.0
    training_s: float = 600.0
    patience_s: float = 900.0

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a positive number of seconds, not {value}"
            for name, value in vars(self).items()
            if not 0 < value < math.inf
        ]
        if self.patience_s < self.training_s + self.phase_s:
            problems.append(
                "patience_s must be at least training_s + phase_s, or participants leave too early"
            )
        if problems:
            raise ParameterError(problems)
