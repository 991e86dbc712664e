"""What specs/keys.md says of framing, hashes, signatures and keys, written a second time for vectors.

With hashlib and pycryptodome alone: it shares no code with the package, so that the package and the vectors check each
other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.DH import import_x25519_private_key, import_x25519_public_key, key_agreement
from Crypto.Protocol.KDF import HKDF
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

VECTORS = Path(__file__).resolve().parents[2] / "specs" / "vectors" / "v8"
TAG = b"veilsum/v8/"

Json = dict[str, Any]


def fixed(name: str, size: int = 32) -> bytes:
    return hashlib.shake_256(f"veilsum vector: {name}".encode()).digest(size)


def u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def hashed(tag: str, *parts: bytes) -> bytes:
    """SHA-256 of the parts behind a tag, each with its length in front."""
    return hashlib.sha256(framed(TAG + tag.encode(), *parts)).digest()


def listed(names: Iterable[str]) -> bytes:
    return "\n".join(names).encode()


def verify_key(private: bytes) -> bytes:
    return ECC.construct(curve="Ed25519", seed=private).public_key().export_key(format="raw")


def signed(private: bytes, domain: str, digest: bytes) -> bytes:
    key = ECC.construct(curve="Ed25519", seed=private)
    return eddsa.new(key, "rfc8032").sign(framed(TAG + f"signature/{domain}".encode()) + digest)


def hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    made = HKDF(secret, 32, salt, SHA256, context=info)
    assert isinstance(made, bytes)
    return made


def derived(secret: bytes, purpose: str, session: bytes, counters: tuple[int, int], *names: str) -> bytes:
    """A derived key of section 3, without model hash; the names are sender, receiver and term."""
    bound = framed(session, *(name.encode() for name in names), b"")
    info = framed(TAG + f"kdf/{purpose}".encode()) + b"".join(map(u64, (*counters, 0))) + bound
    return hkdf(secret, session, info)


def agreed(ours: bytes, theirs: bytes) -> bytes:
    """The agreement of section 6, of one private and one public key."""
    own = import_x25519_private_key(ours)
    raw = key_agreement(
        static_priv=own, static_pub=import_x25519_public_key(theirs), kdf=lambda output: output
    )
    assert isinstance(raw, bytes)
    return hkdf(raw, TAG + b"agreement", b"".join(sorted((agreement_public(ours), theirs))))


def agreement_public(private: bytes) -> bytes:
    return import_x25519_private_key(private).public_key().export_key(format="raw")


def boxed(key: bytes, content: bytes) -> bytes:
    """A one-use box of section 7."""
    return b"".join(AES.new(key, AES.MODE_GCM, nonce=bytes(12)).encrypt_and_digest(content))


def vector_file(operation: str, cases: list[Json], provenance: str, error: str = "") -> Json:
    told = {"error": error} if error else {}
    return {"version": 8, "operation": operation, "provenance": provenance, **told, "cases": cases}


def write_vectors(files: dict[str, Json]) -> None:
    for name, content in files.items():
        (VECTORS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def stored_vectors(name: str) -> Json:
    content = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content
