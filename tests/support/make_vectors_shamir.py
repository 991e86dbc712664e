"""Writes the vectors of specs/sharing-and-graphs.md: `python tests/support/make_vectors_shamir.py`.

A direct transcription of that page which shares no code with the package, so that the package and the
vectors check each other: powers instead of Horner's rule, Lagrange's formula instead of weights, lists of
places instead of sets.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).resolve().parents[2] / "specs" / "vectors" / "v8"
PROVENANCE = (
    "Computed by tests/support/make_vectors_shamir.py, a transcription of specs/sharing-and-graphs.md that "
    "shares no code with the package."
)
PRIME = 2**256 + 297
UNBIASED_BOUND = 255 * PRIME


def seeded(label: str, length: int) -> bytes:
    return hashlib.shake_256(b"veilsum test vectors: " + label.encode()).digest(length)


def coefficients(random: bytes, threshold: int) -> list[int]:
    """The coefficient of the highest power first."""
    blocks = [int.from_bytes(random[at : at + 33], "big") for at in range(0, len(random), 33)]
    accepted = [block % PRIME for block in blocks if block < UNBIASED_BOUND]
    return accepted[: threshold - 1]


def shares_of(secret: bytes, threshold: int, holders: int, random: bytes) -> list[int]:
    higher = coefficients(random, threshold)
    powers_up = [int.from_bytes(secret, "big"), *reversed(higher)]
    return [
        sum(coefficient * pow(x, power, PRIME) for power, coefficient in enumerate(powers_up)) % PRIME
        for x in range(1, holders + 1)
    ]


def hexadecimal(value: int) -> str:
    return value.to_bytes(33, "big").hex()


def sharing(name: str, secret: bytes, threshold: int, holders: int, random: bytes) -> dict[str, Any]:
    shares = shares_of(secret, threshold, holders, random)
    return {
        "name": name,
        "threshold": threshold,
        "holders": holders,
        "secret": secret.hex(),
        "random": random.hex(),
        "shares": {str(x): hexadecimal(share) for x, share in enumerate(shares, start=1)},
    }


def shamir_cases() -> list[dict[str, Any]]:
    above = UNBIASED_BOUND.to_bytes(33, "big")
    just_below = (UNBIASED_BOUND - 1).to_bytes(33, "big")
    return [
        sharing("2 of 2", seeded("two", 32), 2, 2, seeded("two random", 33)),
        sharing("3 of 5", seeded("three", 32), 3, 5, seeded("three random", 66)),
        sharing("7 of 10", seeded("seven", 32), 7, 10, seeded("seven random", 6 * 33)),
        sharing("the zero secret", bytes(32), 3, 4, seeded("zero random", 66)),
        sharing("the largest secret", b"\xff" * 32, 3, 4, seeded("largest random", 66)),
        sharing("constant polynomial from zero blocks", seeded("constant", 32), 3, 4, bytes(66)),
        sharing(
            "a block at the bound is skipped", seeded("skip", 32), 2, 3, above + seeded("skip random", 33)
        ),
        sharing("a block just below the bound is p - 1", seeded("edge", 32), 2, 3, just_below),
    ]


def bad_shamir_files() -> dict[str, dict[str, Any]]:
    shares = {x: hexadecimal(y) for x, y in enumerate(shares_of(seeded("b", 32), 3, 6, seeded("bb", 66)), 1)}

    def refused(defect: str, changed: dict[int, str], blamed: int | None) -> dict[str, Any]:
        return {
            "provenance": PROVENANCE,
            "defect": defect,
            "threshold": 3,
            "shares": {str(x): changed[x] for x in sorted(changed)},
            "reason": "BAD_SHARE",
            "blamed": blamed,
        }

    def some(*holders: int) -> dict[int, str]:
        return {x: shares[x] for x in holders}

    beyond_secrets = hexadecimal(2**256)
    return {
        "too_few": refused("two shares where three are needed", some(2, 5), None),
        "too_many": refused("four shares where three are needed", some(1, 2, 4, 5), None),
        "out_of_field": refused("share 2 is p itself", some(1, 3) | {2: hexadecimal(PRIME)}, 2),
        "short": refused("share 3 lacks a byte", some(1, 2) | {3: shares[3][:-2]}, 3),
        "holder_zero": refused("holder 0 would hold the secret", some(1, 2) | {0: shares[3]}, 0),
        "not_a_secret": refused("f(0) = 2^256", dict.fromkeys((1, 2, 3), beyond_secrets), None),
    }


def circle(parties: list[str], seed: bytes) -> list[str]:
    tag = b"veilsum v8 graph circle\x00"
    return sorted(parties, key=lambda name: hashlib.sha256(tag + seed + name.encode()).digest())


def circle_edges(order: list[str], reach: int) -> list[list[str]]:
    size = len(order)
    pairs = {
        tuple(sorted((order[place], order[(place + step) % size])))
        for place in range(size)
        for step in range(1, reach + 1)
    }
    return sorted(list(pair) for pair in pairs)


def graph_case(policy: str, parties: list[str], seed: bytes, edges: list[list[str]]) -> dict[str, Any]:
    return {"policy": policy, "parties": parties, "seed": seed.hex(), "edges": edges}


def graph_cases() -> list[dict[str, Any]]:
    seed = seeded("graph", 32)
    four, seven = ["ada", "bob", "cem", "dee"], [f"lab-{number}" for number in range(7)]
    twenty = [f"p{number}" for number in range(20)]
    every_pair = [[one, other] for one in four for other in four if one < other]
    return [
        graph_case("complete", four, seed, every_pair),
        graph_case("ring", seven, seed, circle_edges(seven, 1)),
        graph_case("ring", ["ada", "bob"], seed, [["ada", "bob"]]),
        graph_case("k-regular:2", seven, seed, circle_edges(circle(seven, seed), 1)),
        graph_case("k-regular:4", seven, seed, circle_edges(circle(seven, seed), 2)),
        graph_case("k-regular:6", seven, seed, circle_edges(seven, 3)),
        graph_case("k-regular:6", twenty, bytes(32), circle_edges(circle(twenty, bytes(32)), 3)),
        graph_case("edges:ada-bob,ada-eve,bob-cem", four, seed, [["ada", "bob"], ["bob", "cem"]]),
        graph_case("edges:lab-0/lab-1", seven[:2], seed, [["lab-0", "lab-1"]]),
    ]


def bad_graph_files() -> dict[str, dict[str, Any]]:
    def refused(policy: str, parties: str, error: str, names: str) -> dict[str, Any]:
        return {
            "provenance": PROVENANCE,
            "policy": policy,
            "parties": parties.split(),
            "seed": bytes(32).hex(),
            "error": error,
            "names": names,
        }

    return {
        "odd_degree": refused("k-regular:5", "a b c d e f g", "ParameterError", "not 5"),
        "unknown_kind": refused("star", "a b c", "ParameterError", "'star'"),
        "loop": refused("edges:a-a,a-b", "a b", "ParameterError", "a-a"),
        "repeated_edge": refused("edges:a-b,b-a", "a b", "ParameterError", "a-b"),
        "ambiguous_edge": refused("edges:lab-1-lab-2", "lab-1 lab-2", "ParameterError", "lab-1-lab-2"),
        "too_few_parties": refused("k-regular:6", "a b c d e f", "GRAPH_TOO_THIN", "at least 7"),
        "disconnected": refused("edges:a-b,b-c,a-c,d-e,e-f,d-f", "a b c d e f", "GRAPH_TOO_THIN", "a-d"),
        "degree_one": refused("edges:a-b,b-c,a-c,c-d", "a b c d", "GRAPH_TOO_THIN", "d-a"),
        "absent_party": refused("edges:a-b,b-c,c-d,a-d", "a b d", "GRAPH_TOO_THIN", "b-d"),
    }


def all_files() -> dict[str, dict[str, Any]]:
    files = {
        "shamir.json": {"provenance": PROVENANCE, "cases": shamir_cases()},
        "graph.json": {"provenance": PROVENANCE, "cases": graph_cases()},
    }
    files |= {f"shamir_bad_{defect}.json": vector for defect, vector in bad_shamir_files().items()}
    files |= {f"graph_bad_{defect}.json": vector for defect, vector in bad_graph_files().items()}
    return files


def text_of(vector: dict[str, Any]) -> str:
    return json.dumps(vector, indent=1) + "\n"


if __name__ == "__main__":
    for name, vector in all_files().items():
        (VECTORS / name).write_text(text_of(vector))
