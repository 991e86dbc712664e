"""By what an update counts: the rule itself, what two sums give away under it, and what the start says of that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal, require_mentions
from tests.support.tables.lying_table import lose_before, told
from veilsum.protocol.agreed.parameters import Differencing, Parameters, Weights
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.scheme import starting_warnings
from veilsum.protocol.numbers.fixedpoint import plan
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.simulations.testing.federation import MAX_WEIGHT
from veilsum.simulations.testing.table import Table

SECURE = ("masked", "mpc", "ampc")
COUNTS = {"p0": 3, "p1": 100, "p2": 250, "p3": 64, "p4": 417}
VICTIM = "p4"
SHOWN = {Weights.SAMPLES: 417, Weights.BUCKETED: 256, Weights.EQUAL: 1}


@dataclass(frozen=True)
class FixedCounts:
    """Every party holds as many samples in every round, as parties do."""

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        values = np.random.default_rng([round, COUNTS[party]]).uniform(-1, 1, len(model))
        return LocalResult(values.astype(np.float32), COUNTS[party])


def played(scheme: str, weights: Weights) -> Table:
    """Two rounds; the victim is in the first sum and gone before the second."""
    table = begun(scheme, weights, rounds=2)
    return lose_before(table, MaskedInput, VICTIM, in_round=1).run()


def begun(scheme: str, weights: Weights, rounds: int = 1) -> Table:
    table = Table.build(
        scheme, sorted(COUNTS), dimension=4, rounds=rounds, learner=FixedCounts(), weights=weights
    )
    table.start()
    return table


@given(st.integers(1, 10**9))
def test_a_bucket_is_the_power_of_two_at_or_below(samples: int) -> None:
    bucket = Weights.BUCKETED.of(samples)
    assert bucket <= samples < 2 * bucket and bucket & (bucket - 1) == 0
    assert Weights.SAMPLES.of(samples) == samples
    assert Weights.EQUAL.of(samples) == 1
    for rule in Weights:
        assert rule.of(rule.of(samples)) == rule.of(samples)
        assert rule.of(samples) <= rule.of(samples + 1)


@pytest.mark.parametrize("rule", Weights)
@pytest.mark.parametrize("wrong", [0, -3, 2.5, None])
def test_what_is_no_number_of_samples_is_left_to_the_encoder(rule: Weights, wrong: object) -> None:
    """No rule makes a party count that has nothing."""
    assert rule.of(wrong) is wrong  # type: ignore[arg-type]  # what a learner may hand over all the same


SEES_SUMS = [
    *((scheme, SERVER) for scheme in ("masked", "mpc", "bilateral")),
    *((scheme, "p0") for scheme in SECURE),
]


@pytest.mark.parametrize(("scheme", "party"), SEES_SUMS)
@pytest.mark.parametrize("weights", Weights)
def test_two_cohorts_that_differ_by_one_party_show_its_weight_and_no_more(
    scheme: str, party: str, weights: Weights
) -> None:
    """Nobody lies: whoever sees the sums, as members do to verify them, subtracts the weights of two rounds."""
    table = played(scheme, weights)
    commits = told(table, party).commits
    assert [VICTIM in one.members for one in commits] == [True, False]
    encoding = table.federation.parameters.encoding
    opened = [
        encoding.decode_mean(one.total, len(one.members))[1] for one in commits if one.total is not None
    ]
    assert round(opened[0] - opened[1]) == SHOWN[weights]


def test_the_server_of_ampc_sees_no_sum() -> None:
    commits = told(played("ampc", Weights.SAMPLES), SERVER).commits
    assert [one.total for one in commits] == [None, None]


@pytest.mark.parametrize("scheme", [*SECURE, "plain"])
@pytest.mark.parametrize("weights", Weights)
def test_the_mean_is_weighted_by_the_rule(scheme: str, weights: Weights) -> None:
    """The same in every scheme, so that comparing with plain compares like with like."""
    table = begun(scheme, weights).run()
    federation = table.federation
    holder = SERVER if federation.scheme.server_holds_model else PartyId("p0")
    model = told(table, holder).commits[0].model
    assert model is not None
    trained = [FixedCounts().train(name, 0, federation.initial_model) for name in table.participants]
    factors = [weights.of(one.samples) for one in trained]
    expected = np.average([one.payload for one in trained], axis=0, weights=factors)
    assert np.abs(model - expected).max() < 1e-6


@pytest.mark.parametrize("scheme", [*SECURE, "bilateral", "plain", "perturbed"])
@pytest.mark.parametrize("weights", Weights)
def test_the_start_says_that_counts_show_where_they_do(scheme: str, weights: Weights) -> None:
    found = find_scheme(scheme)
    encoding = found.plan_numbers(5, weights.of(MAX_WEIGHT), 8.0, 64, {})
    told_at_start = list(starting_warnings(found, Parameters(scheme, encoding, 4, 1, 3, weights=weights)))
    about = [text for text in told_at_start if "samples" in text]
    if weights is Weights.SAMPLES and found.hides_updates:
        require_mentions(about[-1], "weights", "cohorts", "bucketed", "equal")
    else:
        assert not [text for text in about if "cohorts" in text]


def test_refusing_to_be_differenced_demands_that_counts_are_hidden() -> None:
    encoding = plan(5, 1, 8.0, 64).encoding
    for weights in (Weights.BUCKETED, Weights.EQUAL):
        Parameters("masked", encoding, 4, 1, 3, differencing=Differencing.REFUSE, weights=weights)
    with refusal(ParameterError, "differencing", "bucketed", "equal"):
        Parameters("masked", encoding, 4, 1, 3, differencing=Differencing.REFUSE)


def test_equal_weights_need_numbers_that_are_planned_for_them() -> None:
    with refusal(ParameterError, "equal", 1, 1000):
        Parameters("masked", plan(5, 1000, 8.0, 64).encoding, 4, 1, 3, weights=Weights.EQUAL)
