"""Write the test vectors of the keys, signatures, agreements, boxes and seals.

    python tests/support/make_vectors_crypto.py

The script is deterministic: every input is a hash of its own description, or a value of a published
standard, except for RSA keys, which stand in `sealing_keys.json` and are made only if that file is missing.
A test compares what `build()` returns with what stands in the folder. The files `*_rfc<number>.json` are
copied from the standards by hand and are not touched.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.tables.line_handshake import line_case
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.boxes import seal_box
from veilsum.protocol.crypto.kdf import KeyContext, Purpose, derive_key
from veilsum.protocol.crypto.lines import LineEnds
from veilsum.protocol.crypto.sealing import RsaPrivateKey, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import PartyId

FOLDER = Path(__file__).parents[2] / "specs" / "vectors" / "v8"
OURS = "Made by tests/support/make_vectors_crypto.py; inputs are SHAKE-256 of 'veilsum vector: <name>'."
DEFECT = OURS + " Each case is a good one with the one defect that the file is named after."

Json = dict[str, Any]


def build() -> dict[str, Json]:
    """Every generated file by name, without its suffix."""
    return {
        **_kdf(),
        **_signing(),
        **_agreement(),
        **_boxes(),
        **_lines(),
        **_sealing(_sealing_keys()),
    }


def _fixed(name: str, size: int = 32) -> bytes:
    return hashlib.shake_256(f"veilsum vector: {name}".encode()).digest(size)


def _file(operation: str, cases: list[Json], provenance: str = OURS) -> Json:
    return {"version": 8, "operation": operation, "provenance": provenance, "cases": cases}


def _bad(operation: str, error: str, cases: list[Json], provenance: str = DEFECT) -> Json:
    return {"version": 8, "operation": operation, "provenance": provenance, "error": error, "cases": cases}


def _flip(value: bytes, position: int = 0) -> bytes:
    return value[:position] + bytes([value[position] ^ 1]) + value[position + 1 :]


def _kdf() -> dict[str, Json]:
    full = {
        "session": _fixed("session").hex(),
        "round": 7,
        "attempt": 2,
        "sender": "alice",
        "receiver": "bob",
        "term": "gradient",
        "group": 3,
        "model_hash": _fixed("model").hex(),
    }
    bare = {**full, "round": 0, "attempt": 0, "receiver": "", "term": "", "group": 0, "model_hash": ""}
    largest = {**full, "round": 2**64 - 1, "attempt": 2**64 - 1, "group": 2**64 - 1, "term": "größe"}
    secret = _fixed("kdf secret")
    cases = [_kdf_case(secret, purpose.value, full) for purpose in Purpose]
    cases += [_kdf_case(secret, "pair-mask", context) for context in (bare, largest)]
    refused = {"secret": secret.hex(), "purpose": "pair-mask"}
    return {
        "kdf": _file("derive_key", cases),
        "kdf_bad_length": _bad(
            "derive_key",
            "LocalProtocolError",
            [
                {"secret": secret[:31].hex(), "purpose": "pair-mask", "context": full},
                {**refused, "context": {**full, "session": _fixed("session")[:31].hex()}},
                {**refused, "context": {**full, "model_hash": "00"}},
                {**refused, "context": {**full, "sender": "a" * 256}},
            ],
        ),
        "kdf_bad_counter": _bad(
            "derive_key",
            "LocalProtocolError",
            [
                {**refused, "context": {**full, name: value}}
                for name in ("round", "attempt", "group")
                for value in (-1, 2**64)
            ],
        ),
    }


def _kdf_case(secret: bytes, purpose: str, context: Json) -> Json:
    parsed = KeyContext(
        **{
            **context,
            "session": bytes.fromhex(context["session"]),
            "model_hash": bytes.fromhex(context["model_hash"]),
        }
    )
    key = derive_key(Secret(secret), Purpose(purpose), parsed)
    return {"secret": secret.hex(), "purpose": purpose, "context": context, "key": key.reveal().hex()}


def _signing() -> dict[str, Json]:
    key = SigningKey.from_private(Secret(_fixed("signing key")))
    digest = _fixed("signed content")
    signature = key.sign("roster", digest)
    good = {
        "public": key.public.hex(),
        "domain": "roster",
        "digest": digest.hex(),
        "signature": signature.hex(),
    }
    other = SigningKey.from_private(Secret(_fixed("other signing key")))
    order = 2**252 + 27742317777372353535851937790883648493
    scalar = int.from_bytes(signature[32:], "little") + order
    malleable = signature[:32] + scalar.to_bytes(32, "little")
    prime = 2**255 - 19
    order_eight = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
    small = [0, 1, prime - 1, order_eight, prime - order_eight]
    return {
        "signing": _file("sign", [{"private": key.private.reveal().hex(), **good}]),
        "signing_bad_signature": _bad(
            "verify",
            "BAD_SIGNATURE",
            [
                {**good, "signature": _flip(signature).hex()},
                {**good, "signature": _flip(signature, 63).hex()},
                {**good, "signature": signature[:63].hex()},
                {**good, "signature": malleable.hex()},
                {**good, "digest": _fixed("other content").hex()},
                {**good, "domain": "envelope"},
                {**good, "public": other.public.hex()},
            ],
        ),
        "signing_bad_key_length": _bad("verify", "BAD_KEY", [{**good, "public": key.public[:31].hex()}]),
        "signing_bad_key_small_order": _bad(
            "verify",
            "BAD_KEY",
            [
                {
                    **good,
                    "public": (y + sign).to_bytes(32, "little").hex(),
                    "signature": "01" + 63 * "00",
                }
                for y in small
                for sign in (0, 2**255)
            ],
            "The y coordinates of the points whose order divides eight, with both signs of x. The signature"
            " is the identity point and the scalar 0, which holds for every message under the identity key.",
        ),
        "signing_bad_key_noncanonical": _bad(
            "verify",
            "BAD_KEY",
            [{**good, "public": (prime + y).to_bytes(32, "little").hex()} for y in (0, 1, 3, 18)],
            "The y coordinate plus the field prime 2^255 - 19, which names the same point a second time.",
        ),
    }


def _agreement() -> dict[str, Json]:
    alice, bob = (AgreementKey.from_private(Secret(_fixed(f"agreement {who}"))) for who in ("alice", "bob"))
    private = alice.private.reveal().hex()
    prime = 2**255 - 19
    order_eight = (
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
    low = [0, 1, *order_eight, prime - 1]
    return {
        "agreement": _file("agree", [_agreement_case(alice, bob), _agreement_case(bob, alice)]),
        "agreement_bad_length": _bad(
            "agree",
            "BAD_KEY",
            [
                {"private": private, "their_public": bob.public[:31].hex()},
                {"private": private, "their_public": bob.public.hex() + "00"},
            ],
        ),
        "agreement_bad_low_order": _bad(
            "agree",
            "BAD_KEY",
            [{"private": private, "their_public": u.to_bytes(32, "little").hex()} for u in low],
            "The canonical u coordinates of the points of order dividing eight, on the curve and its twist.",
        ),
        "agreement_bad_noncanonical": _bad(
            "agree",
            "BAD_KEY",
            [
                {"private": private, "their_public": (prime + 9).to_bytes(32, "little").hex()},
                {"private": private, "their_public": (bob.public[:31] + bytes([bob.public[31] | 128])).hex()},
                {
                    "private": "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                    "their_public": "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
                },
            ],
            "A value plus the field prime; a set top bit; and the second vector of RFC 7748 section 5.2,"
            " whose top bit is set: a receiver may ignore that bit, this protocol refuses it.",
        ),
        "agreement_bad_reflected": _bad(
            "agree", "BAD_KEY", [{"private": private, "their_public": alice.public.hex()}]
        ),
    }


def _agreement_case(ours: AgreementKey, theirs: AgreementKey) -> Json:
    exchange = X25519PrivateKey.from_private_bytes(ours.private.reveal()).exchange
    return {
        "private": ours.private.reveal().hex(),
        "public": ours.public.hex(),
        "their_public": theirs.public.hex(),
        "curve_output": exchange(X25519PublicKey.from_public_bytes(theirs.public)).hex(),
        "agreed": ours.agree(theirs.public).reveal().hex(),
    }


def _boxes() -> dict[str, Json]:
    key, associated, text = _fixed("box key"), _fixed("box header"), _fixed("box content", 48)
    box = seal_box(Secret(key), text, associated)
    good = {"key": key.hex(), "associated": associated.hex(), "box": box.hex()}
    empty = seal_box(Secret(key), b"", b"").hex()
    return {
        "boxes": _file(
            "seal_box",
            [
                {**good, "plaintext": text.hex()},
                {"key": key.hex(), "associated": "", "plaintext": "", "box": empty},
            ],
        ),
        "boxes_bad_content": _bad(
            "open_box",
            "BAD_SEAL",
            [
                {**good, "box": _flip(box).hex()},
                {**good, "box": _flip(box, len(box) - 1).hex()},
                {**good, "box": box[:-1].hex()},
                {**good, "box": box[:15].hex()},
                {**good, "box": ""},
            ],
        ),
        "boxes_bad_associated": _bad("open_box", "BAD_SEAL", [{**good, "associated": ""}]),
        "boxes_bad_key": _bad("open_box", "BAD_SEAL", [{**good, "key": _fixed("other box key").hex()}]),
    }


def _lines() -> dict[str, Json]:
    good = line_case("first", _fixed)
    other = line_case("second", _fixed)
    opened, accepted = bytes.fromhex(good["open"]), bytes.fromhex(good["accept"])
    ends = LineEnds(b"federation", PartyId("alice"), PartyId("bob"))
    low_order = opened[:16] + bytes(32)
    low_order += SigningKey.from_private(Secret(_fixed("opener signs"))).sign(
        "line-open", ends.open_digest(low_order)
    )

    def bad(operation: str, error: str, *changes: Json) -> Json:
        return _bad(operation, error, [{**good, **change} for change in changes])

    swapped = {"opener": "bob", "accepter": "alice"}
    return {
        "line": _file("line", [good, other]),
        "line_bad_open": bad(
            "line_accept",
            "BAD_SIGNATURE",
            swapped,
            {"federation": b"another".hex()},
            {"accepter": "carol"},
            {"open": opened[:16].hex() + other["open"][32:96] + opened[48:].hex()},
            {"open": other["open"][:32] + opened[16:].hex()},
            {"open": _flip(opened, 100).hex()},
        ),
        "line_bad_open_key": bad("line_accept", "BAD_KEY", {"open": low_order.hex()}),
        "line_bad_open_length": bad("line_accept", "BAD_ENCODING", {"open": opened[:-1].hex()}, {"open": ""}),
        "line_bad_accept": bad(
            "line_accepted",
            "BAD_SIGNATURE",
            {"accept": accepted[:16].hex() + other["accept"][32:]},
            {"accept": accepted[:16].hex() + opened[:48].hex() + opened[48:].hex()},
            {"accept": _flip(accepted, 20).hex()},
            {"accepter": "carol"},
        ),
        "line_bad_accept_replay": bad("line_accepted", "REPLAY", {"accept": other["accept"]}),
        "line_bad_confirm": bad(
            "line_confirmed",
            "BAD_SIGNATURE",
            {"confirm": other["confirm"]},
            {"confirm": accepted[-64:].hex()},
        ),
        "line_bad_box": bad(
            "line_open", "BAD_SEAL", swapped, {"number": 8}, {"transcript": other["transcript"]}
        ),
    }


def _sealing(keys: Json) -> dict[str, Json]:
    by_name = {case["name"]: bytes.fromhex(case["der"]) for case in keys["cases"]}
    label, text, salt = _fixed("sealed header"), _fixed("sealed seed"), _fixed("sealing randomness")
    cases = []
    for name in ("real", "simulation"):
        private = RsaPrivateKey.from_der(Secret(by_name[name]))
        cases += [
            {
                "private": name,
                "label": label.hex(),
                "random": salt.hex(),
                "plaintext": plaintext.hex(),
                "ciphertext": seal(private.public, plaintext, label, lambda _: salt).hex(),
            }
            for plaintext in (b"", text, _fixed("longest sealed", 318))
        ]
    good = {name: cases[1][name] for name in ("private", "label", "ciphertext")}
    ciphertext = bytes.fromhex(good["ciphertext"])
    public = RSA.import_key(by_name["real"]).public_key()
    der = public.export_key("DER")
    n, half = int(public.n), 2**3071
    weak = {
        "size": [
            RSA.import_key(by_name["short"]).public_key().export_key("DER"),
            _public_der(n * half, 65537),
        ],
        "exponent": [_public_der(n, e) for e in (3, 17, 65541)],
        "encoding": [der[:-1], der + b"\0", public.export_key("PEM"), by_name["real"], b"", _pkcs1(n, 65537)],
    }
    return {
        "sealing_keys": keys,
        "sealing": _file("seal", cases),
        "sealing_bad_label": _bad("open_sealed", "BAD_SEAL", [{**good, "label": _fixed("other").hex()}]),
        "sealing_bad_ciphertext": _bad(
            "open_sealed",
            "BAD_SEAL",
            [
                {**good, "ciphertext": changed.hex()}
                for changed in (_flip(ciphertext), ciphertext[:-1], ciphertext + b"\0", b"", b"\xff" * 384)
            ],
        ),
        "sealing_bad_recipient": _bad("open_sealed", "BAD_SEAL", [{**good, "private": "simulation"}]),
        **{
            f"sealing_bad_key_{defect}": _bad("public_key", "BAD_KEY", [{"der": each.hex()} for each in ders])
            for defect, ders in weak.items()
        },
    }


def _public_der(n: int, e: int) -> bytes:
    exported: bytes = RSA.construct((n | 1, e), consistency_check=False).export_key("DER")
    return exported


def _pkcs1(n: int, e: int) -> bytes:
    """The bare RSAPublicKey structure of RFC 8017 without its SubjectPublicKeyInfo wrapper."""
    return rsa.RSAPublicNumbers(e, n).public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)


def _sealing_keys() -> Json:
    path = FOLDER / "sealing_keys.json"
    if path.exists():
        kept: Json = json.loads(path.read_text())
        return kept
    real = RSA.generate(3072)
    order = math.lcm(int(real.p) - 1, int(real.q) - 1)
    marked = RSA.construct((real.n, 65539, pow(65539, -1, order), real.p, real.q))
    keys = {"real": real, "simulation": marked, "short": RSA.generate(2048)}
    return _file(
        "private_key",
        [{"name": name, "der": key.export_key("DER", pkcs=8).hex()} for name, key in keys.items()],
        "Made once by this project with pycryptodome's RSA.generate and published here, so they protect"
        " nothing. 'simulation' has the primes of 'real' and the exponent 65539; 'short' has 2048 bits.",
    )


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in build().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
