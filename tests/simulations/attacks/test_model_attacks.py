"""Attacks on models, seeds, memberships and repeated rounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.protocol.numbers.ring import Ring
from veilsum.roles.learning.task import Samples
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.exposed import Exposed
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit, Budget
from veilsum.simulations.attacks.gradient.targets import gradients_in
from veilsum.simulations.attacks.membership.loss import LossThreshold, scores_by_loss
from veilsum.simulations.attacks.membership.membership import TrainingStart, split_suspects
from veilsum.simulations.attacks.membership.network import AttackNetwork
from veilsum.simulations.attacks.membership.shadow import ShadowModels
from veilsum.simulations.attacks.metrics import membership, model_distance, ssim
from veilsum.simulations.attacks.model.ampc_coalition import recover_models
from veilsum.simulations.attacks.model.best import best_model
from veilsum.simulations.attacks.rounds.repeated import DpAveraging, SketchRounds
from veilsum.simulations.attacks.rounds.seeds import ReusedSeeds, difference, numpy_stream, search
from veilsum.simulations.audit.stage import Played, pixels

Stage = Callable[..., Played]


@pytest.mark.parametrize("bias", [{}, {"bias": "common", "recovery": "none"}], ids=["own", "common"])
def test_the_server_and_one_peer_have_the_global_model_of_every_round_to_the_bit(
    played: Stage, bias: dict[str, str]
) -> None:
    stage = played("ampc", rounds=2, **bias)
    found = recover_models(stage.view("coalition"))
    assert [one.round for one in found] == [0, 1]
    assert (found[-1].model == stage.model).all()


def test_the_server_alone_has_no_seeds_and_a_peer_alone_no_more_than_its_own(played: Stage) -> None:
    stage = played("ampc", rounds=2)
    with pytest.raises(AttackDoesNotFit, match="no bias seeds"):
        recover_models(stage.view("server"))
    with pytest.raises(AttackDoesNotFit, match="no biased sum"):
        recover_models(played("plain").view("server"))


@pytest.mark.parametrize("follow", [best_model, recover_models])
def test_sums_are_not_followed_through_a_step_that_the_attack_does_not_take(
    played: Stage, follow: Callable[[View], object]
) -> None:
    stage = played("ampc", rounds=2, payload="delta", server_optimizer="sgd:lr=0.5")
    adversary = "coalition" if follow is recover_models else "server"
    with refusal(AttackDoesNotFit, "sgd:lr=0.5"):
        follow(stage.view(adversary))


@pytest.mark.parametrize(
    ("scheme", "adversary"),
    [("plain", "server"), ("plain", "p1"), ("masked", "server"), ("mpc", "server"), ("ampc", "p1")],
)
def test_who_may_hold_the_model_does(played: Stage, scheme: str, adversary: str) -> None:
    stage = played(scheme, rounds=2)
    assert model_distance(best_model(stage.view(adversary)), stage.model) < 1e-7


def test_the_server_of_ampc_forms_a_model_far_from_the_true_one(played: Stage) -> None:
    stage = played("ampc", rounds=2)
    assert model_distance(best_model(stage.view("server")), stage.model) > 1
    with pytest.raises(AttackDoesNotFit):
        best_model(stage.view("broker"))


def test_fresh_biases_leave_nothing_in_the_difference_of_two_rounds(played: Stage) -> None:
    stage = played("ampc", rounds=2)
    view = stage.view("server")
    found = ReusedSeeds().change(view)
    assert np.abs(found).max() > 1e4
    with pytest.raises(AttackDoesNotFit, match="play more rounds") as refused:
        ReusedSeeds().change(played("ampc").view("server"))
    assert "1 and 2" in str(refused.value)


def test_reused_biases_would_show_the_change_exactly(played: Stage) -> None:
    encoding = config_of(played("ampc").view("server").facts).parameters(3).encoding
    first, second = (
        encoding.encode(np.array(values, dtype=np.float32), encoding.max_weight)
        for values in ([1.0, -2.0, 0.5], [1.25, -2.0, 0.25])
    )
    mask = numpy_stream(7, len(first))
    assert difference(encoding, first + mask, second + mask) == pytest.approx([0.25, 0.0, -0.25])


def test_a_short_seed_is_found_and_the_price_of_a_long_one_is_known() -> None:
    ring = Ring(64)
    total = ring.zeros(5)
    total[-1] = 4
    masked = total - numpy_stream(321, 5)
    found = search(masked, 4, numpy_stream, range(1000))
    assert (found.found, found.tried) == (321, 322)
    assert search(masked, 4, numpy_stream, range(300)).found is None
    assert found.hours_for(256) > 1e50


def suspects_and_model() -> tuple[Samples, Samples]:
    rng = np.random.default_rng(7)
    inputs = rng.random((240, 1, 8, 8)).astype(np.float32)
    labels = rng.integers(0, 10, 240)
    return Samples(inputs[:120], labels[:120]), Samples(inputs[120:], labels[120:])


@pytest.fixture(scope="module")
def memoriser(played: Stage) -> tuple[Exposed, Played, Samples, Samples]:
    """A model that learned random labels by heart: all it knows is who was there."""
    import torch
    from torch.nn import functional

    stage = played("plain")
    members, others = suspects_and_model()
    exposed = Exposed(stage.view("server").facts, stage.view("server").initial_model)
    inputs, labels = torch.from_numpy(members.inputs), torch.from_numpy(members.targets)
    optimiser = torch.optim.Adam(exposed.module.parameters(), lr=0.01)
    for _ in range(300):
        optimiser.zero_grad()
        torch.autograd.backward([functional.cross_entropy(exposed.module(inputs), labels)])
        optimiser.step()
    return exposed, stage, members, others


def test_membership_attacks_tell_members_of_a_model_that_learned_by_heart(
    memoriser: tuple[Exposed, Played, Samples, Samples],
) -> None:
    exposed, stage, members, others = memoriser
    suspects = split_suspects(members, others, np.random.default_rng(7))
    view = stage.view("server")
    start, budget = TrainingStart(view.facts, view.initial_model), Budget(epochs=20, shadows=2)
    for attack in (LossThreshold(), AttackNetwork(), ShadowModels()):
        scores = attack.score(exposed, suspects, start, budget, 7)
        told = membership(scores.members, scores.others, scores.threshold)
        assert told.auc > 0.9
        assert told.accuracy > 0.8


def test_membership_attacks_tell_nothing_of_a_model_that_saw_nobody(played: Stage) -> None:
    view = played("plain").view("server")
    exposed = Exposed(view.facts, view.initial_model)
    members, others = suspects_and_model()
    suspects = split_suspects(members, others, np.random.default_rng(7))
    scores = scores_by_loss(exposed, suspects)
    assert abs(membership(scores.members, scores.others).auc - 0.5) < 0.15


def test_the_attacker_is_judged_on_samples_it_did_not_know() -> None:
    members, others = suspects_and_model()
    suspects = split_suspects(members, others, np.random.default_rng(7))
    known = {one.tobytes() for one in suspects.known_members.inputs}
    assert len(known) == 60
    assert not known & {one.tobytes() for one in suspects.members.inputs}


def test_a_few_sketches_of_one_image_give_it_back(played: Stage) -> None:
    stage = played("plain", rounds=4, defence="sketch:ratio=2")
    series = [one for one in gradients_in(stage.view("server"), 1) if one.owners == ("p1",)]
    truth = pixels(stage.truth["p1"])
    assert ssim(SketchRounds().invert(series[:1], Budget(), 7).images, truth)[0] < 0.9
    assert ssim(SketchRounds().invert(series, Budget(), 7).images, truth)[0] > 0.99


def test_the_sketch_attack_refuses_a_view_without_sketches(played: Stage) -> None:
    with refusal(AttackDoesNotFit, "defence", "sketch"):
        SketchRounds().invert(gradients_in(played("plain").view("server"), 1)[:1], Budget(), 7)


def test_matching_several_noisy_rounds_beats_one(played: Stage) -> None:
    stage = played("plain", "dlnet", rounds=4, defence="dp:sigma=0.003")
    series = [one for one in gradients_in(stage.view("server"), 1) if one.owners == ("p1",)]
    truth = pixels(stage.truth["p1"])
    one, all_of_them = (DpAveraging().invert(part, Budget(40, 0, 30.0), 7) for part in (series[:1], series))
    assert ssim(all_of_them.images, truth)[0] > ssim(one.images, truth)[0]
