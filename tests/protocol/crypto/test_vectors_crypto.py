"""Every crypto vector of `specs/vectors/v8` holds for our code and for a second, independent implementation.

Our code uses `cryptography` for everything but RSA, where it uses pycryptodome; the second implementation
is the other library each time, with the framing written out again here. Good files must give the stated
values, and files named `*_bad_<defect>` the stated error.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.DH import import_x25519_private_key, import_x25519_public_key, key_agreement
from Crypto.Protocol.KDF import HKDF
from Crypto.Signature import eddsa
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_der_private_key

from tests.support.refusals import refusal
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import KeyContext, Purpose, derive_key, hkdf_sha256
from veilsum.protocol.crypto.sealing import RsaPrivateKey, RsaPublicKey, open_sealed, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey, verify_signature
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "specs" / "vectors" / "v8"
SUBJECTS = ("kdf", "signing", "agreement", "boxes", "sealing", "line")
FILES = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem.split("_")[0] in SUBJECTS)

Case = dict[str, Any]


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def cases_of(*, bad: bool) -> list[Any]:
    return [
        pytest.param(content["operation"], case, content.get("error"), id=f"{name}-{position}")
        for name in FILES
        for content in [load(name)]
        for position, case in enumerate(content["cases"])
        if ("error" in content) == bad and not name.startswith("line")
    ]


def from_hex(case: Case, *names: str) -> list[bytes]:
    return [bytes.fromhex(case[name]) for name in names]


def framed(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def other_hkdf(key_material: bytes, salt: bytes, info: bytes, size: int = 32) -> bytes:
    output = HKDF(key_material, size, salt, SHA256, 1, info)
    assert isinstance(output, bytes)
    return output


def other_derivation(secret: bytes, purpose: str, context: Case) -> bytes:
    session, model_hash = from_hex(context, "session", "model_hash")
    counters = struct.pack(">QQQ", context["round"], context["attempt"], context["group"])
    names = [context[name].encode() for name in ("sender", "receiver", "term")]
    info = framed(f"veilsum/v8/kdf/{purpose}".encode()) + counters + framed(session, *names, model_hash)
    return other_hkdf(secret, session, info)


def our_derivation(case: Case) -> bytes:
    session, model_hash = from_hex(case["context"], "session", "model_hash")
    context = KeyContext(**{**case["context"], "session": session, "model_hash": model_hash})
    return derive_key(Secret(bytes.fromhex(case["secret"])), Purpose(case["purpose"]), context).reveal()


def check_derive_key(case: Case) -> None:
    key = bytes.fromhex(case["key"])
    assert our_derivation(case) == key
    assert other_derivation(bytes.fromhex(case["secret"]), case["purpose"], case["context"]) == key


def check_hkdf(case: Case) -> None:
    key_material, salt, info, output = from_hex(case, "key_material", "salt", "info", "output")
    assert hkdf_sha256(key_material, salt=salt, info=info) == output[:32]
    assert other_hkdf(key_material, salt, info, len(output)) == output


def signed_bytes(case: Case) -> bytes:
    return framed(f"veilsum/v8/signature/{case['domain']}".encode()) + bytes.fromhex(case["digest"])


def check_sign(case: Case) -> None:
    private, public, digest, signature = from_hex(case, "private", "public", "digest", "signature")
    key = SigningKey.from_private(Secret(private))
    assert (key.public, key.sign(case["domain"], digest)) == (public, signature)
    verify_signature(public, case["domain"], digest, signature)
    assert eddsa.new(eddsa.import_private_key(private), "rfc8032").sign(signed_bytes(case)) == signature


def check_ed25519(case: Case) -> None:
    private, public, message, signature = from_hex(case, "private", "public", "message", "signature")
    assert SigningKey.from_private(Secret(private)).public == public
    assert Ed25519PrivateKey.from_private_bytes(private).sign(message) == signature
    assert eddsa.new(eddsa.import_private_key(private), "rfc8032").sign(message) == signature


def check_agree(case: Case) -> None:
    private, public, their_public, curve_output = from_hex(
        case, "private", "public", "their_public", "curve_output"
    )
    other_output = key_agreement(
        static_priv=import_x25519_private_key(private),
        static_pub=import_x25519_public_key(their_public),
        kdf=bytes,
    )
    agreed = other_hkdf(curve_output, b"veilsum/v8/agreement", b"".join(sorted((public, their_public))))
    key = AgreementKey.from_private(Secret(private))
    assert other_output == curve_output
    assert key.public == public
    assert key.agree(their_public).reveal() == agreed
    assert case.get("agreed", agreed.hex()) == agreed.hex()


def other_box(key: bytes, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    cipher = AES.new(key, AES.MODE_GCM, nonce=nonce)
    cipher.update(associated)
    content, tag = cipher.encrypt_and_digest(plaintext)
    return bytes(content + tag)


def check_seal_box(case: Case) -> None:
    key, plaintext, associated, box = from_hex(case, "key", "plaintext", "associated", "box")
    assert seal_box(Secret(key), plaintext, associated) == box
    assert open_box(Secret(key), box, associated) == plaintext
    assert other_box(key, bytes(12), plaintext, associated) == box


@functools.cache
def private_key(name: str) -> RsaPrivateKey:
    return RsaPrivateKey.from_der(Secret(private_der(name)))


@functools.cache
def other_private_key(name: str) -> rsa.RSAPrivateKey:
    key = load_der_private_key(private_der(name), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def private_der(name: str) -> bytes:
    return next(bytes.fromhex(key["der"]) for key in load("sealing_keys")["cases"] if key["name"] == name)


def check_seal(case: Case) -> None:
    private = private_key(case["private"])
    plaintext, label, random, ciphertext = from_hex(case, "plaintext", "label", "random", "ciphertext")
    assert seal(private.public, plaintext, label, lambda _: random) == ciphertext
    assert open_sealed(private, ciphertext, label).reveal() == plaintext
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label)
    assert other_private_key(case["private"]).decrypt(ciphertext, oaep) == plaintext


def check_private_key(case: Case) -> None:
    der = bytes.fromhex(case["der"])
    assert load_der_private_key(der, None) is not None
    if case["name"] == "short":
        with refusal(Rejection, 2048, reason=AbortReason.BAD_KEY):
            RsaPrivateKey.from_der(Secret(der))
    else:
        public = RsaPrivateKey.from_der(Secret(der)).public
        assert public.simulation_only == (case["name"] == "simulation")


CHECKS: dict[str, Callable[[Case], None]] = {
    "derive_key": check_derive_key,
    "hkdf": check_hkdf,
    "sign": check_sign,
    "ed25519": check_ed25519,
    "agree": check_agree,
    "seal_box": check_seal_box,
    "seal": check_seal,
    "private_key": check_private_key,
}


@pytest.mark.parametrize(("operation", "case", "_error"), cases_of(bad=False))
def test_good_vector_holds_in_both_libraries(operation: str, case: Case, _error: None) -> None:
    CHECKS[operation](case)


def try_verify(case: Case) -> None:
    public, digest, signature = from_hex(case, "public", "digest", "signature")
    verify_signature(public, case["domain"], digest, signature)


def try_agree(case: Case) -> None:
    private, their_public = from_hex(case, "private", "their_public")
    AgreementKey.from_private(Secret(private)).agree(their_public)


def try_open_box(case: Case) -> None:
    key, box, associated = from_hex(case, "key", "box", "associated")
    open_box(Secret(key), box, associated)


def try_open_sealed(case: Case) -> None:
    ciphertext, label = from_hex(case, "ciphertext", "label")
    open_sealed(private_key(case["private"]), ciphertext, label)


ATTEMPTS: dict[str, Callable[[Case], object]] = {
    "derive_key": our_derivation,
    "verify": try_verify,
    "agree": try_agree,
    "open_box": try_open_box,
    "open_sealed": try_open_sealed,
    "public_key": lambda case: RsaPublicKey.from_der(bytes.fromhex(case["der"])),
}


@pytest.mark.parametrize(("operation", "case", "error"), cases_of(bad=True))
def test_bad_vector_is_refused_with_its_error(operation: str, case: Case, error: str) -> None:
    expected = LocalProtocolError if error == "LocalProtocolError" else Rejection
    with pytest.raises(expected) as caught:
        ATTEMPTS[operation](case)
    assert error == "LocalProtocolError" or caught.value.reason.name == error  # type: ignore[attr-defined]


def other_verify(case: Case) -> None:
    public, signature = from_hex(case, "public", "signature")
    eddsa.new(eddsa.import_public_key(public), "rfc8032").verify(signed_bytes(case), signature)


def other_agree(case: Case) -> None:
    private, their_public = from_hex(case, "private", "their_public")
    private_key = import_x25519_private_key(private)
    public_key = import_x25519_public_key(their_public)
    key_agreement(static_priv=private_key, static_pub=public_key, kdf=bytes)


def other_open_box(case: Case) -> None:
    key, box, associated = from_hex(case, "key", "box", "associated")
    cipher = AES.new(key, AES.MODE_GCM, nonce=bytes(12))
    cipher.update(associated)
    cipher.decrypt_and_verify(box[:-16], box[-16:])


def other_open_sealed(case: Case) -> None:
    ciphertext, label = from_hex(case, "ciphertext", "label")
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), label)
    other_private_key(case["private"]).decrypt(ciphertext, oaep)


@pytest.mark.parametrize(
    ("name", "attempt"),
    [
        ("signing_bad_signature", other_verify),
        ("signing_bad_key_length", other_verify),
        ("agreement_bad_length", other_agree),
        ("agreement_bad_low_order", other_agree),
        ("boxes_bad_content", other_open_box),
        ("boxes_bad_associated", other_open_box),
        ("boxes_bad_key", other_open_box),
        ("sealing_bad_label", other_open_sealed),
        ("sealing_bad_ciphertext", other_open_sealed),
        ("sealing_bad_recipient", other_open_sealed),
    ],
)
def test_other_library_refuses_the_same_defects(name: str, attempt: Callable[[Case], None]) -> None:
    for case in load(name)["cases"]:
        with pytest.raises(ValueError):
            attempt(case)


def test_generator_reproduces_the_stored_vectors() -> None:
    """Regenerating gives the committed bytes, and no file is without a generator or a standard behind it."""
    path = ROOT / "tests" / "support" / "make_vectors_crypto.py"
    spec = importlib.util.spec_from_file_location("make_vectors_crypto", path)
    assert spec is not None and spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    built = generator.build()
    assert sorted(built) == [name for name in FILES if "_rfc" not in name]
    for name, content in built.items():
        assert load(name) == json.loads(json.dumps(content)), name


@pytest.mark.parametrize("name", FILES)
def test_vector_file_states_version_and_provenance(name: str) -> None:
    content = load(name)
    assert content["version"] == 8
    assert content["provenance"]
    assert content["cases"]
    assert ("error" in content) == ("_bad_" in name)
