"""Signatures: bound to key, domain and digest; unsuitable keys are refused before use."""

from __future__ import annotations

import os

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey, require_verify_key, verify_signature
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection

KEY = SigningKey.from_private(Secret(bytes(range(32))))
DIGEST = bytes(reversed(range(32)))
SIGNATURE = KEY.sign("roster", DIGEST)

digests = st.binary(min_size=32, max_size=32)
domains = st.from_regex(r"[a-z][a-z0-9-]{0,63}", fullmatch=True)


@given(digests, domains, digests)
def test_signature_verifies_under_its_own_key_domain_and_digest(
    private: bytes, domain: str, digest: bytes
) -> None:
    """Whatever is signed verifies, and signing is deterministic."""
    key = SigningKey.from_private(Secret(private))
    signature = key.sign(domain, digest)
    verify_signature(key.public, domain, digest, signature)
    assert key.sign(domain, digest) == signature


@given(st.integers(0, 64 * 8 - 1))
def test_no_bit_of_a_signature_can_change(bit: int) -> None:
    """A signature with any one bit flipped is refused as BAD_SIGNATURE."""
    changed = (int.from_bytes(SIGNATURE, "big") ^ (1 << bit)).to_bytes(64, "big")
    with pytest.raises(Rejection) as caught:
        verify_signature(KEY.public, "roster", DIGEST, changed)
    assert caught.value.reason is AbortReason.BAD_SIGNATURE


def test_signature_of_one_domain_is_refused_in_another() -> None:
    """A roster signature cannot pass for that of an envelope; the error names the domain."""
    with pytest.raises(Rejection, match="envelope") as caught:
        verify_signature(KEY.public, "envelope", DIGEST, SIGNATURE)
    assert caught.value.reason is AbortReason.BAD_SIGNATURE


@given(st.binary(max_size=100).filter(lambda signature: len(signature) != 64))
def test_signature_of_another_length_is_refused(signature: bytes) -> None:
    """Wrong lengths are named in the error."""
    with pytest.raises(Rejection, match=f"not {len(signature)}") as caught:
        verify_signature(KEY.public, "roster", DIGEST, signature)
    assert caught.value.reason is AbortReason.BAD_SIGNATURE


def test_identity_point_as_key_would_accept_every_message() -> None:
    """The reason for refusing small orders: bare Ed25519 takes one signature for all messages."""
    identity = (1).to_bytes(32, "little")
    universal = identity + bytes(32)
    for message in (b"yes", b"no"):
        Ed25519PublicKey.from_public_bytes(identity).verify(universal, message)
    with pytest.raises(Rejection, match="small order") as caught:
        verify_signature(identity, "roster", DIGEST, universal)
    assert caught.value.reason is AbortReason.BAD_KEY


def small_order_coordinates() -> set[int]:
    """The y of all points P of -x^2 + y^2 = 1 + d x^2 y^2 with 8P = 0, from the curve equation alone.

    Doubling gives 2P the y coordinate (y^2 + x^2) / (1 - d x^2 y^2). The points of order one and two have
    x = 0 and y = 1 or -1. Order four doubles to y = -1: y = 0. Order eight doubles to y = 0: x^2 = -y^2, and
    the equation becomes d y^4 + 2 y^2 - 1 = 0.
    """
    prime = 2**255 - 19
    d = -121665 * pow(121666, -1, prime) % prime

    def roots(square: int) -> list[int]:
        root = pow(square, (prime + 3) // 8, prime)
        candidates = (root, root * pow(2, (prime - 1) // 4, prime) % prime)
        return [sign * r % prime for r in candidates for sign in (1, -1) if r * r % prime == square % prime]

    squares = [(-1 + root) * pow(d, -1, prime) % prime for root in roots(1 + d)]
    return {0, 1, prime - 1} | {y for square in squares for y in roots(square)}


def test_every_point_of_small_order_is_refused() -> None:
    """All five coordinates, with both signs of x, are BAD_KEY; they are computed here, not copied."""
    coordinates = small_order_coordinates()
    assert len(coordinates) == 5
    for encoded in [y + sign for y in coordinates for sign in (0, 2**255)]:
        with pytest.raises(Rejection, match="small order") as caught:
            require_verify_key(encoded.to_bytes(32, "little"))
        assert caught.value.reason is AbortReason.BAD_KEY


@given(st.integers(0, 18), st.booleans())
def test_second_name_of_a_key_is_refused(excess: int, sign: bool) -> None:
    """A coordinate at or above the field prime is not canonical, with either sign bit."""
    encoded = 2**255 - 19 + excess + (2**255 if sign else 0)
    with pytest.raises(Rejection, match="canonical") as caught:
        require_verify_key(encoded.to_bytes(32, "little"))
    assert caught.value.reason is AbortReason.BAD_KEY


@pytest.mark.parametrize("size", [0, 31, 33])
def test_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(Rejection, match=f"not {size}") as caught:
        verify_signature(bytes(size), "roster", DIGEST, SIGNATURE)
    assert caught.value.reason is AbortReason.BAD_KEY


@given(digests)
def test_any_32_bytes_are_a_rejection_or_a_key_under_which_nothing_old_verifies(public: bytes) -> None:
    """Bytes that are no curve point raise the same typed error as a wrong key."""
    with pytest.raises(Rejection):
        verify_signature(public, "roster", DIGEST, SIGNATURE)


@pytest.mark.parametrize("domain", ["", "Roster", "a/b", "a" * 65, "1a", "roster\n"])
def test_domain_outside_the_alphabet_is_our_own_mistake(domain: str) -> None:
    with refusal(LocalProtocolError, repr(domain), "domain"):
        KEY.sign(domain, DIGEST)


def test_only_digests_are_signed() -> None:
    """Signing content instead of its digest is refused."""
    with pytest.raises(LocalProtocolError, match="digests"):
        KEY.sign("roster", b"a whole document")


def test_generated_keys_come_from_the_given_source() -> None:
    """The private key is the 32 bytes drawn, and a short draw makes no key."""
    assert SigningKey.generate(lambda n: bytes(range(n))).public == KEY.public
    assert SigningKey.generate(os.urandom).public != SigningKey.generate(os.urandom).public
    with pytest.raises(LocalProtocolError, match="31 bytes"):
        SigningKey.generate(lambda n: bytes(n - 1))
    with pytest.raises(LocalProtocolError, match="not 31"):
        SigningKey.from_private(Secret(bytes(31)))
