"""Every vector of lines in `specs/vectors/v8` holds for our code and for a second, independent implementation.

The second one is written from specs/keys.md, section 11, with hashlib and pycryptodome alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.DH import import_x25519_private_key, import_x25519_public_key, key_agreement
from Crypto.Protocol.KDF import HKDF
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.lines import LineAcceptance, LineEnds, LineKeys, LineOpening
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import Rejection
from veilsum.protocol.identifiers import PartyId

FOLDER = Path(__file__).parents[3] / "specs" / "vectors" / "v8"
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("line*.json"))}

Case = dict[str, Any]


class Values:
    """The hexadecimal fields of a case as bytes."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def __getattr__(self, name: str) -> bytes:
        return bytes.fromhex(self._case[name])


def ends_of(case: Case) -> LineEnds:
    return LineEnds(bytes.fromhex(case["federation"]), PartyId(case["opener"]), PartyId(case["accepter"]))


def signing_key(case: Case, end: str) -> SigningKey:
    return SigningKey.from_private(Secret(bytes.fromhex(case[f"{end}_signs"])))


def draws(case: Case, end: str) -> Callable[[int], bytes]:
    values = iter([bytes.fromhex(case[f"{end}_private"]), bytes.fromhex(case[f"{end}_nonce"])])
    return lambda size: next(values)[:size]


def opening_of(case: Case) -> LineOpening:
    return LineOpening(ends_of(case), signing_key(case, "opener"), draws(case, "opener"))


def acceptance_of(case: Case) -> LineAcceptance:
    opener = signing_key(case, "opener").public
    signing = signing_key(case, "accepter")
    return LineAcceptance(
        ends_of(case), bytes.fromhex(case["open"]), opener, signing, draws(case, "accepter")
    )


def good_cases() -> list[Case]:
    return [case for name, content in FILES.items() if "_bad_" not in name for case in content["cases"]]


def bad_cases() -> list[Any]:
    return [
        pytest.param(content["operation"], case, content["error"], id=f"{name}-{position}")
        for name, content in FILES.items()
        if "_bad_" in name
        for position, case in enumerate(content["cases"])
    ]


@pytest.mark.parametrize("case", good_cases())
def test_both_ends_make_the_line_of_the_vector(case: Case) -> None:
    values = Values(case)
    opening, acceptance = opening_of(case), acceptance_of(case)
    assert opening.datagram == values.open
    assert acceptance.datagram == values.accept
    line, confirm = opening.accepted(values.accept, signing_key(case, "accepter").public)
    acceptance.require_confirmation(confirm)
    assert (line.id, acceptance.keys.id, confirm) == (values.line, values.line, values.confirm)
    assert acceptance.keys.open(case["number"], values.box, values.header) == values.plaintext
    assert line.open(case["number"], values.answer, values.header) == values.plaintext
    assert line.seal(case["number"], values.plaintext, values.header) == values.box
    assert acceptance.keys.seal(case["number"], values.plaintext, values.header) == values.answer


def framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def other_signature(seed: bytes, domain: str, digest: bytes) -> bytes:
    key = ECC.construct(curve="Ed25519", seed=seed)
    return eddsa.new(key, "rfc8032").sign(framed(f"veilsum/v8/signature/{domain}".encode()) + digest)


def other_hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    made = HKDF(secret, 32, salt, SHA256, context=info)
    assert isinstance(made, bytes)
    return made


def other_secret(case: Case) -> bytes:
    """The agreement of section 6, between the two keys of the handshake."""
    values = Values(case)
    theirs = values.accept[32:64]
    raw = key_agreement(
        static_priv=import_x25519_private_key(values.opener_private),
        static_pub=import_x25519_public_key(theirs),
        kdf=lambda output: output,
    )
    assert isinstance(raw, bytes)
    return other_hkdf(raw, b"veilsum/v8/agreement", b"".join(sorted((values.open[16:48], theirs))))


@pytest.mark.parametrize("case", good_cases())
def test_a_second_implementation_makes_the_same_bytes(case: Case) -> None:
    values = Values(case)
    names = case["opener"].encode(), case["accepter"].encode()
    opener_share = values.open[:16], values.open[16:48]
    accepter_share = values.accept[16:32], values.accept[32:64]
    assert (opener_share[0], accepter_share[0]) == (values.opener_nonce, values.accepter_nonce)
    digest = hashlib.sha256(
        framed(b"veilsum/v8/line-open", values.federation, *names, *opener_share)
    ).digest()
    transcript = hashlib.sha256(
        framed(b"veilsum/v8/line", values.federation, *names, *opener_share, *accepter_share)
    ).digest()
    assert transcript == values.transcript
    assert values.open[48:] == other_signature(values.opener_signs, "line-open", digest)
    assert values.accept[:16] == opener_share[0]
    assert values.accept[64:] == other_signature(values.accepter_signs, "line-accept", transcript)
    assert values.confirm == other_signature(values.opener_signs, "line-confirm", transcript)
    secret = other_secret(case)
    assert other_hkdf(secret, transcript, framed(b"veilsum/v8/line-id"))[:16] == values.line
    for direction, box in ((names, values.box), (names[::-1], values.answer)):
        key = other_hkdf(secret, transcript, framed(b"veilsum/v8/line-key", *direction))
        cipher = AES.new(key, AES.MODE_GCM, nonce=case["number"].to_bytes(12, "big"))
        cipher.update(values.header)
        assert b"".join(cipher.encrypt_and_digest(values.plaintext)) == box


def try_box(case: Case) -> None:
    values = Values(case)
    secret = AgreementKey.from_private(Secret(values.accepter_private)).agree(values.open[16:48])
    keys = LineKeys(secret, values.transcript, PartyId(case["accepter"]), PartyId(case["opener"]))
    keys.open(case["number"], values.box, values.header)


ATTEMPTS: dict[str, Callable[[Case], object]] = {
    "line_accept": acceptance_of,
    "line_accepted": lambda case: opening_of(case).accepted(
        Values(case).accept, signing_key(case, "accepter").public
    ),
    "line_confirmed": lambda case: acceptance_of(case).require_confirmation(Values(case).confirm),
    "line_open": try_box,
}


@pytest.mark.parametrize(("operation", "case", "error"), bad_cases())
def test_a_bad_vector_is_refused_with_its_error(operation: str, case: Case, error: str) -> None:
    with pytest.raises(Rejection) as caught:
        ATTEMPTS[operation](case)
    assert caught.value.reason.name == error


def test_an_open_whose_accept_is_refused_still_takes_the_right_one() -> None:
    """What is refused changes nothing, and what was taken is not taken twice."""
    good, bad = FILES["line"]["cases"][0], FILES["line_bad_accept"]["cases"][0]
    opening, accepter = opening_of(good), signing_key(good, "accepter").public
    with pytest.raises(Rejection):
        opening.accepted(Values(bad).accept, accepter)
    line, _ = opening.accepted(Values(good).accept, accepter)
    assert line.id == Values(good).line
