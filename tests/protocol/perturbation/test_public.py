"""What clients are told about a perturbation: what cannot be built, what a client refuses, and the digest it echoes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.algebra.terms import client_terms
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.messages import InvalidField, Stamp
from veilsum.roles.process.entropy import SeededEntropy

PLAN = trace(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4)), torch.zeros(1, 3))
LARGEST = 2**32 - 1


@pytest.fixture
def public() -> PublicPerturbation:
    return new_key(PLAN, PerturbationSettings(groups=2), SeededEntropy(1)).public


def groups_of(*groups: int) -> np.ndarray:
    return np.array(groups, dtype="<u4")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key_id", b"short"),
        ("plan_digest", b"short"),
        ("mode", "m" * 33),
        ("partition", np.array([0, 0, 1, 1])),
        ("partition", np.zeros((2, 2), dtype="<u4")),
        ("directions", [1.0] * 4),
        ("feature_weight", float("nan")),
    ],
    ids=str,
)
def test_what_could_not_travel_cannot_be_built(public: PublicPerturbation, field: str, value: Any) -> None:
    with refusal(InvalidField, f"PublicPerturbation.{field}"):
        replace(public, **{field: value})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"partition": groups_of(0, 0, 2, 2)}, AbortReason.BAD_VECTOR),
        ({"partition": groups_of(0, 0, 1, LARGEST)}, AbortReason.BAD_VECTOR),
        ({"partition": groups_of(0, 1)}, AbortReason.BAD_VECTOR),
        ({"partition": groups_of()}, AbortReason.BAD_VECTOR),
        ({"partition": np.zeros(4)}, AbortReason.BAD_VECTOR),
        ({"directions": np.ones(4, dtype="<f4")}, AbortReason.BAD_VECTOR),
        ({"directions": np.full(4, np.nan)}, AbortReason.BAD_VECTOR),
        ({"plan_digest": bytes(32)}, AbortReason.WRONG_MODEL),
        ({"mode": "offset"}, AbortReason.WRONG_CONFIG),
        ({"loss": "hinge"}, AbortReason.WRONG_CONFIG),
        ({"exchange": "exp"}, AbortReason.WRONG_CONFIG),
    ],
    ids=str,
)
def test_a_client_refuses_what_does_not_fit_its_model(
    public: PublicPerturbation, change: dict[str, Any], reason: AbortReason
) -> None:
    with refusal(Rejection, reason=reason):
        client_terms(PLAN, PLAN.model, replace(public, **change), torch.ones(2, 3), torch.tensor([1, 3]))


def test_what_the_server_drew_is_what_a_client_reads(public: PublicPerturbation) -> None:
    stamp = Stamp(bytes(32), round=0, attempt=0, model_hash=bytes(32))
    body = b"".join(encode_message(PerturbationAnnounced(stamp, public)))
    message = decode_message("perturbed.noise", stamp, body)
    assert isinstance(message, PerturbationAnnounced)
    received = message.public
    assert received == public
    assert received.digest == public.digest
    assert np.array_equal(received.grouped_directions(), public.grouped_directions())
    received.require_fits(PLAN)


@pytest.mark.parametrize(
    "change",
    [
        {"key_id": bytes(16)},
        {"plan_digest": bytes(32)},
        {"mode": "scale"},
        {"loss": "ce"},
        {"exchange": "printed"},
        {"partition": groups_of(0, 1, 0, 0)},
        {"directions": np.ones(4)},
        {"directions": np.ones(4, dtype="<f4")},
        {"feature_weight": 2.0},
    ],
    ids=str,
)
def test_the_digest_covers_everything_that_is_told(
    public: PublicPerturbation, change: dict[str, Any]
) -> None:
    assert replace(public, **change).digest != public.digest


def test_the_digest_is_the_one_of_the_specification() -> None:
    """Uploads echo it and masks are bound to it, so that parties of two versions must find the same."""
    known = PublicPerturbation(
        key_id=bytes(range(16)),
        plan_digest=bytes(range(32)),
        mode="scale+offset",
        loss="ce",
        exchange="log",
        partition=groups_of(1, 0, 1),
        directions=np.array([0.5, -1.25, 1.0]),
        feature_weight=0.25,
    )
    assert known.digest.hex() == "a412300bae40ae5481945fdb608aeff2ff61d7146d2effcae571eb52c008c732"
