"""X25519 agreement: both ends reach one secret, and keys that would break that are refused by name."""

from __future__ import annotations

import itertools

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.agreement import AgreementKey, require_agreement_key, require_distinct_keys
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId

ALICE, BOB, CAROL = (AgreementKey.from_private(Secret(bytes([fill]) * 32)) for fill in (1, 2, 3))
PRIME = 2**255 - 19

privates = st.binary(min_size=32, max_size=32)


@given(privates, privates)
def test_both_ends_agree(left: bytes, right: bytes) -> None:
    """Two parties with different keys reach the same secret."""
    ours, theirs = (AgreementKey.from_private(Secret(private)) for private in (left, right))
    if ours.public == theirs.public:
        with refusal(Rejection, "own", reason=AbortReason.BAD_KEY):
            ours.agree(theirs.public)
    else:
        assert ours.agree(theirs.public) == theirs.agree(ours.public)


def test_each_pair_has_a_secret_of_its_own() -> None:
    secrets = {a.agree(b.public).reveal() for a, b in itertools.combinations((ALICE, BOB, CAROL), 2)}
    assert len(secrets) == 3


def refused_key(their_public: bytes) -> Rejection:
    with pytest.raises(Rejection) as caught:
        ALICE.agree(their_public)
    assert caught.value.reason is AbortReason.BAD_KEY
    return caught.value


def test_reflected_key_is_refused() -> None:
    assert "our own" in refused_key(ALICE.public).detail


@given(st.binary(max_size=64).filter(lambda public: len(public) != 32))
def test_key_of_another_length_is_refused(public: bytes) -> None:
    assert f"not {len(public)}" in refused_key(public).detail


@pytest.mark.parametrize("u", [0, 1, PRIME - 1])
def test_low_order_key_is_refused(u: int) -> None:
    assert "low order" in refused_key(u.to_bytes(32, "little")).detail


@given(st.integers(PRIME, 2**256 - 1))
def test_alias_of_a_key_is_refused(encoded: int) -> None:
    """Every encoding at or above the field prime, the top bit included, is refused."""
    assert "canonical" in refused_key(encoded.to_bytes(32, "little")).detail


def test_own_key_under_an_alias_is_refused() -> None:
    """Setting the top bit of our own key does not get it past the reflection check."""
    aliased = ALICE.public[:31] + bytes([ALICE.public[31] | 0x80])
    assert "canonical" in refused_key(aliased).detail


@given(st.binary(min_size=32, max_size=32))
def test_any_32_bytes_give_a_secret_or_a_typed_error(public: bytes) -> None:
    try:
        secret = ALICE.agree(public)
    except Rejection as rejection:
        assert rejection.reason is AbortReason.BAD_KEY
    else:
        assert len(secret) == 32


def test_adding_a_low_order_point_changes_the_secret() -> None:
    """u and 1/u differ by the point of order two: the curve gives both one output, we two secrets."""
    inverse = pow(int.from_bytes(BOB.public, "little"), -1, PRIME).to_bytes(32, "little")
    require_agreement_key(inverse)
    assert ALICE._key.exchange(_curve_point(inverse)) == ALICE._key.exchange(_curve_point(BOB.public))
    assert ALICE.agree(inverse) != ALICE.agree(BOB.public)


def _curve_point(public: bytes) -> X25519PublicKey:
    return X25519PublicKey.from_public_bytes(public)


def test_distinct_keys_pass_and_a_duplicate_names_both_parties() -> None:
    keys = {PartyId("carol"): CAROL.public, PartyId("alice"): ALICE.public, PartyId("bob"): BOB.public}
    require_distinct_keys(keys)
    with pytest.raises(Rejection, match="alice and carol") as caught:
        require_distinct_keys({**keys, PartyId("carol"): ALICE.public})
    assert caught.value.reason is AbortReason.BAD_KEY


def test_generated_keys_come_from_the_given_source() -> None:
    """The private key is the 32 bytes drawn, and a short draw makes no key."""
    assert AgreementKey.generate(lambda n: bytes([1]) * n).public == ALICE.public
    with pytest.raises(LocalProtocolError, match="31 bytes"):
        AgreementKey.generate(lambda n: bytes(n - 1))
    with pytest.raises(LocalProtocolError, match="not 31"):
        AgreementKey.from_private(Secret(bytes(31)))
