"""A curious client of server-side perturbation, attack by attack: what each makes of the view of one client.

* `line_predictions`: the offset by least squares on the client's own labels.
* `data_free_predictions`: the offset from the medians of the perturbed head, without any data.
* `exchange_predictions`: the offset from one cross-entropy exchange, exactly.
* `hidden_factors`: the factors of all hidden units, from a law that gradient descent keeps.
* `recognise`: which of two models was perturbed, from signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from torch import nn

from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.perturbed.messages import SoftmaxReply, SoftmaxRequest
from veilsum.roles.learning.task import Array
from veilsum.roles.views.view import PublicFacts, View
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit
from veilsum.simulations.attacks.membership.membership import Exposed
from veilsum.simulations.attacks.perturbation import (
    balancedness,
    cross_entropy,
    data_free,
    least_squares,
    signs,
)
from veilsum.simulations.attacks.perturbation.predictions import PerturbedModel, Reals, predicted_classes

Classes = NDArray[np.int64]


def line_predictions(view: View, inputs: Array) -> Classes:
    perturbed = PerturbedModel(view)
    return _without(perturbed, line_offset(perturbed), inputs)


def line_offset(perturbed: PerturbedModel) -> Reals:
    """The offset by one regression line per output."""
    outputs, alpha = perturbed.outputs(perturbed.own.inputs)
    targets = np.eye(outputs.shape[1])[perturbed.own.targets]
    return least_squares.estimate_offset(outputs, alpha, targets)


def data_free_predictions(view: View, inputs: Array) -> Classes:
    perturbed = PerturbedModel(view)
    head = perturbed.module.get_submodule("head")
    assert isinstance(head, nn.Linear)
    weight = head.weight.detach().double().numpy()
    return _without(perturbed, data_free.estimate_offset(weight, perturbed.public), inputs)


def exchange_predictions(view: View, inputs: Array) -> Classes:
    perturbed = PerturbedModel(view)
    outputs, alpha, softmax = exchanged_softmax(view, perturbed)
    gammas = cross_entropy.recover_gammas(outputs, alpha, softmax, perturbed.public)
    offset = gammas[perturbed.public.partition] * perturbed.public.directions
    return _without(perturbed, offset, inputs)


def exchanged_softmax(view: View, perturbed: PerturbedModel) -> tuple[Reals, Reals, Reals]:
    """Perturbed outputs, alpha and the true softmax of the samples that the client asked about."""
    public = perturbed.public
    asked = {one.sender: one.message for one in view.messages if isinstance(one.message, SoftmaxRequest)}
    told = {one.receiver: one.message for one in view.messages if isinstance(one.message, SoftmaxReply)}
    members = [name for name in view.members if name in asked and name in told]
    if not members or public.exchange != "log":
        raise AttackDoesNotFit("the view holds no exchange about a softmax: play loss ce with scale+offset")
    question, answer = asked[members[0]].question, told[members[0]].answer
    shape = (len(question.alpha), len(public.partition))
    surrogate, direction = (part.reshape(shape).astype(np.float64) for part in (answer.first, answer.second))
    softmax = cross_entropy.recover_softmax(surrogate, direction, public)
    return question.values.reshape(shape).astype(np.float64), question.alpha.astype(np.float64), softmax


def _without(perturbed: PerturbedModel, offset: Reals, inputs: Array) -> Classes:
    outputs, alpha = perturbed.outputs(inputs)
    return predicted_classes(least_squares.remove_offset(outputs, alpha, offset))


def hidden_factors(view: View) -> list[Reals]:
    """The factor of every hidden unit of a dense network, as well as balancedness tells it."""
    perturbed = PerturbedModel(view)
    layers = dense_layers(perturbed.module)
    if perturbed.public.has_offset:
        freed = layers[-1].weight - line_offset(perturbed)[:, None] * perturbed.public.feature_weight
        layers[-1] = balancedness.Layer(freed, layers[-1].bias)
    first = dense_layers(Exposed(view.facts, view.initial_model).module)
    return balancedness.estimate_factors(layers, balancedness.imbalance_of(first))


def dense_layers(module: nn.Module) -> list[balancedness.Layer]:
    """The layers of a chain of dense layers."""
    linear = [one for one in module.modules() if isinstance(one, nn.Linear)]
    fits = all(here.out_features == after.in_features for here, after in pairwise(linear))
    if not fits or any(isinstance(one, nn.Conv2d) for one in module.modules()):
        raise AttackDoesNotFit(
            "balancedness is written for chains of dense layers: use a model such as mlp2:64"
        )
    return [
        balancedness.Layer(one.weight.detach().double().numpy(), one.bias.detach().double().numpy())
        for one in linear
    ]


def recognise(view: View, candidates: Sequence[Model], round_: int) -> int:
    """Which candidate stands behind the perturbed model of a round: signs of hidden parameters do not change."""
    perturbed = next(message.model for _, message in view.received(RoundOpened, round_))
    hidden = hidden_size(view.facts)
    return signs.distinguish([one[:hidden] for one in candidates], perturbed[:hidden])


def hidden_size(facts: PublicFacts) -> int:
    """How many parameters come before the last layer, which alone has an offset."""
    module = Exposed(facts, np.zeros(facts.dimension, dtype=np.float32)).module
    return sum(one.numel() for one in module.get_submodule("features").parameters())
