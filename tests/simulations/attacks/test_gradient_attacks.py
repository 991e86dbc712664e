"""Gradient attacks: they rebuild what can be rebuilt, and say so when there is nothing to attack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support.refusals import refusal
from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.gradient.analytic import Analytic
from veilsum.simulations.attacks.gradient.dlg import Dlg, Idlg
from veilsum.simulations.attacks.gradient.inverting import Inverting, mean_change, simulated_change, unit
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit, Budget, Victim
from veilsum.simulations.attacks.gradient.spn import SpnAdaptive
from veilsum.simulations.attacks.gradient.targets import Target, as_noise, gradients_in
from veilsum.simulations.attacks.metrics import matching, ssim
from veilsum.simulations.audit.stage import Played, pixels

Stage = Callable[..., Played]
BUDGET = Budget(200, 1, 30.0)


def likeness(found: np.ndarray, target: Target, played: Played) -> float:
    truth = np.concatenate([pixels(played.truth[name]) for name in target.owners])
    return float(np.median(ssim(found[matching(found, truth)], truth)))


def labels_of(target: Target, played: Played) -> list[int]:
    return sorted(int(one) for name in target.owners for one in played.truth[name].targets)


@pytest.mark.parametrize("scheme", ["plain", "masked", "mpc", "ampc"])
def test_who_can_form_which_gradient(played: Stage, scheme: str) -> None:
    """The server has four uploads, and an opened sum where the scheme opens one; a party the mean of the others."""
    stage = played(scheme)
    server = [one.kind for one in gradients_in(stage.view("server"), 1)]
    assert server.count("upload") == 4
    assert server.count("aggregate") == (0 if scheme == "plain" else 1)
    client = gradients_in(stage.view("p1"), 1)
    assert [(one.kind, one.owners) for one in client] == [("others", ("p2", "p3", "p4"))]
    rest = gradients_in(stage.view("others"), 1)
    assert [(one.kind, one.owners) for one in rest] == [("upload", ("p4",))]
    assert gradients_in(stage.view("broker"), 1) == []


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
def test_all_but_one_have_the_last_ones_gradient_to_rounding(played: Stage, scheme: str) -> None:
    exact = {one.owners: one.gradient for one in gradients_in(played("plain").view("server"), 1)}
    found = gradients_in(played(scheme).view("others"), 1)[0]
    assert np.abs(found.gradient - exact["p4",]).max() < 1e-4


def test_the_server_of_ampc_holds_words_unlike_any_gradient(played: Stage) -> None:
    exact = {one.owners: one.gradient for one in gradients_in(played("plain").view("server"), 1)}
    for one in gradients_in(played("ampc").view("server"), 1):
        truth = exact.get(one.owners, sum(exact.values()))
        assert abs(np.corrcoef(one.gradient.astype(np.float64), truth)[0, 1]) < 0.1


def test_division_alone_rebuilds_the_image_from_a_dense_layer(played: Stage) -> None:
    stage = played("plain")
    for target in gradients_in(stage.view("server"), 1):
        found = Analytic().invert(target, BUDGET, 7)
        assert likeness(found.images, target, stage) > 0.999
        assert found.labels.tolist() == labels_of(target, stage)


@pytest.mark.parametrize("attack", [Idlg(), Dlg()])
def test_matching_the_gradient_rebuilds_image_and_label(played: Stage, attack: GradientInversion) -> None:
    stage = played("plain", "dlnet")
    target = gradients_in(stage.view("server"), 1)[0]
    found = attack.invert(target, BUDGET, 7)
    assert likeness(found.images, target, stage) > 0.95
    assert found.labels.tolist() == labels_of(target, stage)


def test_the_sum_of_four_single_images_gives_all_four_back(played: Stage) -> None:
    stage = played("masked", "dlnet")
    target = gradients_in(stage.view("server"), 1)[-1]
    assert (target.kind, target.batch) == ("aggregate", 4)
    found = Idlg().invert(target, BUDGET, 7)
    assert likeness(found.images, target, stage) > 0.9
    assert sorted(found.labels.tolist()) == labels_of(target, stage)


def test_an_attack_repeats_from_its_seed_and_differs_without(played: Stage) -> None:
    target = gradients_in(played("plain", "dlnet").view("server"), 1)[1]
    small = Budget(20, 0, 30.0)
    first, again, other = (Idlg().invert(target, small, seed) for seed in (7, 7, 8))
    assert (first.images == again.images).all()
    assert (first.images != other.images).any()


def test_budgets_are_kept_and_the_best_iterate_is_returned(played: Stage) -> None:
    target = as_noise(gradients_in(played("plain", "dlnet").view("server"), 1)[0], 7)
    found = Idlg().invert(target, Budget(30, 0, 30.0), 7)
    assert found.evaluations <= 30 + 25
    assert found.stopped == "budget"
    longer = Idlg().invert(target, Budget(90, 0, 30.0), 7)
    assert longer.match_loss <= found.match_loss


def test_noise_gives_nothing_back(played: Stage) -> None:
    stage = played("plain", "dlnet")
    target = as_noise(gradients_in(stage.view("server"), 1)[0], 7)
    assert likeness(Idlg().invert(target, Budget(60, 0, 30.0), 7).images, target, stage) < 0.3


def test_inverting_matches_the_direction_only(played: Stage) -> None:
    stage = played("plain", "dlnet")
    target = gradients_in(stage.view("server"), 1)[0]
    scaled = replace(target, gradient=target.gradient * np.float32(1e-3))
    found = Inverting().invert(scaled, Budget(80, 0, 60.0), 7)
    assert likeness(found.images, target, stage) > 0.7


def test_inverting_goes_through_local_steps(played: Stage) -> None:
    """A delta of two local steps is matched by training the candidate for two steps."""
    stage = played("plain", "dlnet", payload="delta", local_epochs=2, batch_size="all")
    target = gradients_in(stage.view("server"), 1)[0]
    assert target.local_steps == 2
    found = Inverting().invert(target, Budget(60, 0, 60.0), 7)
    assert likeness(found.images, target, stage) > 0.7


def test_a_mean_of_several_parties_is_what_each_of_them_trained_alone(played: Stage) -> None:
    """With the true images the simulated mean is the observed one; one training on all images together is not."""
    stage = played("masked", "dlnet", payload="delta", local_epochs=3, batch_size="all")
    target = next(one for one in gradients_in(stage.view("server"), 1) if one.kind == "aggregate")
    victim = Victim(target)
    images = torch.from_numpy(np.concatenate([pixels(stage.truth[name]) for name in target.owners]))
    labels = torch.from_numpy(np.concatenate([stage.truth[name].targets for name in target.owners]))

    def apart(change: list[torch.Tensor]) -> float:
        return float(
            sum(
                (a - b).detach().square().sum()
                for a, b in zip(unit(change), unit(victim.gradient), strict=True)
            )
        )

    each = apart(mean_change(victim.module, images, labels, target))
    together = apart(simulated_change(victim.module, images, labels, 3, target.learning_rate))
    assert each < 1e-6
    assert together > 100 * each


def test_the_free_vector_changes_nothing_where_there_is_no_private_head(played: Stage) -> None:
    stage = played("plain", "dlnet")
    target = gradients_in(stage.view("server"), 1)[0]
    assert likeness(SpnAdaptive().invert(target, BUDGET, 7).images, target, stage) > 0.9


def test_division_refuses_a_network_that_begins_with_a_convolution(played: Stage) -> None:
    target = gradients_in(played("plain", "dlnet").view("server"), 1)[0]
    with pytest.raises(AttackDoesNotFit, match="dense"):
        Analytic().invert(target, BUDGET, 7)


def test_a_gradient_of_another_architecture_is_refused_before_the_work(played: Stage) -> None:
    target = gradients_in(played("plain", "dlnet").view("server"), 1)[0]
    cut = replace(target, gradient=target.gradient[:-1])
    with pytest.raises(AttackDoesNotFit, match="another architecture"):
        Idlg().invert(cut, BUDGET, 7)


def test_a_gradient_that_is_not_a_number_is_reported_not_raised(played: Stage) -> None:
    target = gradients_in(played("plain", "dlnet").view("server"), 1)[0]
    broken = replace(target, model=np.full_like(target.model, np.nan))
    found = Idlg().invert(broken, Budget(10, 1, 30.0), 7)
    assert found.stopped == "diverged"
    assert np.isfinite(found.images).all()


def test_more_images_than_an_update_stands_for_are_refused(played: Stage) -> None:
    with refusal(AttackDoesNotFit, 1, 4, "samples"):
        gradients_in(played("plain").view("server"), 4)


def test_a_client_of_a_perturbing_scheme_forms_no_gradient_and_the_server_everyones(played: Stage) -> None:
    stage = played("perturbed")
    assert gradients_in(stage.view("client"), 1) == []
    kinds = [one.kind for one in gradients_in(stage.view("server"), 1)]
    assert kinds == ["upload"] * len(stage.truth) + ["aggregate"]
