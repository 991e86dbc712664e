"""Identities: built valid or not at all, and told apart by their fingerprints."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path

import pytest

from tests.support.refusals import refusal
from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.crypto.sealing import RsaPrivateKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId

VECTORS = Path(__file__).parents[3] / "specs" / "vectors" / "v8"
SIGNING = SigningKey.from_private(Secret(bytes(range(32))))
ALICE = PartyId("alice")


@functools.cache
def rsa_key(name: str) -> RsaPrivateKey:
    keys = json.loads((VECTORS / "sealing_keys.json").read_text())["cases"]
    return RsaPrivateKey.from_der(
        Secret(next(bytes.fromhex(key["der"]) for key in keys if key["name"] == name))
    )


def test_public_half_carries_the_public_keys() -> None:
    identity = Identity(ALICE, Role.PEER, SIGNING, rsa_key("real"))
    public = identity.public
    assert (public.name, public.role, public.verify_key) == (ALICE, Role.PEER, SIGNING.public)
    assert public.rsa == rsa_key("real").public
    assert identity.fingerprint == public.fingerprint


def test_rsa_key_is_optional() -> None:
    public = Identity(ALICE, Role.CLIENT, SIGNING).public
    assert public.rsa_public is None and public.rsa is None
    public.require_real()


def test_fingerprint_changes_with_every_field() -> None:
    """Name, role, verification key and RSA key all matter, the absence of an RSA key included."""
    base = PublicIdentity(ALICE, Role.PEER, SIGNING.public, rsa_key("real").public.der)
    other_key = SigningKey.from_private(Secret(bytes(32))).public
    variants = [
        base,
        dataclasses.replace(base, name=PartyId("bob")),
        dataclasses.replace(base, role=Role.CLIENT),
        dataclasses.replace(base, verify_key=other_key),
        dataclasses.replace(base, rsa_public=rsa_key("simulation").public.der),
        dataclasses.replace(base, rsa_public=None),
    ]
    assert len({identity.fingerprint for identity in variants}) == len(variants)
    assert len({identity.digest for identity in variants}) == len(variants)


def test_fingerprint_is_pinned() -> None:
    """The fingerprint people compare must not change between releases of one protocol version."""
    public = PublicIdentity(ALICE, Role.CLIENT, SIGNING.public)
    assert public.fingerprint == "78c8-45e6-b39e-9962-d439-7eb0-2f79-0687"


def test_role_may_be_given_as_text() -> None:
    identity = PublicIdentity(ALICE, "server", SIGNING.public)  # type: ignore[arg-type]  # text is the test
    assert identity.role is Role.SERVER


@pytest.mark.parametrize(
    ("change", "reason", "complaint"),
    [
        ({"name": "Alice!"}, AbortReason.UNKNOWN_PARTY, "Alice!"),
        ({"role": "king"}, AbortReason.BAD_ENCODING, "'king'"),
        ({"verify_key": bytes(31)}, AbortReason.BAD_KEY, "32 bytes"),
        ({"verify_key": bytes(32)}, AbortReason.BAD_KEY, "small order"),
        ({"rsa_public": b"not a key"}, AbortReason.BAD_KEY, "RSA public key"),
    ],
)
def test_broken_identity_cannot_be_built(
    change: dict[str, object], reason: AbortReason, complaint: str
) -> None:
    """Each defect is refused with its reason and the name of the party."""
    base = PublicIdentity(ALICE, Role.PEER, SIGNING.public)
    with pytest.raises(Rejection, match=complaint) as caught:
        dataclasses.replace(base, **change)  # type: ignore[arg-type]  # one table, many types
    assert caught.value.reason is reason


def test_private_identity_with_a_broken_name_cannot_be_built() -> None:
    with refusal(Rejection, "party", reason=AbortReason.UNKNOWN_PARTY):
        Identity(PartyId("Not A Name"), Role.PEER, SIGNING)


def test_simulation_identity_is_not_real() -> None:
    """An identity with a pool key can be used in simulations and is refused, by name, where real ones are."""
    public = Identity(ALICE, Role.PEER, SIGNING, rsa_key("simulation")).public
    with refusal(Rejection, "alice", "simulation-only") as caught:
        public.require_real()
    assert caught.value.reason is AbortReason.BAD_KEY
    Identity(ALICE, Role.PEER, SIGNING, rsa_key("real")).public.require_real()
