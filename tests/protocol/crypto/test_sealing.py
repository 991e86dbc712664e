"""RSA seals: opened by the right key under the right header only; weak and marked keys are refused."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from Crypto.PublicKey import RSA
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.sealing import RsaPrivateKey, RsaPublicKey, open_sealed, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection

VECTORS = Path(__file__).parents[3] / "specs" / "vectors" / "v8"
LABEL = bytes(range(32))


def fixed(n: int) -> bytes:
    return bytes(n)


@functools.cache
def stored_der(name: str) -> bytes:
    keys = json.loads((VECTORS / "sealing_keys.json").read_text())["cases"]
    return next(bytes.fromhex(key["der"]) for key in keys if key["name"] == name)


@functools.cache
def private_key(name: str = "real") -> RsaPrivateKey:
    return RsaPrivateKey.from_der(Secret(stored_der(name)))


def public_der(modulus: int, exponent: int) -> bytes:
    return RSA.construct((modulus, exponent), consistency_check=False).export_key("DER")


def refused_key(der: bytes) -> str:
    with pytest.raises(Rejection) as caught:
        RsaPublicKey.from_der(der)
    assert caught.value.reason is AbortReason.BAD_KEY
    return caught.value.detail


@settings(max_examples=15, deadline=None)
@given(st.binary(max_size=318), st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_seal_opens_under_its_own_label(plaintext: bytes, label: bytes, salt: bytes) -> None:
    """Any plaintext that fits comes back, and the ciphertext is a function of the randomness given."""
    key = private_key()
    ciphertext = seal(key.public, plaintext, label, lambda _: salt)
    assert seal(key.public, plaintext, label, lambda _: salt) == ciphertext
    assert len(ciphertext) == key.public.ciphertext_bytes == 384
    assert open_sealed(key, ciphertext, label).reveal() == plaintext


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 384 * 8 - 1), st.integers(0, 32 * 8 - 1))
def test_no_bit_of_ciphertext_or_label_can_change(ciphertext_bit: int, label_bit: int) -> None:
    """A changed ciphertext or header is BAD_SEAL, with the same words for both."""
    ciphertext = seal(private_key().public, b"seed", LABEL, fixed)
    changed = (int.from_bytes(ciphertext, "big") ^ (1 << ciphertext_bit)).to_bytes(384, "big")
    label = (int.from_bytes(LABEL, "big") ^ (1 << label_bit)).to_bytes(32, "big")
    details = []
    for attempt in ((changed, LABEL), (ciphertext, label)):
        with pytest.raises(Rejection) as caught:
            open_sealed(private_key(), *attempt)
        assert caught.value.reason is AbortReason.BAD_SEAL
        details.append(caught.value.detail)
    assert details[0] == details[1]


@pytest.mark.parametrize("ciphertext", [b"", bytes(383), bytes(385), b"\xff" * 384])
def test_ciphertext_of_another_size_or_range_is_refused(ciphertext: bytes) -> None:
    with pytest.raises(Rejection) as caught:
        open_sealed(private_key(), ciphertext, LABEL)
    assert caught.value.reason is AbortReason.BAD_SEAL


def test_plaintext_that_does_not_fit_is_our_own_mistake() -> None:
    """One byte over the limit is refused and the limit named."""
    public = private_key().public
    assert public.longest_plaintext == 318
    with pytest.raises(LocalProtocolError, match="at most 318"):
        seal(public, bytes(319), LABEL, fixed)


def test_label_is_a_digest() -> None:
    with pytest.raises(LocalProtocolError, match="header hash"):
        seal(private_key().public, b"seed", b"label", fixed)
    with pytest.raises(LocalProtocolError, match="header hash"):
        open_sealed(private_key(), bytes(384), b"label")


def test_short_randomness_seals_nothing() -> None:
    with pytest.raises(LocalProtocolError, match="31 bytes"):
        seal(private_key().public, b"seed", LABEL, lambda n: bytes(n - 1))


def test_public_key_survives_its_encoding() -> None:
    public = private_key().public
    assert RsaPublicKey.from_der(public.der) == public
    assert hash(RsaPublicKey.from_der(public.der)) == hash(public)
    assert public != private_key("simulation").public


@pytest.mark.parametrize("bits", [512, 2048, 3071, 4097, 16384])
def test_modulus_of_another_size_is_refused(bits: int) -> None:
    """Below 3072 bits is weak, above 4096 is a way to make others work."""
    assert f"not {bits}" in refused_key(public_der((1 << (bits - 1)) + 1, 65537))


@pytest.mark.parametrize("exponent", [3, 17, 65535, 65541, 2**32 + 1])
def test_other_exponents_are_refused(exponent: int) -> None:
    assert f"not {exponent}" in refused_key(public_der(RSA.import_key(stored_der("real")).n, exponent))


def test_even_numbers_are_refused() -> None:
    """An even modulus or exponent is no RSA key."""
    for modulus, exponent in ((1 << 3071, 65537), ((1 << 3071) + 1, 65538)):
        refused_key(spki(modulus, exponent))


def spki(modulus: int, exponent: int) -> bytes:
    """SubjectPublicKeyInfo written by hand, for numbers that no library would encode."""
    numbers = der_tlv(0x30, der_integer(modulus) + der_integer(exponent))
    algorithm = bytes.fromhex("300d06092a864886f70d0101010500")
    return der_tlv(0x30, algorithm + der_tlv(0x03, b"\0" + numbers))


def der_integer(value: int) -> bytes:
    return der_tlv(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def der_tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def test_hand_written_encoding_is_the_canonical_one() -> None:
    """The helper above writes what the library writes, so its refusals are about the numbers."""
    key = RSA.import_key(stored_der("real"))
    assert spki(key.n, key.e) == private_key().public.der


ENCODINGS: dict[str, Callable[[RSA.RsaKey], bytes]] = {
    "pem": lambda key: key.public_key().export_key("PEM"),
    "openssh": lambda key: key.public_key().export_key("OpenSSH"),
    "trailing byte": lambda key: key.public_key().export_key("DER") + b"\0",
    "cut": lambda key: key.public_key().export_key("DER")[:-1],
    "private": lambda key: key.export_key("DER", pkcs=8),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_public_key_in_another_encoding_is_refused(encoding: str) -> None:
    refused_key(ENCODINGS[encoding](RSA.import_key(stored_der("real"))))


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_no_public_key(der: bytes) -> None:
    refused_key(der)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 421), st.integers(1, 255))
def test_changed_byte_gives_a_typed_error_or_another_key(position: int, change: int) -> None:
    """No damage to an encoded key leads to anything but BAD_KEY or a key with that very encoding."""
    der = bytearray(private_key().public.der)
    der[position] ^= change
    try:
        assert RsaPublicKey.from_der(bytes(der)).der == bytes(der)
    except Rejection as rejection:
        assert rejection.reason is AbortReason.BAD_KEY


def test_simulation_mark_is_inside_the_key() -> None:
    """The marked key works as any other, keeps its mark through encoding, and real roles refuse it."""
    marked = private_key("simulation")
    public = RsaPublicKey.from_der(marked.public.der)
    assert open_sealed(marked, seal(public, b"seed", LABEL, fixed), LABEL).reveal() == b"seed"
    assert public.simulation_only and "simulation only" in repr(public)
    with pytest.raises(Rejection, match="simulation-only") as caught:
        public.require_real()
    assert caught.value.reason is AbortReason.BAD_KEY


def test_real_key_passes_as_real() -> None:
    public = private_key().public
    public.require_real()
    assert not public.simulation_only


def test_private_key_in_another_encoding_is_refused() -> None:
    key = RSA.import_key(stored_der("real"))
    for der in (
        key.export_key("PEM"),
        key.export_key("DER", pkcs=1),
        key.public_key().export_key("DER"),
        b"",
    ):
        with pytest.raises(LocalProtocolError, match="RSA private key"):
            RsaPrivateKey.from_der(Secret(der))


def test_private_key_whose_numbers_do_not_belong_together_is_refused() -> None:
    """A key with a private exponent of another key is refused when it is read, not when a seal fails."""
    key = RSA.import_key(stored_der("real"))
    other_exponent = pow(17, -1, math.lcm(key.p - 1, key.q - 1))
    numbers = (key.n, key.e, other_exponent, key.p, key.q)
    mixed = RSA.construct(numbers, consistency_check=False)
    with pytest.raises(LocalProtocolError, match="RSA private key"):
        RsaPrivateKey.from_der(Secret(mixed.export_key("DER", pkcs=8)))


def test_short_private_key_is_refused() -> None:
    with refusal(Rejection, 2048, reason=AbortReason.BAD_KEY):
        RsaPrivateKey.from_der(Secret(stored_der("short")))
