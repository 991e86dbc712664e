"""What participants get that pool all they hold: the mean of the others, so one update if one other is left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from veilsum.simulations.attacks.gradient.targets import gradients_in
from veilsum.simulations.audit.stage import Played
from veilsum.simulations.audit.sweeps.perturbed_models import true_updates

AVERAGING = ("plain", "masked", "mpc", "ampc")
Stage = Callable[..., Played]


@pytest.mark.parametrize("scheme", AVERAGING)
@pytest.mark.parametrize("others", [("p2", "p3", "p4"), ("p3", "p4"), ("p4",)])
def test_participants_together_get_the_mean_of_the_others_and_nothing_else(
    played: Stage, scheme: str, others: tuple[str, ...]
) -> None:
    """Of four: all but one get the last one's update."""
    stage = played(scheme)
    members = [name for name in stage.config.parties if name not in others]
    (found,) = gradients_in(stage.view("+".join(members)), 1)
    truth = true_updates(stage)
    mean = np.mean([truth[name, 0] for name in others], axis=0)
    assert found.owners == others
    assert np.abs(found.gradient - mean).max() < 1e-3 * np.abs(mean).max()


@pytest.mark.parametrize("scheme", ["perturbed", "bilateral"])
@pytest.mark.parametrize("members", ["p1", "p1+p2", "p1+p2+p3"])
def test_participants_of_a_perturbed_round_form_no_gradient_of_another(
    played: Stage, scheme: str, members: str
) -> None:
    """They hold perturbed models and their own terms, and no key."""
    assert gradients_in(played(scheme).view(members), 1) == []


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc", "bilateral"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_with_the_server_they_get_no_single_update_while_two_others_are_in_the_sum(
    played: Stage, scheme: str, count: int
) -> None:
    """Read as numbers, the words of an upload tell nothing; of a sum with one other in it that one's update is left."""
    stage = played(scheme)
    members = ["server", *stage.config.parties[:count]]
    truth = true_updates(stage)
    single = [
        (
            target.owners[0],
            abs(np.corrcoef(target.gradient.astype(np.float64), truth[target.owners[0], 0])[0, 1]),
        )
        for target in gradients_in(stage.view("+".join(members)), 1)
        if len(target.owners) == 1 and target.owners[0] not in members
    ]
    assert {name for name, _ in single} == set(stage.config.parties[count:])
    assert {name for name, likeness in single if likeness > 0.99} == ({"p4"} if count == 3 else set())
