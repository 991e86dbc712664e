"""One secure sum on one screen: what every party holds, what the server received, what came out.

Parties agree on pairwise keys (X25519), encode their weighted vectors in Z_2^64 and add the mask streams,
each with the opposite sign of the other side. The server adds what it received: the masks cancel bit for
bit, and the weighted mean of all is the only thing that can be read. This is the arithmetic alone, with all
parties honest and in one process; nothing is authenticated and nobody vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreement import AgreementKey
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.fixedpoint import FixedPoint, plan
from veilsum.protocol.kdf import KeyContext, Purpose, derive_key
from veilsum.protocol.ring import RingVector, add_into
from veilsum.protocol.secret import Secret
from veilsum.protocol.stream import apply_masks
from veilsum.roles.entropy import SeededEntropy
from veilsum.roles.output import Table

MAX_SAMPLES = 1000
CLIP = 8.0
BITS = 64


@dataclass(frozen=True)
class Party:
    name: str
    values: NDArray[np.float32]
    samples: int
    key: AgreementKey


@dataclass(frozen=True)
class SecureMean:
    parties: tuple[Party, ...]
    uploads: tuple[RingVector, ...]
    mean: NDArray[np.float64]
    plain_mean: NDArray[np.float64]
    error_bound: float

    @property
    def max_abs_error(self) -> float:
        return float(np.abs(self.mean - self.plain_mean).max())

    @property
    def largest_correlation(self) -> float:
        """Between a party's vector and its upload as the server reads it; chance is about 1/sqrt(d)."""
        return max(
            abs(float(np.corrcoef(party.values, upload[: len(party.values)].astype(np.float64))[0, 1]))
            for party, upload in zip(self.parties, self.uploads, strict=True)
        )

    def figures(self) -> dict[str, Any]:
        return {
            "parties": len(self.parties),
            "dimension": len(self.mean),
            "max_abs_error": self.max_abs_error,
            "error_bound": self.error_bound,
            "largest_correlation": self.largest_correlation,
        }

    def describe(self) -> str:
        rows = [
            (party.name, str(party.samples), _reals(party.values), _words(upload))
            for party, upload in zip(self.parties, self.uploads, strict=True)
        ]
        title = f"A secure weighted mean of {len(self.parties)} vectors of {len(self.mean)} numbers"
        columns = ("party", "samples", "what it holds (first 3)", "what the server received (first 2)")
        chance = 1 / np.sqrt(len(self.mean))
        return "\n".join(
            [
                Table(title, columns, rows).render(),
                f"server: uniform words from each party (correlation with its vector at most"
                f" {self.largest_correlation:.4f}, chance is {chance:.4f}); their sum; the mean",
                "party:  its own vector and the mean; no vector and no sample count of another party",
                "",
                f"secure mean  {_reals(self.mean)}",
                f"plain mean   {_reals(self.plain_mean)}",
                f"largest difference {self.max_abs_error:.1e} (bound {self.error_bound:.1e})",
                "",
            ]
        )


def secure_mean(party_count: int, dimension: int, seed: int) -> SecureMean:
    """All of it, from one seed: the vectors, the keys, the uploads, the sum and the plain mean beside it."""
    _require_demo_size(party_count, dimension, seed)
    encoding = plan(party_count, MAX_SAMPLES, CLIP, BITS).encoding
    entropy = SeededEntropy(seed)
    parties = _gather(party_count, dimension, seed, entropy)
    session = entropy(32)
    uploads = tuple(_masked_upload(party, parties, encoding, session) for party in parties)
    total = encoding.ring.zeros(encoding.vector_length(dimension))
    for upload in uploads:
        add_into(total, upload)
    mean, _ = encoding.decode_mean(total, party_count)
    plain = np.average(
        [p.values.astype(np.float64) for p in parties], axis=0, weights=[p.samples for p in parties]
    )
    samples = sum(party.samples for party in parties)
    return SecureMean(
        parties, uploads, mean, plain, encoding.worst_case_error(samples / party_count, party_count)
    )


def _gather(party_count: int, dimension: int, seed: int, entropy: SeededEntropy) -> tuple[Party, ...]:
    draw = np.random.default_rng(seed)
    return tuple(
        Party(
            name=f"p{i}",
            values=np.clip(draw.standard_normal(dimension, dtype=np.float32), -CLIP, CLIP),
            samples=int(draw.integers(1, MAX_SAMPLES + 1)),
            key=AgreementKey.generate(entropy.for_party(f"p{i}")),
        )
        for i in range(1, party_count + 1)
    )


def _masked_upload(
    party: Party, parties: tuple[Party, ...], encoding: FixedPoint, session: bytes
) -> RingVector:
    upload = encoding.encode(party.values, party.samples)
    position = parties.index(party)
    apply_masks(
        encoding.ring,
        upload,
        add=[_pair_key(party, other, session) for other in parties[:position]],
        subtract=[_pair_key(party, other, session) for other in parties[position + 1 :]],
    )
    return upload


def _pair_key(party: Party, other: Party, session: bytes) -> Secret:
    first, second = sorted((party.name, other.name))
    context = KeyContext(session, round=0, attempt=0, sender=first, receiver=second)
    return derive_key(party.key.agree(other.key.public), Purpose.PAIR_MASK, context)


def _require_demo_size(party_count: int, dimension: int, seed: int) -> None:
    problems = []
    if not 3 <= party_count <= 100:
        problems.append(f"the demo takes 3 to 100 parties, not {party_count}")
    if not 3 <= dimension <= 10_000_000:
        problems.append(f"the demo takes 3 to 10000000 dimensions, not {dimension}")
    if seed < 0:
        problems.append(f"the seed is at least 0, not {seed}")
    if problems:
        raise ParameterError(problems)


def _reals(values: NDArray[Any]) -> str:
    return " ".join(f"{value:+.4f}" for value in values[:3])


def _words(words: RingVector) -> str:
    return " ".join(f"{word:016x}" for word in words[:2])
