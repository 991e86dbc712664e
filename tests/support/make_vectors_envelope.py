"""Write the test vectors of signed envelopes.

    python -m tests.support.make_vectors_envelope

The script is deterministic: every input is written out here, and the signing keys are hashes of their own
descriptions. A test compares what `build()` returns with what stands in the folder.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.wire_examples import Empty, MaskedInput
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.defects import WireDefect
from veilsum.protocol.wire.envelope import Body, Envelope, Expectation, encode_envelope, join, sign_envelope
from veilsum.protocol.wire.header import Header
from veilsum.protocol.wire.messages import Stamp

FOLDER = Path(__file__).parents[2] / "specs" / "vectors" / "v8"
OURS = "Made by tests/support/make_vectors_envelope.py with the messages of tests/support/wire_examples.py."
DEFECT = OURS + " Each case has the one defect that the file is named after."

Json = dict[str, Any]

ALICE, BOB, CAROL = PartyId("alice"), PartyId("bob"), PartyId("carol")
SESSION, MODEL = bytes(range(32)), bytes(range(32, 64))
ROSTER, CONFIG = bytes([0xAA]) * 32, bytes([0xBB]) * 32
STAMP = Stamp(SESSION, round=3, attempt=1, model_hash=MODEL)
EXPECTED = Expectation(BOB, SESSION, ROSTER, CONFIG)
SIGNING_KEY = SigningKey(Secret(hashlib.sha256(b"veilsum vector: envelope signing key").digest()))
OTHER_KEY = SigningKey(Secret(hashlib.sha256(b"veilsum vector: another signing key").digest()))


def good_header(**changed: Any) -> Header:
    parts: Json = {
        "kind": "example.masked-input",
        "session": SESSION,
        "round": 3,
        "attempt": 1,
        "phase": "masking",
        "sender": ALICE,
        "receiver": BOB,
        "sequence": 41,
        "roster_hash": ROSTER,
        "config_hash": CONFIG,
        "model_hash": MODEL,
    }
    return Header(**(parts | changed))


def good_body() -> Body:
    return Body.of(MaskedInput(STAMP, np.array([1, 2**32, 2**64 - 1], "<u8")))


def good_envelope() -> Envelope:
    return sign_envelope(good_header(), good_body(), SIGNING_KEY)


def header_json(header: Header) -> Json:
    parts = {name: getattr(header, name) for name in header.__dataclass_fields__}
    return {name: part.hex() if isinstance(part, bytes) else part for name, part in parts.items()}


def _expected_json() -> Json:
    return {
        "receiver": EXPECTED.receiver,
        "session": EXPECTED.session.hex(),
        "roster_hash": EXPECTED.roster_hash.hex(),
        "config_hash": EXPECTED.config_hash.hex(),
    }


def _envelope() -> dict[str, Json]:
    before_session = good_header(
        kind="example.empty", session=b"", model_hash=b"", round=0, attempt=0, phase="opening"
    )
    envelopes = {
        "one vector": good_envelope(),
        "before a session": sign_envelope(before_session, Body.of(Empty(Stamp())), SIGNING_KEY),
    }
    cases = [
        {
            "name": name,
            "header": header_json(envelope.header),
            "header_bytes": envelope.header.encode().hex(),
            "header_digest": envelope.header.digest.hex(),
            "body": envelope.body.view().hex(),
            "body_digest": envelope.body.digest.hex(),
            "signed_digest": envelope.digest.hex(),
            "private_key": SIGNING_KEY.private.reveal().hex(),
            "public_key": SIGNING_KEY.public.hex(),
            "envelope": join(encode_envelope(envelope)).hex(),
        }
        for name, envelope in envelopes.items()
    ]
    return {"envelope": {"version": 8, "operation": "open_envelope", "provenance": OURS, "cases": cases}}


def _undecodable_envelopes() -> dict[WireDefect, list[tuple[str, bytes]]]:
    header, body = good_header().encode(), good_body()
    good = join(encode_envelope(good_envelope()))
    length = struct.pack("<Q", len(body))
    signature = good_envelope().signature
    front = header + length + signature
    gap = -len(front) % 8
    sender = header.index(b"\x05alice")
    beyond = {"2^48": struct.pack("<Q", 2**48), "2^64 - 1": b"\xff" * 8}
    return {
        WireDefect.NOT_AN_ENVELOPE: [("no bytes at all", b""), ("other magic", b"VSUN" + good[4:])],
        WireDefect.WRONG_VERSION: [
            ("version 2", good[:4] + b"\x02\x00" + good[6:]),
            ("no more than a version", good[:4] + b"\x02\x00\x01\x00"),
        ],
        WireDefect.WRONG_SUITE: [("suite 2", good[:6] + b"\x02\x00" + good[8:])],
        WireDefect.TRUNCATED: [
            ("in the magic", good[:3]),
            ("in the version", good[:7]),
            ("in the counters", good[:31]),
            ("in the sender", good[: sender + 3]),
            ("before the body length", header),
            ("in the signature", front[:-1]),
            ("in the body", good[:-1]),
        ],
        WireDefect.LEFTOVER_BYTES: [("after the body", good + b"\x00")],
        WireDefect.OVERSIZE: [("body of 2^64 - 1 bytes", header + b"\xff" * 8 + good[len(header) + 8 :])],
        WireDefect.BAD_TEXT: [("sender is not ASCII", good[: sender + 1] + b"\xff" + good[sender + 2 :])],
        WireDefect.OUT_OF_BOUNDS: [
            *((f"round {words}", good[:8] + number + good[16:]) for words, number in beyond.items()),
            *((f"attempt {words}", good[:16] + number + good[24:]) for words, number in beyond.items()),
            ("sender is no party name", good[: sender + 1] + b"A" + good[sender + 2 :]),
            (
                "sender is the receiver",
                good_header(sender=CAROL).encode().replace(b"\x05carol", b"\x03bob") + good[len(header) :],
            ),
            (
                "session of 31 bytes",
                header.replace(b"\x20" + SESSION, b"\x1f" + SESSION[:31]) + good[len(header) :],
            ),
            (
                "kind of 65 bytes",
                header.replace(b"\x14example.masked-input", b"\x41" + b"k" * 65) + good[len(header) :],
            ),
        ],
        WireDefect.NOT_CANONICAL: [("padding that is not zero", front + b"\x01" * gap + bytes(body.view()))],
    }


def _unacceptable_envelopes() -> dict[AbortReason, list[tuple[str, Envelope]]]:
    body = good_body()
    good = good_envelope()

    def signed(**changed: Any) -> Envelope:
        return sign_envelope(good_header(**changed), body, SIGNING_KEY)

    other_body = Body.of(MaskedInput(STAMP, np.array([1, 2**32, 2**64 - 2], "<u8")))
    return {
        AbortReason.WRONG_RECEIVER: [("for carol", signed(receiver=CAROL))],
        AbortReason.WRONG_SESSION: [
            ("another session", signed(session=MODEL)),
            ("no session", signed(session=b"")),
        ],
        AbortReason.WRONG_ROSTER: [("another roster", signed(roster_hash=CONFIG))],
        AbortReason.WRONG_CONFIG: [("another configuration", signed(config_hash=ROSTER))],
        AbortReason.BAD_SIGNATURE: [
            ("other key", sign_envelope(good_header(), body, OTHER_KEY)),
            (
                "one bit of the signature",
                Envelope(good.header, body, bytes([good.signature[0] ^ 1]) + good.signature[1:]),
            ),
            ("other body", Envelope(good.header, other_body, good.signature)),
            *(
                (f"other {name}", Envelope(good_header(**{name: value}), body, good.signature))
                for name, value in [
                    ("kind", "example.boxes"),
                    ("round", 4),
                    ("attempt", 2),
                    ("phase", "unmasking"),
                    ("sender", CAROL),
                    ("sequence", 42),
                    ("model_hash", SESSION),
                ]
            ),
        ],
    }


def _envelope_bad() -> dict[str, Json]:
    common: Json = {"version": 8, "provenance": DEFECT}
    files: dict[str, Json] = {}
    for defect, undecodable in _undecodable_envelopes().items():
        wrong_version = defect in (WireDefect.WRONG_VERSION, WireDefect.WRONG_SUITE)
        files[f"envelope_bad_{defect.name.removeprefix('BAD_').lower()}"] = {
            **common,
            "operation": "decode_envelope",
            "error": (AbortReason.WRONG_VERSION if wrong_version else AbortReason.BAD_ENCODING).name,
            "defect": defect.name,
            "cases": [{"name": name, "envelope": data.hex()} for name, data in undecodable],
        }
    for reason, unacceptable in _unacceptable_envelopes().items():
        files[f"envelope_bad_{reason.name.removeprefix('BAD_').lower()}"] = {
            **common,
            "operation": "open_envelope",
            "error": reason.name,
            "public_key": SIGNING_KEY.public.hex(),
            "expected": _expected_json(),
            "cases": [
                {"name": name, "envelope": join(encode_envelope(envelope)).hex()}
                for name, envelope in unacceptable
            ],
        }
    return files


def build() -> dict[str, Json]:
    """Every generated file by name, without its suffix."""
    return {**_envelope(), **_envelope_bad()}


def main() -> None:
    for name, content in build().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
