"""Writes the vectors of group keys, dealt shares and hash trees: `python tests/support/make_vectors_shares.py`.

A transcription of sections 2 and 6 of specs/protocol.md that shares no code with the package.
"""

from __future__ import annotations

import hashlib

from tests.support.transcription import (
    TAG,
    Json,
    agreed,
    agreement_public,
    boxed,
    derived,
    fixed,
    framed,
    hashed,
    hkdf,
    signed,
    u64,
    vector_file,
    verify_key,
    write_vectors,
)

OURS = (
    "Computed by tests/support/make_vectors_shares.py, a transcription of specs/protocol.md that shares no code with "
    "the package; inputs are SHAKE-256 of 'veilsum vector: <name>'."
)
DEFECT = f"{OURS} Each case is a good one with the defect that the file is named after."
SESSION, ROUND, ATTEMPT = fixed("session"), 7, 2
HOLDERS = ("alice", "bob", "carol", "dora-2")
DEALER = "bob"
KINDS = ("self mask", "masking key")
STAMP = {"session": SESSION.hex(), "round": ROUND, "attempt": ATTEMPT}


def in_attempt(tag: str, *parts: bytes) -> bytes:
    return hashed(tag, SESSION, u64(ROUND), u64(ATTEMPT), *parts)


def node(left: bytes, right: bytes) -> bytes:
    return hashed("merkle-node", *sorted((left, right)))


def above(layer: list[bytes]) -> list[bytes]:
    pairs = [node(*layer[at : at + 2]) for at in range(0, len(layer) - 1, 2)]
    return [*pairs, *layer[2 * len(pairs) :]]


def path(leaves: list[bytes], place: int) -> list[bytes]:
    """The siblings of a leaf, from the bottom up."""
    if len(leaves) == 1:
        return []
    sibling = leaves[place ^ 1 : (place ^ 1) + 1]
    return [*sibling, *path(above(leaves), place // 2)]


def root(leaves: list[bytes]) -> bytes:
    return leaves[0] if len(leaves) == 1 else root(above(leaves))


def merkle_case(size: int) -> Json:
    leaves = [fixed(f"leaf {place}") for place in range(size)]
    return {
        "leaves": [leaf.hex() for leaf in leaves],
        "root": root(leaves).hex(),
        "paths": [[one.hex() for one in path(leaves, place)] for place in range(size)],
    }


def dealt_case() -> Json:
    dealer, seed = DEALER.encode(), fixed("self seed")
    shares = {holder: [fixed(f"{kind} for {holder}", 33) for kind in KINDS] for holder in HOLDERS}
    boxes = {holder: fixed(f"box for {holder}", 82) if holder != DEALER else b"" for holder in HOLDERS}
    hashes = {
        holder: [
            in_attempt("share-hash", dealer, holder.encode(), kind.encode(), share)
            for kind, share in zip(KINDS, parts, strict=True)
        ]
        for holder, parts in shares.items()
    }
    seed_hash = in_attempt("seed-hash", dealer, seed)
    leaves = [
        in_attempt("dealt-share", dealer, one.encode(), hashlib.sha256(boxes[one]).digest(), *hashes[one])
        for one in HOLDERS
    ]
    tree = [seed_hash, *leaves]
    digest = in_attempt("dealt-shares", dealer, root(tree))
    private = fixed("dealer signs")
    return {
        **STAMP,
        "dealer": DEALER,
        "key": verify_key(private).hex(),
        "kinds": list(KINDS),
        "seed": seed.hex(),
        "seed_hash": seed_hash.hex(),
        "digest": digest.hex(),
        "signature": signed(private, "dealt-shares", digest).hex(),
        "holders": [
            {
                "name": holder,
                "box": boxes[holder].hex(),
                "shares": [share.hex() for share in shares[holder]],
                "hashes": [one.hex() for one in hashes[holder]],
                "path": [one.hex() for one in path(tree, place)],
            }
            for place, holder in enumerate(HOLDERS, start=1)
        ],
    }


def dealt_files() -> dict[str, Json]:
    good = dealt_case()
    other = good["holders"][2]
    changes: list[Json] = [
        {"box": fixed("another box", 82).hex()},
        {"hashes": other["hashes"]},
        {"hashes": good["holders"][0]["hashes"][::-1]},
        {"path": other["path"]},
        {"path": good["holders"][0]["path"][:-1]},
        {"name": other["name"]},
    ]
    bad = [{**good, "holders": [{**good["holders"][0], **change}]} for change in changes]
    bad.append({**good, "attempt": ATTEMPT + 1, "holders": good["holders"][:1]})
    return {
        "dealt": vector_file("dealt", [good], OURS),
        "dealt_bad_signature": vector_file("require_signed", bad, DEFECT, "BAD_SIGNATURE"),
    }


def group_key_id(key: bytes) -> bytes:
    return hkdf(key, TAG + b"sum-tag", b"id")


def dealt_group_key(members: tuple[str, ...]) -> Json:
    drawn = {name: hashed("group-dealer", SESSION, name.encode()) for name in members}
    dealer = min(drawn, key=drawn.__getitem__)
    receiver = next(name for name in members if name != dealer)
    ours, theirs = fixed(f"box key of {dealer}"), fixed(f"box key of {receiver}")
    secret = agreed(ours, agreement_public(theirs))
    key = fixed("group key")
    box_key = derived(secret, "group-key", SESSION, (ROUND, ATTEMPT), dealer, receiver, "")
    return {
        **STAMP,
        "members": list(members),
        "dealer": dealer,
        "receiver": receiver,
        "dealer_private": ours.hex(),
        "receiver_private": theirs.hex(),
        "group_key": key.hex(),
        "id": group_key_id(key).hex(),
        "box": boxed(box_key, key).hex(),
    }


def common_group_key(members: tuple[str, ...]) -> Json:
    secrets = {name: fixed(f"common secret of {name}") for name in members}
    joined = framed(*(secrets[name] for name in sorted(secrets)))
    key = hashlib.sha256(TAG + b"group-secrets" + joined).digest()
    return {
        "secrets": {name: secret.hex() for name, secret in secrets.items()},
        "group_key": key.hex(),
        "id": group_key_id(key).hex(),
    }


def build() -> dict[str, Json]:
    """Every file by name, without its suffix."""
    groups = (HOLDERS, HOLDERS[:3], (*HOLDERS, "emil", "frida"))
    return {
        "merkle": vector_file("merkle", [merkle_case(size) for size in range(1, 10)], OURS),
        **dealt_files(),
        "group_key_dealt": vector_file("group_key_dealt", [dealt_group_key(one) for one in groups], OURS),
        "group_key_common": vector_file(
            "group_key_common", [common_group_key(one[::-1]) for one in groups], OURS
        ),
    }


if __name__ == "__main__":
    write_vectors(build())
