"""An envelope opens for its receiver, in its session, under its rules, from its signer, or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from tests.support import make_vectors_envelope as vectors
from tests.support.refusals import refusal
from tests.support.wire_examples import Everything, MaskedInput
from veilsum.protocol.crypto.domains import PROTOCOL_VERSION
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.defects import InvalidField, WireDefect, WireError
from veilsum.protocol.wire.envelope import (
    Body,
    Envelope,
    Expectation,
    decode_envelope,
    encode_envelope,
    join,
    open_envelope,
    sign_envelope,
)
from veilsum.protocol.wire.header import SUITE, Header, decode_header
from veilsum.protocol.wire.limits import Limits
from veilsum.simulations.testing import message_strategy, record_strategy

VECTORS = Path(__file__).parents[3] / "specs" / "vectors" / "v8"
PUBLIC = vectors.SIGNING_KEY.public

OTHER: dict[str, Any] = {
    "version": 2,
    "suite": 2,
    "kind": "example.boxes",
    "session": vectors.MODEL,
    "round": 4,
    "attempt": 2,
    "phase": "unmasking",
    "sender": PartyId("carol"),
    "receiver": PartyId("carol"),
    "sequence": 42,
    "roster_hash": vectors.CONFIG,
    "config_hash": vectors.ROSTER,
    "model_hash": vectors.SESSION,
}
REASONS = {
    "version": AbortReason.WRONG_VERSION,
    "suite": AbortReason.WRONG_VERSION,
    "session": AbortReason.WRONG_SESSION,
    "receiver": AbortReason.WRONG_RECEIVER,
    "roster_hash": AbortReason.WRONG_ROSTER,
    "config_hash": AbortReason.WRONG_CONFIG,
}


def load(pattern: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    files = [json.loads(path.read_text()) for path in sorted(VECTORS.glob(pattern))]
    return [(file, case) for file in files for case in file["cases"]]


def label(value: dict[str, Any]) -> str | None:
    return value.get("name", value.get("error"))


def expectation_from(parts: dict[str, str]) -> Expectation:
    hashes = {name: bytes.fromhex(parts[name]) for name in ("session", "roster_hash", "config_hash")}
    return Expectation(receiver=PartyId(parts["receiver"]), **hashes)


@pytest.mark.parametrize(("file", "case"), load("envelope.json"), ids=label)
def test_good_vectors_open_and_encode_to_their_bytes(file: dict[str, Any], case: dict[str, Any]) -> None:
    envelope = decode_envelope(bytes.fromhex(case["envelope"]))
    header = envelope.header
    assert vectors.header_json(header) == case["header"]
    assert header.encode().hex() == case["header_bytes"]
    assert header.digest.hex() == case["header_digest"]
    assert envelope.body.digest.hex() == case["body_digest"]
    assert join(encode_envelope(envelope)).hex() == case["envelope"]
    expected = Expectation(header.receiver, header.session, header.roster_hash, header.config_hash)
    message = open_envelope(envelope, bytes.fromhex(case["public_key"]), expected)
    assert join(Body.of(message).buffers).hex() == case["body"]
    assert message.stamp == header.stamp()


@pytest.mark.parametrize(("file", "case"), load("envelope.json"), ids=label)
def test_a_stranger_can_verify_the_vectors(file: dict[str, Any], case: dict[str, Any]) -> None:
    """The signed digest follows from the specification with SHA-256 and Ed25519 alone."""
    header, body, data = (bytes.fromhex(case[name]) for name in ("header_bytes", "body", "envelope"))
    digest = hashlib.sha256(header + hashlib.sha256(body).digest()).digest()
    tag = b"veilsum/v8/signature/envelope"
    signature = data[len(header) + 8 : len(header) + 72]
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(case["public_key"]))
    key.verify(signature, len(tag).to_bytes(4, "big") + tag + digest)
    assert digest.hex() == case["signed_digest"]
    assert data[len(header) : len(header) + 8] == len(body).to_bytes(8, "little")
    assert data.endswith(body)
    assert (len(data) - len(body)) % 8 == 0


@pytest.mark.parametrize(("file", "case"), load("envelope_bad_*.json"), ids=label)
def test_bad_vectors_are_refused_for_their_defect(file: dict[str, Any], case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["envelope"])
    if file["operation"] == "decode_envelope":
        with pytest.raises(WireError) as defect:
            decode_envelope(data)
        assert (defect.value.defect.name, defect.value.reason.name) == (file["defect"], file["error"])
        return
    envelope = decode_envelope(data)
    with pytest.raises(Rejection) as caught:
        open_envelope(envelope, bytes.fromhex(file["public_key"]), expectation_from(file["expected"]))
    assert caught.value.reason.name == file["error"]


def test_every_refusal_of_an_envelope_has_a_vector() -> None:
    shown = {file.get("defect", file["error"]) for file, _ in load("envelope_bad_*.json")}
    inside_the_body = {"UNKNOWN_KIND", "UNKNOWN_FIELD", "MISSING_FIELD", "DUPLICATE_KEY", "WRONG_TYPE"}
    inside_the_body |= {"NESTING", "EXTENSION_TYPE"}
    defects = {defect.name for defect in WireDefect} - inside_the_body
    refusals = {reason.name for reason in REASONS.values()} | {"BAD_SIGNATURE"}
    assert shown == defects | refusals


def test_the_folder_holds_what_the_generator_writes() -> None:
    stored = {path.stem: json.loads(path.read_text()) for path in VECTORS.glob("envelope*.json")}
    assert stored == vectors.build()


@given(message_strategy(Everything))
def test_what_is_signed_for_a_party_opens_at_that_party(message: Everything) -> None:
    header = Header.of(
        message,
        phase="masking",
        sender=vectors.ALICE,
        receiver=vectors.BOB,
        sequence=0,
        roster_hash=vectors.ROSTER,
        config_hash=vectors.CONFIG,
    )
    sent = join(encode_envelope(sign_envelope(header, Body.of(message), vectors.SIGNING_KEY)))
    expected = Expectation(vectors.BOB, message.stamp.session, vectors.ROSTER, vectors.CONFIG)
    assert open_envelope(decode_envelope(sent), PUBLIC, expected) == message


names = st.from_regex(r"[a-z0-9]{1,9}([.-][a-z0-9]{1,9}){0,4}", fullmatch=True)


@given(record_strategy(Header, kind=names, phase=names))
def test_headers_have_one_encoding(header: Header) -> None:
    ours = dataclasses.replace(header, version=PROTOCOL_VERSION, suite=SUITE)
    encoded = ours.encode()
    assert decode_header(memoryview(encoded + b"more")) == (ours, len(encoded))


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Header)])
def test_tampering_with_a_header_field_is_rejected(field: str) -> None:
    """One case per field: the signature of the good header does not cover the changed one."""
    good = vectors.good_envelope()
    changed = dataclasses.replace(good.header, **{field: OTHER[field]})
    assert changed.encode() != good.header.encode()
    with pytest.raises(Rejection) as caught:
        open_envelope(Envelope(changed, good.body, good.signature), PUBLIC, vectors.EXPECTED)
    assert caught.value.reason is REASONS.get(field, AbortReason.BAD_SIGNATURE)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Header)])
def test_the_signature_covers_every_header_field(field: str) -> None:
    """Even a receiver that expects the changed value refuses the old signature."""
    good = vectors.good_envelope()
    changed = dataclasses.replace(good.header, **{field: OTHER[field]})
    expected = Expectation(changed.receiver, changed.session, changed.roster_hash, changed.config_hash)
    with pytest.raises(Rejection) as caught:
        open_envelope(Envelope(changed, good.body, good.signature), PUBLIC, expected)
    versions = {"version": AbortReason.WRONG_VERSION, "suite": AbortReason.WRONG_VERSION}
    assert caught.value.reason is versions.get(field, AbortReason.BAD_SIGNATURE)


def test_no_byte_of_an_envelope_can_be_changed() -> None:
    data = join(encode_envelope(vectors.good_envelope()))
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        with pytest.raises(Rejection):
            open_envelope(decode_envelope(changed), PUBLIC, vectors.EXPECTED)


@pytest.mark.parametrize(("field", "theirs", "ours"), [("version", 2, PROTOCOL_VERSION), ("suite", 7, SUITE)])
def test_a_version_or_suite_mismatch_names_both(field: str, theirs: int, ours: int) -> None:
    header = vectors.good_header(**{field: theirs})
    sent = join(encode_envelope(sign_envelope(header, vectors.good_body(), vectors.SIGNING_KEY)))
    with refusal(WireError, theirs, ours):
        decode_envelope(sent)


def test_a_verified_sender_is_blamed_for_a_body_that_does_not_decode() -> None:
    envelope = sign_envelope(vectors.good_header(), Body([b"\x01\x00\x00\x00\xc1"]), vectors.SIGNING_KEY)
    with pytest.raises(RemoteProtocolError) as caught:
        open_envelope(envelope, PUBLIC, vectors.EXPECTED)
    assert (caught.value.culprit, caught.value.reason) == ("alice", AbortReason.BAD_ENCODING)


def test_nobody_is_blamed_before_the_signature_is_verified() -> None:
    forged = sign_envelope(vectors.good_header(), Body([b"junk"]), vectors.OTHER_KEY)
    with pytest.raises(Rejection) as caught:
        open_envelope(forged, PUBLIC, vectors.EXPECTED)
    assert caught.value.reason is AbortReason.BAD_SIGNATURE


def test_a_body_is_hashed_once_for_many_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    real = hashlib.sha256

    class CountingHash:
        def __init__(self, data: bytes = b"") -> None:
            self._inner = real(data)

        def update(self, data: memoryview) -> None:
            hashed.append(len(data))
            self._inner.update(data)

        def digest(self) -> bytes:
            return self._inner.digest()

    monkeypatch.setattr(hashlib, "sha256", CountingHash)
    body = Body.of(MaskedInput(vectors.STAMP, np.zeros(1000, "<u8")))
    for number, receiver in enumerate(["bob", "carol", "dave"]):
        header = vectors.good_header(receiver=PartyId(receiver), sequence=number)
        sign_envelope(header, body, vectors.SIGNING_KEY)
    assert sum(hashed) == len(body)


def test_the_body_of_a_received_envelope_is_a_view_and_its_tensor_is_aligned() -> None:
    sent = join(encode_envelope(vectors.good_envelope()))
    envelope = decode_envelope(sent)
    message = open_envelope(envelope, PUBLIC, vectors.EXPECTED)
    assert isinstance(message, MaskedInput)
    assert np.shares_memory(message.vector, np.frombuffer(sent, "|u1"))
    assert message.vector.flags.aligned


def test_encoding_an_envelope_copies_no_tensor() -> None:
    vector = np.zeros(1000, "<u8")
    envelope = sign_envelope(
        vectors.good_header(), Body.of(MaskedInput(vectors.STAMP, vector)), vectors.SIGNING_KEY
    )
    assert np.shares_memory(vector, np.frombuffer(encode_envelope(envelope)[-1], "|u1"))


def test_a_receiver_bounds_the_body_before_it_reads_it() -> None:
    data = join(encode_envelope(vectors.good_envelope()))
    length = len(vectors.good_body())
    assert decode_envelope(data, Limits(max_message_bytes=length))
    with pytest.raises(WireError) as caught:
        decode_envelope(data, Limits(max_message_bytes=length - 1))
    assert caught.value.defect is WireDefect.OVERSIZE


def test_a_header_has_two_different_parties_and_proper_names() -> None:
    for changed in ({"receiver": vectors.ALICE}, {"kind": "Kind"}, {"phase": ""}):
        with pytest.raises(InvalidField):
            vectors.good_header(**changed)


def test_an_envelope_has_a_signature_of_the_right_length() -> None:
    with refusal(LocalProtocolError, 64, 63):
        Envelope(vectors.good_header(), vectors.good_body(), bytes(63))


def test_reprs_show_no_payload() -> None:
    envelope = vectors.good_envelope()
    assert envelope.body.view().hex()[:16] not in repr(envelope)
    assert f"<body, {len(envelope.body)} bytes>" in repr(envelope)
