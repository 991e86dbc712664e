"""The curious server of perturbed training: the perturbation keys are its own, so it undoes them for every client.

Under `perturbed` each client's terms arrive as they are: recovery, meant for their mean, works for one client just as
well and gives its exact gradient. Under `bilateral` a single upload is uniform words, and recovery of words is words;
of the opened sum it gives the mean gradient. In the cross-entropy exchange the server is told, or can solve for, the
true softmax of every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from veilsum.protocol.perturbation.algebra.key import PerturbationKey
from veilsum.protocol.perturbation.algebra.layout import BETA, GRADIENT, term_sizes
from veilsum.protocol.perturbation.algebra.recovery import recover
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.perturbation.settings import Loss
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced, SoftmaxRequest
from veilsum.protocol.schemes.perturbed.options import read_settings
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
from veilsum.simulations.attacks.perturbation import cross_entropy, shared_mask
from veilsum.simulations.attacks.perturbation.projection import Reals

Vector = NDArray[Any]


class PerturbationKeys:
    """The perturbation keys in a server's view, put together with what it announced."""

    def __init__(self, view: View) -> None:
        self._secrets = {one.key_id: one for one in view.perturbation_secrets}
        if not self._secrets:
            raise AttackDoesNotFit(
                "the view holds no perturbation keys: it is not of a server that perturbs the model"
            )
        config, facts = config_of(view.facts), view.facts
        assert config.model is not None
        module = build_model(config.model, facts.input_shape, facts.outputs, seed=0)
        self._plan = trace(module, torch.zeros(1, *facts.input_shape))
        self._options = config.parameters(facts.dimension).options
        self._dimension = facts.dimension
        self._public: dict[tuple[int, int], PublicPerturbation] = {
            (message.stamp.round, message.stamp.attempt): message.public
            for _, message in view.sent(PerturbationAnnounced)
        }

    def of_round(self, round_: int, attempt: int | None = None) -> PerturbationKey:
        """The key of an attempt of a round, of the last one if none is named."""
        attempts = [one for one in self._public if one[0] == round_ and attempt in (None, one[1])]
        if not attempts:
            raise AttackDoesNotFit(f"the view holds no perturbation of round {round_}")
        public = self._public[max(attempts)]
        mine = self._secrets[public.key_id]
        settings = read_settings(self._options, cast(Loss, public.loss))
        parts = (mine.scale, mine.gammas, mine.blinders, mine.shifts, mine.loss_shift)
        return PerturbationKey(self._plan, settings, public, *parts)

    def gradient(self, round_: int, terms: Vector, attempt: int | None = None) -> Reals:
        """What recovery makes of one vector of terms, in the layout of the model; buffers stay zero."""
        key = self.of_round(round_, attempt)
        wide = terms.astype(np.float64)
        found = recover(key, {name: wide[place] for name, place in self.terms(round_).items()})
        whole = np.zeros(self._dimension)
        whole[: self._plan.size] = found.gradient
        return whole

    def terms(self, round_: int) -> dict[str, slice]:
        """Where each term lies in an upload of a round."""
        sizes = term_sizes(self._plan, self.of_round(round_).public)
        ends = np.cumsum(list(sizes.values()))
        return {
            name: slice(int(end) - size, int(end))
            for (name, size), end in zip(sizes.items(), ends, strict=True)
        }

    @property
    def body(self) -> list[slice]:
        """Where the parameters before the last layer lie in the gradient term."""
        return self._plan.body_slices()

    def words(self, round_: int, terms: Reals, attempt: int | None = None) -> Reals:
        """The same for words that hide the terms: nothing to recover, so the gradient term is merely rescaled."""
        whole = np.zeros(self._dimension)
        whole[: self._plan.size] = terms[: self._plan.size] * self.of_round(round_, attempt).scale
        return whole


def asked_softmax(view: View) -> Iterator[tuple[str, Reals]]:
    """The true softmax of every sample that each client asked about."""
    keys = PerturbationKeys(view)
    found = False
    for client, message in view.received(SoftmaxRequest):
        found = True
        key, question = keys.of_round(message.stamp.round, message.stamp.attempt), message.question
        samples, classes = len(question.alpha), len(key.public.partition)
        alpha = np.asarray(question.alpha, dtype=np.float64)
        if key.public.exchange == "log":
            scores = question.values.reshape(samples, classes) - alpha[:, None] * key.offset
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            yield client, powers / powers.sum(axis=1, keepdims=True)
        else:
            ratios = np.asarray(question.values.reshape(samples, classes, classes), dtype=np.float64)
            yield client, cross_entropy.softmax_from_ratios(ratios, alpha, key.offset)
    if not found:
        raise AttackDoesNotFit("the view holds no question about a softmax: play loss ce with scale+offset")


def masked_differences(view: View) -> Iterator[tuple[str, Reals]]:
    """Gradient minus beta of each client in round 0, before the last layer: in clear if one mask covers both."""
    keys = PerturbationKeys(view)
    encoding = config_of(view.facts).parameters(view.facts.dimension).encoding
    for client, message in view.received(MaskedInput, 0):
        words = np.array(message.vector)
        difference = encoding.ring.signed(split_difference(keys, words, shared_mask.unmask))
        yield client, difference.astype(np.float64) / encoding.scale


def split_difference(
    keys: PerturbationKeys, upload: Vector, subtract: Callable[[Vector, Vector], Vector]
) -> Vector:
    """The body of the gradient term of an upload, less its beta term."""
    terms = keys.terms(0)
    if BETA not in terms:
        raise AttackDoesNotFit("only loss mse with scale+offset has a beta term: play that")
    gradient = upload[terms[GRADIENT]]
    body = np.concatenate([gradient[place] for place in keys.body])
    return subtract(body, upload[terms[BETA]][: len(body)])
