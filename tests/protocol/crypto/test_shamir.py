"""Any t shares rebuild the secret, t - 1 say nothing about it, and malformed ones are refused."""

from __future__ import annotations

import itertools
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.shamir import (
    FIELD_PRIME,
    MAX_HOLDERS,
    SHARE_BYTES,
    Combiner,
    WrongShare,
    combine,
    split,
)
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError
from veilsum.protocol.randomness import RandomBytes

ROOT = Path(__file__).resolve().parents[3]
VECTORS = ROOT / "specs" / "vectors" / "v8"

secrets = st.binary(min_size=32, max_size=32)
random_blocks = st.randoms(use_true_random=False)


@st.composite
def sharings(draw: st.DrawFn, spare: int = 0) -> tuple[bytes, int, dict[int, bytes]]:
    """A secret, its threshold, and the shares of at least threshold + spare holders."""
    threshold = draw(st.integers(2, 8))
    holders = draw(st.integers(threshold + spare, threshold + spare + 6))
    secret = draw(secrets)
    shares = split(Secret(secret), threshold, holders, draw(random_blocks).randbytes)
    return secret, threshold, dict(enumerate(shares, start=1))


def fixed(stream: bytes) -> RandomBytes:
    """A random source that deals out `stream`, and fails when it is used up."""
    parts: Iterator[int] = iter(stream)
    return lambda length: bytes(itertools.islice(parts, length))


def evaluate(coefficients: list[int], x: int) -> int:
    return (
        sum(coefficient * pow(x, power, FIELD_PRIME) for power, coefficient in enumerate(coefficients))
        % FIELD_PRIME
    )


def interpolate(points: dict[int, int], x: int) -> int:
    """Lagrange's formula as it stands in textbooks."""
    total = 0
    for here, value in points.items():
        numerator = denominator = 1
        for other in points.keys() - {here}:
            numerator *= x - other
            denominator *= here - other
        total += value * numerator * pow(denominator, -1, FIELD_PRIME)
    return total % FIELD_PRIME


@given(sharings(), st.data())
def test_any_threshold_of_the_holders_rebuild_the_secret(
    sharing: tuple[bytes, int, dict[int, bytes]], data: st.DataObject
) -> None:
    secret, threshold, shares = sharing
    holders = st.sampled_from(sorted(shares))
    chosen = data.draw(st.lists(holders, min_size=threshold, max_size=threshold, unique=True))
    assert combine({holder: shares[holder] for holder in chosen}, threshold) == Secret(secret)


def test_every_subset_of_a_small_sharing_either_rebuilds_or_is_refused() -> None:
    shares = dict(enumerate(split(Secret(b"s" * 32), 3, 6, fixed(bytes(range(66)))), start=1))
    for size in range(len(shares) + 1):
        for chosen in itertools.combinations(shares, size):
            subset = {holder: shares[holder] for holder in chosen}
            if size == 3:
                assert combine(subset, 3) == Secret(b"s" * 32)
            else:
                with refusal(WrongShare, 3):
                    combine(subset, 3)


@given(sharings(), secrets, st.data())
def test_one_share_too_few_fits_every_secret_equally_well(
    sharing: tuple[bytes, int, dict[int, bytes]], candidate: bytes, data: st.DataObject
) -> None:
    """For t - 1 shares and any candidate there is a polynomial of degree below t through all of them.

    It is constructed here and run through `split`: the same shares come out. It is also the only one, since t
    points fix it, so each candidate is equally likely given the shares.
    """
    _, threshold, shares = sharing
    seen = data.draw(st.sets(st.sampled_from(sorted(shares)), min_size=threshold - 1, max_size=threshold - 1))
    points = {holder: int.from_bytes(shares[holder], "big") for holder in seen}
    points[0] = int.from_bytes(candidate, "big")
    higher = _higher_coefficients(points)
    stream = b"".join(coefficient.to_bytes(SHARE_BYTES, "big") for coefficient in reversed(higher))
    explained = split(Secret(candidate), threshold, len(shares), fixed(stream))
    assert all(explained[holder - 1] == shares[holder] for holder in seen)


