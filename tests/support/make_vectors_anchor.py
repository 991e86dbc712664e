"""Writes the vectors of the anchor: `python tests/support/make_vectors_anchor.py`.

A transcription of specs/federation-file.md, section 13, and of the hashes of identities and rosters, which shares no
code with the package, so that the package and the vectors check each other.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parents[2] / "specs" / "vectors" / "v8"
PROVENANCE = (
    "Computed by tests/support/make_vectors_anchor.py, a transcription of specs/federation-file.md, section 13, that "
    "shares no code with the package."
)
OF_LOGINS = PROVENANCE.replace("federation-file.md, section 13", "keys.md, section 9")
DEFECT = f"{PROVENANCE} Each case is a good one with the defect that the file is named after."
ELECTORATES = (("alice",), ("alice", "bob"), ("alice", "bob", "carol", "dora-2"))
POSITIONS = (0, 1, 2**32, 2**63 - 1)
NO_MEMORY = hashlib.sha256(b"").digest()

# Public keys must be points of the curve: these are the keys of the private keys 1, 2 and 3 in 32 bytes, big endian.
KEYS = {
    "alice": "4cb5abf6ad79fbf5abbccafcc269d85cd2651ed4b885b5869f241aedf0a5ba29",
    "bob": "7422b9887598068e32c4448a949adb290d0f4e35b9e01b0ee5f1a1e600fe2674",
    "server": "f381626e41e7027ea431bfe3009e94bdd25a746beec468948d6c3c7c5dc9a54b",
}
ROLES = {"alice": "client", "bob": "client", "server": "server"}

Json = dict[str, Any]


def fixed(name: str) -> bytes:
    return hashlib.shake_256(f"veilsum vector: {name}".encode()).digest(32)


def hashed(tag: str, *parts: bytes) -> bytes:
    """SHA-256 of the parts behind a tag, each with its length in front."""
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in (b"veilsum/v8/" + tag.encode(), *parts))
    return hashlib.sha256(framed).digest()


def u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def state_hash(chain: bytes, position: int, before: bytes, model: bytes, memory: bytes) -> bytes:
    return hashed("state", chain, u64(position), before, model, memory)


def anchor_digest(
    chain: bytes, position: int, state: bytes, electorate: tuple[str, ...], checkpoint: int
) -> bytes:
    return hashed(
        "anchor", chain, u64(position), state, u64(checkpoint), *(name.encode() for name in electorate)
    )


def roster_digest(version: int, anchor: bytes | None) -> bytes:
    identities = [
        hashed("identity", name.encode(), ROLES[name].encode(), bytes.fromhex(key), b"")
        for name, key in sorted(KEYS.items())
    ]
    return hashed("roster", u64(version), *identities, *([] if anchor is None else [anchor]))


def anchor_case(position: int, electorate: tuple[str, ...]) -> Json:
    label = f"{position} {' '.join(electorate)}"
    chain, model = fixed(f"chain {label}"), fixed(f"model {label}")
    before = fixed(f"before {label}") if position else b""
    memory = fixed(f"memory {label}") if position else NO_MEMORY
    state = state_hash(chain, position, before, model, memory)
    checkpoint = position % 3
    digest = anchor_digest(chain, position, state, electorate, checkpoint)
    return {
        "name": f"position {position}, {len(electorate)} voters",
        "chain": chain.hex(),
        "position": position,
        "before": before.hex(),
        "model_hash": model.hex(),
        "memory_hash": memory.hex(),
        "state_hash": state.hex(),
        "electorate": list(electorate),
        "checkpoint": checkpoint,
        "digest": digest.hex(),
        "version": 3,
        "identities": [{"name": name, "role": ROLES[name], "verify_key": key} for name, key in KEYS.items()],
        "roster_digest": roster_digest(3, digest).hex(),
        "roster_digest_without": roster_digest(3, None).hex(),
    }


def first_model_case(name: str, length: int) -> Json:
    model = fixed(f"first model {name}")
    return {
        "name": name,
        "length": length,
        "model_hash": model.hex(),
        "digest": hashed("first-model", name.encode(), u64(length), model).hex(),
    }


def login_case(name: str) -> Json:
    """What a party signs of its login for the broker."""
    line = (
        f"{name}:$7$1000${base64.b64encode(bytes(12)).decode()}${base64.b64encode(fixed(name) * 2).decode()}"
    )
    identity = hashed("identity", name.encode(), ROLES[name].encode(), bytes.fromhex(KEYS[name]), b"")
    return {
        "name": name,
        "role": ROLES[name],
        "verify_key": KEYS[name],
        "login": line,
        "digest": hashed("login", identity, line.encode()).hex(),
    }


def bad_cases() -> list[Json]:
    good = anchor_case(1, ELECTORATES[1])
    kept = {key: good[key] for key in ("chain", "position", "state_hash", "electorate", "checkpoint")}
    changes: dict[str, Json] = {
        "nobody": {"electorate": []},
        "out of order": {"electorate": ["bob", "alice"]},
        "twice": {"electorate": ["alice", "alice"]},
        "the server": {"electorate": ["alice", "server"]},
        "no party name": {"electorate": ["Alice"]},
    }
    return [{"name": name, **kept, **change} for name, change in changes.items()]


def build() -> dict[str, Json]:
    """Every file by name, without its suffix."""
    anchors = [anchor_case(position, names) for position in POSITIONS for names in ELECTORATES]
    stated = [first_model_case("alice", 1), first_model_case("dora-2", 2**40)]
    return {
        "anchor": {"version": 8, "operation": "anchor", "provenance": PROVENANCE, "cases": anchors},
        "anchor_bad_electorate": {
            "version": 8,
            "operation": "anchor",
            "provenance": DEFECT,
            "error": "ParameterError",
            "cases": bad_cases(),
        },
        "first_model": {
            "version": 8,
            "operation": "first_model",
            "provenance": PROVENANCE,
            "cases": stated,
        },
        "login": {
            "version": 8,
            "operation": "login",
            "provenance": OF_LOGINS,
            "cases": [login_case(name) for name in KEYS],
        },
    }


if __name__ == "__main__":
    for file, content in build().items():
        (VECTORS / f"{file}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
