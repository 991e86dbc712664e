"""Two rounds whose cohorts differ by one party, subtracted by whoever reads means: near that party's update.

How near follows from how far the model moved in between. Where parties hold the chain, all take the step that was
agreed on; a server that owns the model may take none, and then the difference is the update.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.schemes.perturbed.messages import PerturbedTerms
from veilsum.protocol.schemes.plain import PlainUpdate
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.attacks.gradient.targets import gradients_in
from veilsum.simulations.audit.lying.told import play_told
from veilsum.simulations.audit.stage import Played, cast
from veilsum.simulations.audit.sweeps.perturbed_models import true_updates

VICTIM = "p4"
READS_MEANS = [
    ("masked", "server"),
    ("mpc", "server"),
    ("bilateral", "server"),
    *((scheme, "p1") for scheme in ("plain", "masked", "mpc", "ampc")),
]


def lost_in_the_second_round(sender: PartyId, _: PartyId, message: Message) -> list[Message]:
    lost = sender == VICTIM and isinstance(message, MaskedInput | PlainUpdate | PerturbedTerms)
    return [] if lost and message.stamp.round == 1 else [message]


@functools.cache
def played(scheme: str, learning_rate: float = 0.1) -> Played:
    options = {
        "scheme": scheme,
        "parties": 4,
        "rounds": 2,
        "seed": 7,
        "task": "digits",
        "model": "mlp2:64",
        "payload": "gradient",
        "local_epochs": 1,
        "device": "cpu",
        "learning_rate": learning_rate,
    }
    return play_told(cast(FederationConfig.from_options(options), 1), lost_in_the_second_round).played


def off_by(stage: Played, adversary: str) -> float:
    """How far the difference of the two sums is from the victim's update, of its length."""
    first, second = (
        next(
            len(target.owners) * target.gradient.astype(np.float64)
            for target in gradients_in(stage.view(adversary), 1)
            if target.round == round_
            and (VICTIM in target.owners) == (round_ == 0)
            and len(target.owners) > 1
        )
        for round_ in (0, 1)
    )
    truth = true_updates(stage)[VICTIM, 0].astype(np.float64)
    return float(np.linalg.norm(first - second - truth) / np.linalg.norm(truth))


@pytest.mark.parametrize(("scheme", "adversary"), READS_MEANS)
def test_who_reads_the_means_of_two_rounds_gets_about_the_update_of_who_left(
    scheme: str, adversary: str
) -> None:
    assert 0.01 < off_by(played(scheme), adversary) < 0.5


def test_the_server_of_ampc_gets_nothing_out_of_two_rounds() -> None:
    assert off_by(played("ampc"), "server") > 1


@pytest.mark.parametrize("scheme", ["perturbed", "bilateral"])
def test_a_client_of_a_perturbed_model_reads_no_means(scheme: str) -> None:
    assert gradients_in(played(scheme).view("p1"), 1) == []


@pytest.mark.parametrize(("scheme", "adversary"), READS_MEANS)
def test_the_shorter_the_step_the_nearer_it_is(scheme: str, adversary: str) -> None:
    """With no step it is the update: what a lying server of `bilateral` may do, and on a chain nobody can."""
    assert off_by(played(scheme, 1e-3), adversary) < 0.1 * off_by(played(scheme), adversary)