def _higher_coefficients(points: dict[int, int]) -> list[int]:
    """Of the polynomial through `points`, one of them at 0: take off the constant, divide by x, repeat."""
    count = len(points) - 1
    known = {x: interpolate(points, x) for x in range(1, count + 1)}
    constant = points[0]
    coefficients = []
    for remaining in range(count, 0, -1):
        known = {
            x: (known[x] - constant) * pow(x, -1, FIELD_PRIME) % FIELD_PRIME for x in range(1, remaining + 1)
        }
        constant = interpolate(known, 0)
        coefficients.append(constant)
    return coefficients


def test_coefficients_are_uniform_because_each_residue_has_equally_many_blocks() -> None:
    """Blocks of 33 bytes below 255 p are accepted: each residue comes from exactly 255 of them."""
    bound = 255 * FIELD_PRIME
    assert bound < 2**264 < bound + FIELD_PRIME
    accepted = split(Secret(bytes(32)), 2, 2, fixed((bound - 1).to_bytes(33, "big")))
    assert int.from_bytes(accepted[0], "big") == FIELD_PRIME - 1
    skipped = split(Secret(bytes(32)), 2, 2, fixed(bound.to_bytes(33, "big") + (5).to_bytes(33, "big")))
    assert [int.from_bytes(share, "big") for share in skipped] == [5, 10]


def test_the_field_has_the_smallest_prime_modulus_above_all_secrets() -> None:
    """Fermat's test to 20 bases for the modulus, and a small base that shows each number before it composite."""

    def probably_prime(number: int) -> bool:
        return all(pow(base, number - 1, number) == 1 for base in range(2, 22))

    assert probably_prime(FIELD_PRIME)
    assert not any(probably_prime(number) for number in range(2**256 + 1, FIELD_PRIME))


@given(sharings(spare=1), st.data())
def test_one_combiner_gives_the_same_answers_for_many_holder_sets(
    sharing: tuple[bytes, int, dict[int, bytes]], data: st.DataObject
) -> None:
    secret, threshold, shares = sharing
    combiner = Combiner(threshold)
    sets = data.draw(st.lists(st.permutations(sorted(shares)).map(lambda one: one[:threshold]), min_size=2))
    for holders in (*sets, *sets):
        assert combiner.combine({holder: shares[holder] for holder in holders}) == Secret(secret)


@given(secrets, st.integers(2, 12), st.integers(0, 6), random_blocks)
def test_shares_are_the_textbook_polynomial_at_the_holder_numbers(
    secret: bytes, threshold: int, spare: int, random: Any
) -> None:
    blocks = [random.randrange(FIELD_PRIME) for _ in range(threshold - 1)]
    stream = b"".join(block.to_bytes(SHARE_BYTES, "big") for block in blocks)
    shares = split(Secret(secret), threshold, threshold + spare, fixed(stream))
    coefficients = [int.from_bytes(secret, "big"), *reversed(blocks)]
    assert [int.from_bytes(share, "big") for share in shares] == [
        evaluate(coefficients, x) for x in range(1, threshold + spare + 1)
    ]


@given(st.sets(st.integers(1, MAX_HOLDERS), min_size=3, max_size=3), secrets)
def test_holders_may_have_any_numbers_up_to_the_limit(holders: set[int], secret: bytes) -> None:
    coefficients = [int.from_bytes(secret, "big"), 7, 2**255]
    shares = {x: evaluate(coefficients, x).to_bytes(SHARE_BYTES, "big") for x in holders}
    assert combine(shares, 3) == Secret(secret)


@pytest.mark.parametrize(
    ("secret_bytes", "threshold", "holders", "problem"),
    [
        (31, 2, 3, "not 31"),
        (32, 1, 3, "threshold 1"),
        (32, 4, 3, "threshold 4"),
        (32, 2, MAX_HOLDERS + 1, "more than 65535"),
    ],
)
def test_impossible_sharings_are_refused_before_anything_is_drawn(
    secret_bytes: int, threshold: int, holders: int, problem: str
) -> None:
    with pytest.raises(ParameterError, match=problem):
        split(Secret(bytes(secret_bytes)), threshold, holders, fixed(b""))


