"""The perturbation keys in a server's hands: they are its own, so it undoes them for every client.

Under `perturbed` each client's terms arrive as they are: recovery, meant for their mean, works for one client just as
well and gives its exact gradient. Under `bilateral` a single upload is uniform words, and recovery of words is words;
of the opened sum it gives the mean gradient.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from veilsum.protocol.identifiers import shown_number
from veilsum.protocol.perturbation.algebra.key import PerturbationKey
from veilsum.protocol.perturbation.algebra.layout import term_sizes
from veilsum.protocol.perturbation.algebra.recovery import recover
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.perturbation.settings import Loss
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.protocol.schemes.perturbed.messages import PerturbationAnnounced
from veilsum.protocol.schemes.perturbed.options import read_settings
from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.misfits import AttackDoesNotFit
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
            raise AttackDoesNotFit(f"the view holds no perturbation of round {shown_number(round_)}")
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

    def length(self, round_: int) -> int:
        """How many numbers an upload of a round has."""
        return sum(term_sizes(self._plan, self.of_round(round_).public).values())

    @property
    def body(self) -> list[slice]:
        """Where the parameters before the last layer lie in the gradient term."""
        return self._plan.body_slices()

    def words(self, round_: int, terms: Reals, attempt: int | None = None) -> Reals:
        """The same for words that hide the terms: nothing to recover, so the gradient term is merely rescaled."""
        whole = np.zeros(self._dimension)
        whole[: self._plan.size] = terms[: self._plan.size] * self.of_round(round_, attempt).scale
        return whole
