"""Writes the vectors of the chain: `python tests/support/make_vectors_chain.py`.

A transcription of specs/chain.md and of section 1 of specs/protocol.md that shares no code with the package.
"""

from __future__ import annotations

from tests.support.transcription import (
    Json,
    fixed,
    framed,
    hashed,
    listed,
    signed,
    u64,
    vector_file,
    verify_key,
    write_vectors,
)

OURS = (
    "Computed by tests/support/make_vectors_chain.py, a transcription of specs/chain.md that shares no code with the "
    "package; inputs are SHAKE-256 of 'veilsum vector: <name>'."
)
DEFECT = f"{OURS} Each case is a good one with the defect that the file is named after."
NAMES = ("alice", "bob", "carol", "dora-2", "emil")
COLLUDERS = 1
NEEDED = (len(NAMES) + COLLUDERS) // 2 + 1
PRIVATE = {name: fixed(f"{name} votes") for name in (*NAMES, "mallory", "server")}


def ballot_fields(position: int, electorate: tuple[str, ...], survivors: tuple[str, ...]) -> Json:
    hidden = position % 2 == 1
    return {
        "anchor": fixed("anchor").hex(),
        "position": position,
        "before": "" if hidden else fixed(f"state {position - 1}").hex(),
        "after": "" if hidden else fixed(f"state {position}").hex(),
        "electorate": list(electorate),
        "survivors": list(survivors),
    }


def ballot_digest(case: Json) -> bytes:
    return hashed(
        "ballot",
        bytes.fromhex(case["anchor"]),
        u64(case["position"]),
        bytes.fromhex(case["before"]),
        bytes.fromhex(case["after"]),
        listed(case["electorate"]),
        listed(case["survivors"]),
    )


def ballot_cases() -> list[Json]:
    cases = []
    for position, survivors in ((2, NAMES), (7, NAMES[1:]), (2**48 - 2, NAMES[:3])):
        case = ballot_fields(position, NAMES, survivors)
        digest = ballot_digest(case)
        signature = signed(PRIVATE["alice"], "vote", digest).hex()
        cases.append(
            {**case, "digest": digest.hex(), "private": PRIVATE["alice"].hex(), "signature": signature}
        )
    return cases


def certificate(case: Json, voters: tuple[str, ...], voted_on: Json | None = None) -> Json:
    """`voted_on` is what was signed, where it is not what the certificate says."""
    digest = ballot_digest(voted_on if voted_on is not None else case)
    return {
        **case,
        "colluders": COLLUDERS,
        "keys": {name: verify_key(private).hex() for name, private in PRIVATE.items()},
        "signatures": {name: signed(PRIVATE[name], "vote", digest).hex() for name in voters},
    }


def certificate_files() -> dict[str, Json]:
    good = ballot_fields(2, NAMES, NAMES[1:])
    enough, strange = NAMES[:NEEDED], ballot_fields(2, NAMES[::-1], NAMES[1:])
    doubled = ballot_fields(2, (*NAMES, "emil"), NAMES[1:])
    shown = [
        certificate(good, enough),
        certificate(good, NAMES),
        certificate({**good, "position": 3}, enough),
    ]
    other = [{**good, "anchor": fixed("other anchor").hex()}, {**good, "after": fixed("other").hex()}]
    other += [{**good, "position": 3}, {**good, "survivors": list(NAMES)}]
    bad = {
        "few": [certificate(good, NAMES[: NEEDED - 1]), certificate(good, ())],
        "voter": [certificate(good, (*enough, "mallory")), certificate(good, (*enough[1:], "mallory"))],
        "electorate": [certificate(one, enough) for one in (strange, doubled, {**good, "electorate": []})],
    }
    forged = [certificate(good, enough, voted_on) for voted_on in other]
    return {
        "certificate": vector_file("require_certificate", shown, OURS),
        **{
            f"certificate_bad_{defect}": vector_file("require_certificate", cases, DEFECT, "BAD_CERTIFICATE")
            for defect, cases in bad.items()
        },
        "certificate_bad_signature": vector_file("require_certificate", forged, DEFECT, "BAD_SIGNATURE"),
    }


def attempt(number: int, uploaded: bool, released: tuple[str, ...]) -> Json:
    return {
        "session": fixed(f"session {number}").hex(),
        "attempt": number,
        "members": list(NAMES),
        "uploaded": uploaded,
        "released": list(released),
    }


def hello(name: str, position: int, fresh: bool, attempts: list[Json]) -> Json:
    return {
        "name": name,
        "nonce": fixed(f"nonce of {name}").hex(),
        "box_key": fixed(f"box key of {name}").hex(),
        "position": position,
        "fresh": fresh,
        "attempts": attempts,
    }


def hello_parts(said: Json) -> list[bytes]:
    stated = [
        framed(
            bytes.fromhex(one["session"]),
            u64(one["attempt"]),
            bytes([one["uploaded"]]),
            listed(one["members"]),
            listed(one["released"]),
        )
        for one in said["attempts"]
    ]
    fresh = bytes([said["fresh"]])
    named = (bytes.fromhex(said["nonce"]), bytes.fromhex(said["box_key"]), u64(said["position"]) + fresh)
    return [*named, *stated]


def hello_cases() -> list[Json]:
    bound = fixed("roster"), fixed("configuration"), fixed("invitation")
    hellos = [
        hello("alice", 7, False, [attempt(0, True, NAMES[:4]), attempt(1, False, ())]),
        hello("bob", 7, False, [attempt(0, True, ())]),
        hello("carol", 0, True, []),
    ]
    for said in hellos:
        said["digest"] = hashed("hello", *bound, said["name"].encode(), *hello_parts(said)).hex()
    parts = [part for said in hellos for part in (said["name"].encode(), *hello_parts(said))]
    names = ("roster_digest", "config_hash", "invitation")
    terms = {name: value.hex() for name, value in zip(names, bound, strict=True)}
    session = hashed("session", *bound, u64(7), *parts).hex()
    return [{**terms, "position": 7, "hellos": hellos, "session": session}]


def voucher(stated: tuple[str, ...], proposed: tuple[str, ...], number: int = 2) -> Json:
    """What the server signed in attempt 2, and what a member states of attempt `number`."""
    session, position = fixed("session"), 7
    digest = hashed("survivors-proposed", session, u64(position), u64(2), listed(proposed), listed(NAMES))
    return {
        "server": verify_key(PRIVATE["server"]).hex(),
        "session": session.hex(),
        "position": position,
        "attempt": number,
        "members": list(NAMES),
        "released": list(stated),
        "voucher": signed(PRIVATE["server"], "survivors-proposed", digest).hex(),
    }


def voucher_files() -> dict[str, Json]:
    good = voucher(NAMES[:4], NAMES[:4])
    false = [voucher(NAMES[1:], NAMES[:4]), voucher(NAMES[:4], NAMES[:4], number=3), {**good, "voucher": ""}]
    false.append({**good, "members": list(NAMES[:4])})
    return {
        "voucher": vector_file("require_vouched", [good], OURS),
        "voucher_bad_signature": vector_file("require_vouched", false, DEFECT, "BAD_SIGNATURE"),
    }


def build() -> dict[str, Json]:
    """Every file by name, without its suffix."""
    return {
        "ballot": vector_file("ballot", ballot_cases(), OURS),
        **certificate_files(),
        "hello": vector_file("hello", hello_cases(), OURS),
        **voucher_files(),
    }


if __name__ == "__main__":
    write_vectors(build())