def test_all_problems_of_a_sharing_are_reported_together() -> None:
    with pytest.raises(ParameterError) as refused:
        split(Secret(b""), 0, 0, fixed(b""))
    assert len(refused.value.problems) == 2


def test_a_random_source_that_runs_dry_is_an_error_and_not_a_weak_polynomial() -> None:
    with pytest.raises(LocalProtocolError):
        split(Secret(bytes(32)), 3, 3, fixed(bytes(40)))


def test_a_combiner_refuses_a_threshold_that_hides_nothing() -> None:
    with pytest.raises(ParameterError, match="below 2"):
        Combiner(1)


@pytest.mark.parametrize("holder", [0, -1, MAX_HOLDERS + 1, FIELD_PRIME + 1])
def test_a_holder_number_outside_the_range_is_refused_by_name(holder: int) -> None:
    shares = dict(enumerate(split(Secret(b"s" * 32), 2, 3, fixed(bytes(33))), start=1))
    with pytest.raises(WrongShare) as refused:
        combine({1: shares[1], holder: shares[2]}, 2)
    assert refused.value.holder == holder


@given(st.binary(max_size=40), secrets)
def test_bytes_that_are_no_share_are_refused_and_blamed_on_their_holder(
    garbage: bytes, secret: bytes
) -> None:
    shares = dict(enumerate(split(Secret(secret), 2, 4, fixed(b"\x01" * 33)), start=1))
    assume(len(garbage) != SHARE_BYTES or int.from_bytes(garbage, "big") >= FIELD_PRIME)
    with pytest.raises(WrongShare) as refused:
        combine({1: shares[1], 3: garbage}, 2)
    assert refused.value.holder == 3


def test_refusals_never_show_share_or_secret_bytes() -> None:
    shares = dict(enumerate(split(Secret(b"\xa5" * 32), 2, 4, fixed(b"\x3c" * 33)), start=1))
    for broken in (shares[1][:-1], b"\xff" * 33):
        with pytest.raises(WrongShare) as refused:
            combine({1: broken, 2: shares[2]}, 2)
        text = f"{refused.value!r} {refused.value}"
        assert not any(value.hex() in text or repr(value) in text for value in (broken, *shares.values()))


def _positive_cases() -> list[dict[str, Any]]:
    return list(json.loads((VECTORS / "shamir.json").read_text())["cases"])


@pytest.mark.parametrize("case", _positive_cases(), ids=lambda case: case["name"])
def test_vectors_split_and_combine(case: dict[str, Any]) -> None:
    secret = Secret(bytes.fromhex(case["secret"]))
    shares = split(secret, case["threshold"], case["holders"], fixed(bytes.fromhex(case["random"])))
    assert {str(x): share.hex() for x, share in enumerate(shares, start=1)} == case["shares"]
    given_shares = {int(x): bytes.fromhex(share) for x, share in case["shares"].items()}
    for holders in itertools.combinations(given_shares, case["threshold"]):
        assert combine({x: given_shares[x] for x in holders}, case["threshold"]) == secret


@pytest.mark.parametrize("path", sorted(VECTORS.glob("shamir_bad_*.json")), ids=lambda path: path.stem)
def test_bad_vectors_are_refused_and_blamed_as_stated(path: Path) -> None:
    case = json.loads(path.read_text())
    shares = {int(x): bytes.fromhex(share) for x, share in case["shares"].items()}
    with pytest.raises(WrongShare) as refused:
        combine(shares, case["threshold"])
    assert refused.value.reason is AbortReason[case["reason"]]
    assert refused.value.holder == case["blamed"]


def test_the_committed_vectors_are_those_the_generator_writes() -> None:
    generator = runpy.run_path(str(ROOT / "tests" / "support" / "make_vectors_shamir.py"))
    files = generator["all_files"]()
    on_disk = {path.name for pattern in ("shamir*.json", "graph*.json") for path in VECTORS.glob(pattern)}
    assert on_disk == set(files)
    for name, vector in files.items():
        assert (VECTORS / name).read_text() == generator["text_of"](vector), name
