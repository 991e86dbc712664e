"""A message has one encoding, and anything else is refused with the rule that it breaks."""

from __future__ import annotations

import dataclasses
import json
import re
import struct
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import make_vectors_wire
from tests.support.wire_examples import Boxes, Everything, MaskedInput, RoundKeys
from veilsum.protocol.errors import AbortReason, EncodingError, LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.defects import WireDefect, WireError
from veilsum.protocol.wire.limits import Limits
from veilsum.protocol.wire.messages import Message, Stamp, kind_of
from veilsum.simulations.testing import message_strategy

VECTORS = Path(__file__).parents[3] / "specs" / "vectors" / "v8"
SPECIFICATION = VECTORS.parents[1] / "wire-format.md"
STAMP = Stamp(bytes(32), round=1, attempt=2, model_hash=bytes(32))
ENVELOPE_ONLY = {WireDefect.NOT_AN_ENVELOPE, WireDefect.WRONG_VERSION, WireDefect.WRONG_SUITE}


def body_of(message: Message) -> bytes:
    return b"".join(encode_message(message))


def load(pattern: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    files = [json.loads(path.read_text()) for path in sorted(VECTORS.glob(pattern))]
    return [(file, case) for file in files for case in file["cases"]]


def label(value: dict[str, Any]) -> str | None:
    return value.get("name", value.get("defect"))


def stamp_from(case: dict[str, Any]) -> Stamp:
    stamp = case["stamp"]
    return Stamp(
        bytes.fromhex(stamp["session"]),
        stamp["round"],
        stamp["attempt"],
        bytes.fromhex(stamp["model_hash"]),
    )


@pytest.mark.parametrize(("file", "case"), load("wire.json"), ids=label)
def test_good_vectors_decode_to_their_fields_and_encode_to_their_bytes(
    file: dict[str, Any], case: dict[str, Any]
) -> None:
    body = bytes.fromhex(case["body"])
    decoded = decode_message(case["kind"], stamp_from(case), body)
    fields = {name: make_vectors_wire.from_json(value) for name, value in case["fields"].items()}
    assert decoded == type(decoded)(stamp_from(case), **fields)
    assert body_of(decoded) == body


@pytest.mark.parametrize(("file", "case"), load("wire_bad_*.json"), ids=label)
def test_bad_vectors_are_refused_for_their_defect(file: dict[str, Any], case: dict[str, Any]) -> None:
    with pytest.raises(WireError) as caught:
        decode_message(case["kind"], stamp_from(case), bytes.fromhex(case["body"]))
    assert caught.value.defect.name == file["defect"]
    assert caught.value.reason.name == file["error"]


def test_every_defect_of_a_body_has_a_vector() -> None:
    shown = {file["defect"] for file, _ in load("wire_bad_*.json")}
    assert shown == {defect.name for defect in WireDefect if defect not in ENVELOPE_ONLY}


def test_the_folder_holds_what_the_generator_writes() -> None:
    stored = {path.stem: json.loads(path.read_text()) for path in VECTORS.glob("wire*.json")}
    assert stored == make_vectors_wire.build()


def test_the_examples_of_the_specification_are_vectors() -> None:
    blocks = re.findall(r"```hex\n(.*?)```", SPECIFICATION.read_text(), re.DOTALL)
    files = [json.loads((VECTORS / name).read_text()) for name in ("wire.json", "envelope.json")]
    known = {
        value for file in files for case in file["cases"] for value in case.values() if type(value) is str
    }
    shown = [re.sub(r"  .*|\s", "", block) for block in blocks]
    assert len(shown) == 4
    assert set(shown) <= known


def test_the_specification_names_every_defect_and_every_limit() -> None:
    text = SPECIFICATION.read_text()
    for defect in WireDefect:
        assert f"| `{defect.name}` |" in text
    for field in dataclasses.fields(Limits):
        assert f"| `{field.name}` | 2^{field.default.bit_length() - 1} |" in text


@given(message_strategy(Everything))
def test_decoding_undoes_encoding(message: Everything) -> None:
    assert decode_message(kind_of(message), message.stamp, body_of(message)) == message


def test_the_layout_can_be_read_with_nothing_but_msgpack() -> None:
    """An independent reading of the specification: length, fields, padding, raw little-endian numbers."""
    body = body_of(MaskedInput(STAMP, np.array([1, 2**64 - 1], "<u8")))
    (length,) = struct.unpack_from("<I", body)
    assert msgpack.unpackb(body[4 : 4 + length]) == {"vector": ["<u8", 2]}
    start = (4 + length + 7) // 8 * 8
    assert not any(body[4 + length : start])
    assert struct.unpack("<QQ", body[start:]) == (1, 2**64 - 1)


def test_tensors_are_not_copied_on_the_way_out() -> None:
    vector = np.arange(1000, dtype="<u8")
    raw = encode_message(MaskedInput(STAMP, vector))[-1]
    assert np.shares_memory(vector, np.frombuffer(raw, "|u1"))


@pytest.mark.parametrize("container", [bytes, bytearray, memoryview])
def test_tensors_are_aligned_read_only_views_on_the_way_in(container: Any) -> None:
    received = container(body_of(MaskedInput(STAMP, np.arange(1000, dtype="<u8"))))
    decoded = decode_message("example.masked-input", STAMP, received)
    assert isinstance(decoded, MaskedInput)
    assert np.shares_memory(decoded.vector, np.frombuffer(received, "|u1"))
    assert decoded.vector.flags.aligned
    assert not decoded.vector.flags.writeable


@pytest.mark.parametrize("position", range(7))
def test_a_body_decodes_at_any_address(position: int) -> None:
    body = body_of(MaskedInput(STAMP, np.arange(5, dtype="<f8")))
    shifted = memoryview(bytes(position) + body)[position:]
    assert decode_message("example.masked-input", STAMP, shifted) == MaskedInput(
        STAMP, np.arange(5, dtype="<f8")
    )


def test_a_thousand_small_boxes_cost_little_more_than_their_bytes() -> None:
    boxes = {PartyId(f"party-{number:04}"): bytes(100) for number in range(1000)}
    message = Boxes(STAMP, boxes)
    body = body_of(message)
    assert len(body) < 1000 * (100 + 14)
    assert decode_message("example.boxes", STAMP, body) == message


BOUNDED = [
    (MaskedInput(STAMP, np.zeros(4, "<u8")), {"max_message_bytes": 55}, {"max_message_bytes": 56}),
    (RoundKeys(STAMP, bytes(32), bytes(64)), {"max_fields_bytes": 114}, {"max_fields_bytes": 115}),
]


@pytest.mark.parametrize(("message", "tight", "wide"), BOUNDED)
def test_sender_and_receiver_refuse_one_byte_over_the_same_limit(
    message: Message, tight: dict[str, int], wide: dict[str, int]
) -> None:
    kind = kind_of(message)
    body = b"".join(encode_message(message, Limits(**wide)))
    assert decode_message(kind, STAMP, body, Limits(**wide)) == message
    with pytest.raises(EncodingError, match=next(iter(tight))):
        encode_message(message, Limits(**tight))
    with pytest.raises(WireError) as caught:
        decode_message(kind, STAMP, body, Limits(**tight))
    assert caught.value.defect is WireDefect.OVERSIZE


def test_a_receiver_bounds_the_number_of_parties() -> None:
    body = body_of(Boxes(STAMP, {PartyId("alice"): b"", PartyId("bob"): b""}))
    assert decode_message("example.boxes", STAMP, body, Limits(max_parties=2))
    with pytest.raises(WireError) as caught:
        decode_message("example.boxes", STAMP, body, Limits(max_parties=1))
    assert caught.value.defect is WireDefect.OVERSIZE


def test_limits_that_cannot_work_are_reported_together() -> None:
    with pytest.raises(ParameterError) as caught:
        Limits(max_parties=0, max_items=-1, max_fields_bytes=2**32)
    assert len(caught.value.problems) == 3


def test_what_is_not_registered_is_not_encoded() -> None:
    with pytest.raises(LocalProtocolError, match="@message"):
        encode_message(Message(STAMP))


@given(st.binary(max_size=64))
def test_a_refusal_says_reason_and_defect(data: bytes) -> None:
    """Short random bytes are never a message with two keys, and the error can be shown to people."""
    with pytest.raises(WireError) as caught:
        decode_message("example.round-keys", STAMP, data)
    assert caught.value.reason is AbortReason.BAD_ENCODING
    assert str(caught.value).startswith(f"{AbortReason.BAD_ENCODING.value}: {caught.value.defect.value}")
