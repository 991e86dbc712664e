"""What the server holds looks like uniform words, for every scheme, set of survivors and kind of bias.

All inputs are zeros here, the easiest ones to recognise. Seeds are fixed, so that a test passes always or never;
with other seeds a true statement would fail with a probability below 2 * 10^-9 for each pair of checks.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.tables.lying_table import fix_input, lying_table, messages, told
from veilsum.protocol.agreed.parameters import Bias, Recovery, ShareMode
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.model import LocalResult
from veilsum.protocol.schemes.ampc.messages import Aggregate
from veilsum.protocol.secure_sum.survivors import SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

Words = NDArray[Any]
WORDS = 4096
NORMAL_TAIL = 6.0
"""A standard normal variable is beyond this with probability 10^-9."""


def chi_square_limit(freedom: int) -> float:
    """The value that a chi-square variable exceeds with probability 10^-9 (Wilson and Hilferty)."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + NORMAL_TAIL * math.sqrt(part)) ** 3)


def byte_chi_square(words: Words) -> float:
    counts = np.bincount(np.frombuffer(words.tobytes(), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(((counts - expected) ** 2 / expected).sum())


def low_bit_deviation(words: Words) -> float:
    """How many standard deviations the number of odd words is from half."""
    odd = int((words & words.dtype.type(1)).sum())
    return abs(odd - len(words) / 2) / (math.sqrt(len(words)) / 2)


def look_uniform(words: Words) -> bool:
    return byte_chi_square(words) < chi_square_limit(255) and low_bit_deviation(words) < NORMAL_TAIL


def zero_table(scheme: str, parties: int, rounds: int = 1, **fields: object) -> Table:
    table = lying_table(scheme, parties, dimension=WORDS, rounds=rounds, **fields)  # type: ignore[arg-type]
    nothing = np.zeros(WORDS, dtype=np.float32)
    for name in table.participants:
        for round_number in range(rounds):
            fix_input(table, name, round_number, LocalResult(nothing, 1000))
    return table


def losing_at_upload(table: Table, *lost: str) -> None:
    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, MaskedInput) and flight.sender in lost:
            return None
        return flight.message

    table.tamper = tamper


def payload(vector: Words) -> Words:
    return vector[:-2]


def held_by_server(table: Table, round_number: int = 0) -> Words:
    """The sum as the server passes it on."""
    found = [one for one in messages(table, Aggregate) if one.stamp.round == round_number]
    vector: Words = payload(found[0].vector)
    return vector


OWN = {"bias": Bias.OWN}
COMMON = {"bias": Bias.COMMON, "recovery": Recovery.NONE}
UNRECOVERED = {"bias": Bias.OWN, "recovery": Recovery.NONE}
AMPC_RUNS = [
    (parties, lost, fields, bits)
    for parties in (4, 5)
    for lost, fields in (((), OWN), (("p3",), OWN), ((), COMMON), ((), UNRECOVERED))
    for bits in (32, 64)
]


@pytest.mark.parametrize(("parties", "lost", "fields", "bits"), AMPC_RUNS)
def test_under_ampc_the_server_holds_uniform_words(
    parties: int, lost: tuple[str, ...], fields: dict[str, object], bits: int
) -> None:
    """Every upload, every sum of two uploads, and the sum it passes on; even and odd numbers of survivors."""
    table = zero_table("ampc", parties, bits=bits, **fields)
    losing_at_upload(table, *lost)
    table.run()
    assert told(table, PartyId("p0")).commits
    uploads = [payload(one.vector) for one in messages(table, MaskedInput)]
    assert look_uniform(held_by_server(table))
    assert all(look_uniform(upload) for upload in uploads)
    assert all(look_uniform(one + other) for one, other in itertools.combinations(uploads, 2))
    assert look_uniform(sum(uploads[1:], start=uploads[0]))


def test_with_shares_in_full_the_server_holds_uniform_words_too() -> None:
    table = zero_table("ampc", 4, share_mode=ShareMode.TENSOR)
    losing_at_upload(table, "p3")
    table.run()
    assert told(table, PartyId("p0")).commits
    assert look_uniform(held_by_server(table))


@pytest.mark.parametrize("bias", [OWN, COMMON])
@pytest.mark.parametrize("parties", [4, 5])
def test_two_rounds_subtracted_look_uniform(parties: int, bias: dict[str, object]) -> None:
    """With biases used twice the difference would be zero here, and tell what changed anywhere."""
    table = zero_table("ampc", parties, rounds=2, **bias).run()
    assert told(table, PartyId("p0")).commits[1]
    assert look_uniform(held_by_server(table, 1) - held_by_server(table, 0))


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
def test_two_attempts_of_one_round_subtracted_look_uniform(scheme: str) -> None:
    """The first attempt gets no votes; the same trained values go up again under fresh masks."""
    table = zero_table(scheme, 4)
    table.tamper = lambda flight: (
        None
        if isinstance(flight.message, SurvivorSignature) and flight.message.stamp.attempt == 0
        else flight.message
    )
    table.run()
    for name in table.participants:
        uploads = {one.stamp.attempt: payload(one.vector) for one in messages(table, MaskedInput, name)}
        assert look_uniform(uploads[1] - uploads[0])
    assert told(table, SERVER).commits[0].attempt == 1


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("parties", [4, 5])
@pytest.mark.parametrize("scheme", ["masked", "mpc"])
def test_uploads_look_uniform_and_their_sum_is_the_sum(scheme: str, parties: int, bits: int) -> None:
    """Under `masked` and `mpc` the server is meant to learn the sum, and nothing else."""
    table = zero_table(scheme, parties, bits=bits)
    losing_at_upload(table, "p3")
    table.run()
    uploads = [payload(one.vector) for one in messages(table, MaskedInput) if one.vector is not None]
    assert all(look_uniform(upload) for upload in uploads)
    assert all(look_uniform(one + other) for one, other in itertools.combinations(uploads, 2))
    total = told(table, SERVER).commits[0].total
    assert total is not None
    assert not payload(total).any()
    assert int(total[-1]) == parties - 1


def test_these_checks_can_fail() -> None:
    """Zeros, small numbers and even words are told from uniform ones."""
    numbers = np.random.default_rng(1)
    uniform = numbers.integers(0, 2**64, WORDS, dtype=np.uint64)
    assert look_uniform(uniform)
    assert not look_uniform(np.zeros(WORDS, dtype=np.uint64))
    assert not look_uniform(uniform >> np.uint64(8))
    assert not look_uniform(uniform & ~np.uint64(1))


@pytest.mark.parametrize(("peers", "coordinates", "closeness"), [(2, 10, 0.9), (3, 12, 1.3), (5, 8, 2.0)])
def test_the_corrected_bound_on_a_close_model_holds(peers: int, coordinates: int, closeness: float) -> None:
    """Float biases uniform on [0, 1]: a mean distance below epsilon has at most sigma^2 / (N (mu - epsilon)^2)."""
    mean, variance = peers / 2, peers / 12
    frequency = _close_models(peers, coordinates, closeness)
    bound = variance / (coordinates * (mean - closeness) ** 2)
    assert bound < 2
    assert frequency <= bound


def test_the_bound_without_the_square_is_false() -> None:
    """Two peers, ten coordinates: a model closer than 0.9 is more frequent than sigma^2 / (N (mu - epsilon))."""
    printed = (2 / 12) / (10 * (1 - 0.9))
    assert _close_models(2, 10, 0.9) > 1.2 * printed


def _close_models(peers: int, coordinates: int, closeness: float, trials: int = 20_000) -> float:
    numbers = np.random.default_rng([peers, coordinates])
    distances = numbers.uniform(0, 1, (trials, coordinates, peers)).sum(axis=2).mean(axis=1)
    return float((distances < closeness).mean())


@pytest.mark.parametrize("parties", [4, 5])
def test_in_the_ring_no_distance_from_the_sum_is_likelier_than_another(parties: int) -> None:
    """The ring's analogue: a word is within e of the true one with probability (2 e + 1) / 2^b, whatever the sum."""
    table = zero_table("ampc", parties).run()
    distances = held_by_server(table).view(np.int64)
    for quarter in range(1, 4):
        within = int((np.abs(distances.astype(np.float64)) < quarter * 2.0**61).sum())
        expected, chance = WORDS * quarter / 4, quarter / 4
        assert abs(within - expected) < NORMAL_TAIL * math.sqrt(WORDS * chance * (1 - chance))


def test_the_aggregate_hides_the_weights_and_the_count_as_well() -> None:
    """The last two words are masked like the others: they change with every round."""
    table = zero_table("ampc", 4, rounds=2).run()
    first, second = (one.vector[-2:] for one in messages(table, Aggregate, receiver="p0"))
    assert not np.array_equal(first, second)
    assert int(first[-1]) != 4
