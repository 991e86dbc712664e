"""Write the test vectors of message bodies.

    python -m tests.support.make_vectors_wire

The script is deterministic: every input is written out here. Bad bodies are put together byte by byte, with
msgpack's own packer, not by breaking what our encoder wrote, so a defect of the encoder cannot hide in them.
A test compares what `build()` returns with what stands in the folder.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from tests.support.wire_examples import Boxes, Empty, Everything, MaskedInput, Ratio, RoundKeys, Share
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.codec import encode_message
from veilsum.protocol.wire.defects import WireDefect
from veilsum.protocol.wire.messages import Message, Stamp, kind_of

FOLDER = Path(__file__).parents[2] / "specs" / "vectors" / "v8"
OURS = "Made by tests/support/make_vectors_wire.py with the messages of tests/support/wire_examples.py."
DEFECT = OURS + " Each case has the one defect that the file is named after."

Json = dict[str, Any]

ALICE, BOB, CAROL = PartyId("alice"), PartyId("bob"), PartyId("carol")
SESSION, MODEL = bytes(range(32)), bytes(range(32, 64))
STAMP = Stamp(SESSION, round=3, attempt=1, model_hash=MODEL)


def good_messages() -> dict[str, Message]:
    share = Share(CAROL, 65_536, bytes(range(34)))
    return {
        "no fields": Empty(Stamp()),
        "bytes of exact length": RoundKeys(STAMP, bytes([1]) * 32, bytes([2]) * 64),
        "parties are sorted": Boxes(STAMP, {CAROL: b"c", ALICE: b"", BOB: bytes(300)}),
        "one vector of words": MaskedInput(STAMP, np.array([1, 2**32, 2**64 - 1], "<u8")),
        "a float of 64 bits": Ratio(STAMP, 0.5),
        "an empty vector": MaskedInput(STAMP, np.array([], "<f4")),
        "every field type": Everything(
            stamp=STAMP,
            count=2**48 - 1,
            bounded=7,
            weight=-0.5,
            ready=True,
            note="na\u00efve",
            short_note="",
            key=bytes(range(32)),
            blob=b"\xff",
            leader=ALICE,
            deputy=None,
            order=(BOB, ALICE),
            counts=(0, 127, 128, 65_536),
            boxes={BOB: b"b", ALICE: b"a"},
            share=share,
            spare=Share(ALICE, 0, None),
            shares={ALICE: (share, share), BOB: ()},
            vector=np.array([1, 2, 3], "<u4"),
            terms={BOB: np.array([0.25], "<f4"), ALICE: np.array([0.5, -1.0], "<f8")},
            parts=(np.array([7], "|u1"), np.array([], "<u8"), np.array([8, 9], "|u1")),
            bias=None,
            pair=np.array([1, 2**63], "<u8"),
        ),
    }


def to_json(value: Any) -> Any:
    """A value of a message as JSON that names what JSON cannot say."""
    match value:
        case bytes():
            return {"hex": value.hex()}
        case np.ndarray():
            return {"dtype": value.dtype.str, "hex": value.tobytes().hex()}
        case Share():
            return {"record": [to_json(getattr(value, name)) for name in ("holder", "index", "value")]}
        case Mapping():
            return {"parties": {party: to_json(item) for party, item in value.items()}}
        case tuple():
            return [to_json(item) for item in value]
    return value


def from_json(value: Any) -> Any:
    match value:
        case {"dtype": dtype, "hex": text}:
            return np.frombuffer(bytes.fromhex(text), dtype)
        case {"hex": text}:
            return bytes.fromhex(text)
        case {"record": parts}:
            return Share(*map(from_json, parts))
        case {"parties": entries}:
            return {party: from_json(item) for party, item in entries.items()}
        case list():
            return tuple(map(from_json, value))
    return value


def stamp_json(stamp: Stamp) -> Json:
    return {
        "session": stamp.session.hex(),
        "round": stamp.round,
        "attempt": stamp.attempt,
        "model_hash": stamp.model_hash.hex(),
    }


def _wire() -> dict[str, Json]:
    cases = [
        {
            "name": name,
            "kind": kind_of(message),
            "stamp": stamp_json(message.stamp),
            "fields": {f: to_json(getattr(message, f)) for f in message.__dataclass_fields__ if f != "stamp"},
            "body": b"".join(encode_message(message)).hex(),
        }
        for name, message in good_messages().items()
    ]
    return {"wire": {"version": 8, "operation": "decode_message", "provenance": OURS, "cases": cases}}


def _body(fields: bytes, tensors: bytes = b"") -> bytes:
    return struct.pack("<I", len(fields)) + fields + tensors


def _pack(value: object) -> bytes:
    return msgpack.packb(value, use_bin_type=True)


def _map(*entries: tuple[str, bytes]) -> bytes:
    """A map whose values are given as raw msgpack, so that they may be anything."""
    return bytes([0x80 + len(entries)]) + b"".join(_pack(key) + value for key, value in entries)


KIND_KEYS, KIND_BOXES, KIND_VECTOR = "example.round-keys", "example.boxes", "example.masked-input"
KIND_EVERYTHING, KIND_INTERVAL, KIND_RATIO = "example.everything", "example.interval", "example.ratio"
KEY, SIGNATURE = _pack(bytes(32)), _pack(bytes(64))
KEYS = _map(("key", KEY), ("signature", SIGNATURE))
BOXES = _map(("boxes", _pack({"alice": b"a"})))
VECTOR = _map(("vector", _pack(["<u8", 1])))
WORD = bytes(8)
GAP = bytes(-(4 + len(VECTOR)) % 8)
MANY = b"\xdf" + struct.pack(">I", 2**32 - 1)

BadBodies = dict[WireDefect, list[tuple[str, str, bytes]]]


def _broken_structure() -> BadBodies:
    return {
        WireDefect.TRUNCATED: [
            ("no bytes at all", KIND_KEYS, b""),
            ("half a length", KIND_KEYS, b"\x01\x00"),
            ("fields shorter than their length", KIND_KEYS, _body(KEYS)[:-1]),
            ("fields end in a value", KIND_KEYS, _body(KEYS[:-1])),
            ("fields end before a value", KIND_KEYS, _body(_map(("key", KEY), ("signature", b"")))),
            ("byte string of 4 GiB announced", KIND_KEYS, _body(_map(("key", b"\xc6\xff\xff\xff\xff")))),
            ("tensor shorter than announced", KIND_VECTOR, _body(VECTOR, GAP + WORD[:-1])),
            (
                "tensor of 2^64 - 1 numbers announced",
                KIND_VECTOR,
                _body(_map(("vector", _pack(["<u8", 2**64 - 1])))),
            ),
            (
                "array longer than the fields",
                KIND_EVERYTHING,
                _body(_map(("order", b"\xdd\x00\x00\xff\xff"))),
            ),
        ],
        WireDefect.LEFTOVER_BYTES: [
            ("after the fields", KIND_KEYS, _body(KEYS + b"\xc0")),
            ("after a body without tensors", KIND_KEYS, _body(KEYS) + b"\x00"),
            ("after the tensor", KIND_VECTOR, _body(VECTOR, GAP + WORD + b"\x00")),
        ],
        WireDefect.OVERSIZE: [
            ("fields larger than allowed", KIND_KEYS, struct.pack("<I", 2**32 - 1) + KEYS),
            ("map of 2^32 - 1 fields", KIND_KEYS, _body(MANY)),
            ("map of 2^32 - 1 parties", KIND_BOXES, _body(_map(("boxes", MANY)))),
            ("array of 2^32 - 1 items", KIND_EVERYTHING, _body(_map(("order", b"\xdd\xff\xff\xff\xff")))),
        ],
        WireDefect.UNKNOWN_KIND: [("nobody registered it", "example.unheard-of", _body(b"\x80"))],
        WireDefect.UNKNOWN_FIELD: [
            ("one more than the message has", KIND_KEYS, _body(_map(("key", KEY), ("kez", KEY)))),
            ("stamp inside the body", KIND_KEYS, _body(_map(("stamp", _pack([b"", 0, 0, b""]))))),
            ("key is a number", KIND_KEYS, _body(b"\x81\x01\x02")),
            (
                "record with one value more",
                KIND_EVERYTHING,
                _body(_map(("share", _pack(["carol", 1, None, 2])))),
            ),
        ],
        WireDefect.MISSING_FIELD: [
            ("signature", KIND_KEYS, _body(_map(("key", KEY)))),
            ("all", KIND_KEYS, _body(b"\x80")),
            ("record with one value less", KIND_EVERYTHING, _body(_map(("share", _pack(["carol", 1]))))),
        ],
        WireDefect.DUPLICATE_KEY: [
            ("field twice", KIND_KEYS, _body(_map(("key", KEY), ("key", KEY)))),
            (
                "party twice",
                KIND_BOXES,
                _body(_map(("boxes", _map(("alice", _pack(b"a")), ("alice", _pack(b"a")))))),
            ),
        ],
    }


def _broken_values() -> BadBodies:
    return {
        WireDefect.WRONG_TYPE: [
            ("fields are an array", KIND_KEYS, _body(_pack([bytes(32), bytes(64)]))),
            ("text for bytes", KIND_KEYS, _body(_map(("key", _pack("x" * 32)), ("signature", SIGNATURE)))),
            ("integer for float", KIND_RATIO, _body(_map(("ratio", b"\x01")))),
            ("nil for bytes", KIND_KEYS, _body(_map(("key", b"\xc0"), ("signature", SIGNATURE)))),
            ("boolean for integer", KIND_INTERVAL, _body(_map(("first", b"\xc3"), ("last", b"\x01")))),
            ("array for map", KIND_BOXES, _body(_map(("boxes", _pack([]))))),
            ("number for party", KIND_BOXES, _body(_map(("boxes", b"\x81\x01\xc4\x00")))),
            ("bytes for tensor", KIND_VECTOR, _body(_map(("vector", _pack(bytes(8)))))),
            ("tensor without count", KIND_VECTOR, _body(_map(("vector", _pack(["<u8"]))))),
            ("tensor of another dtype", KIND_VECTOR, _body(_map(("vector", _pack([">u8", 1]))), GAP + WORD)),
            ("tensor of negative count", KIND_VECTOR, _body(_map(("vector", _pack(["<u8", -1]))))),
        ],
        WireDefect.OUT_OF_BOUNDS: [
            ("31 bytes for 32", KIND_KEYS, _body(_map(("key", _pack(bytes(31))), ("signature", SIGNATURE)))),
            ("negative integer", KIND_INTERVAL, _body(_map(("first", b"\xff"), ("last", b"\x01")))),
            ("integer of 2^48", KIND_INTERVAL, _body(_map(("first", b"\x01"), ("last", _pack(2**48))))),
            (
                "integer of 2^64 - 1",
                KIND_INTERVAL,
                _body(_map(("first", b"\x01"), ("last", _pack(2**64 - 1)))),
            ),
            ("rule over two fields", KIND_INTERVAL, _body(_map(("first", b"\x02"), ("last", b"\x01")))),
            ("not a number", KIND_RATIO, _body(_map(("ratio", _pack(float("nan")))))),
            ("infinity", KIND_RATIO, _body(_map(("ratio", _pack(float("inf")))))),
            ("not a party name", KIND_BOXES, _body(_map(("boxes", _pack({"Al ice": b""}))))),
            ("513 bytes for at most 512", KIND_BOXES, _body(_map(("boxes", _pack({"alice": bytes(513)}))))),
        ],
        WireDefect.BAD_TEXT: [
            ("field name is not UTF-8", KIND_KEYS, _body(b"\x81\xa1\xff\xc0")),
            ("party is not UTF-8", KIND_BOXES, _body(_map(("boxes", b"\x81\xa1\xff\xc4\x00")))),
        ],
        WireDefect.NESTING: [
            ("map for bytes", KIND_KEYS, _body(_map(("key", b"\x80"), ("signature", SIGNATURE)))),
            ("arrays a thousand deep", KIND_KEYS, _body(_map(("key", b"\x91" * 1000)))),
            ("map as key", KIND_BOXES, _body(_map(("boxes", b"\x81\x80\xc4\x00")))),
        ],
        WireDefect.EXTENSION_TYPE: [
            ("timestamp", KIND_KEYS, _body(_map(("key", b"\xd6\xff\x00\x00\x00\x00")))),
            ("empty extension", KIND_KEYS, _body(_map(("key", b"\xc7\x00\x01")))),
            ("reserved byte", KIND_KEYS, _body(_map(("key", b"\xc1")))),
        ],
    }


def _other_forms() -> BadBodies:
    return {
        WireDefect.NOT_CANONICAL: [
            ("fields in another order", KIND_KEYS, _body(_map(("signature", SIGNATURE), ("key", KEY)))),
            (
                "parties in another order",
                KIND_BOXES,
                _body(_map(("boxes", _pack({"bob": b"", "alice": b""})))),
            ),
            ("float of 32 bits", KIND_RATIO, _body(_map(("ratio", b"\xca\x3f\x00\x00\x00")))),
            ("longer form of a map", KIND_BOXES, _body(b"\xde\x00\x01" + BOXES[1:])),
            (
                "longer form of an integer",
                KIND_INTERVAL,
                _body(_map(("first", b"\xcc\x01"), ("last", b"\x02"))),
            ),
            (
                "signed form of an integer",
                KIND_INTERVAL,
                _body(_map(("first", b"\xd0\x01"), ("last", b"\x02"))),
            ),
            (
                "longer form of a byte string",
                KIND_KEYS,
                _body(_map(("key", b"\xc5\x00\x20" + bytes(32)), ("signature", SIGNATURE))),
            ),
            ("padding that is not zero", KIND_VECTOR, _body(VECTOR, b"\x01" * len(GAP) + WORD)),
        ],
    }


def _wire_bad() -> dict[str, Json]:
    return {
        f"wire_bad_{defect.name.removeprefix('BAD_').lower()}": {
            "version": 8,
            "operation": "decode_message",
            "provenance": DEFECT,
            "error": AbortReason.BAD_ENCODING.name,
            "defect": defect.name,
            "cases": [
                {"name": name, "kind": kind, "stamp": stamp_json(STAMP), "body": body.hex()}
                for name, kind, body in cases
            ],
        }
        for defect, cases in (_broken_structure() | _broken_values() | _other_forms()).items()
    }


def build() -> dict[str, Json]:
    """Every generated file by name, without its suffix."""
    return {**_wire(), **_wire_bad()}


def main() -> None:
    for name, content in build().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
