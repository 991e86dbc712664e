"""The gradients that an adversary can form from its view (specs/views.md): what the inversion attacks work on.

A target says at which model the gradient was taken, how many images stand behind it, and whose. Its kind tells how
the adversary came by it:

* `upload`: one party's update as it arrived. Under a masking scheme these are uniform words, read as numbers.
* `aggregate`: the mean of a round, opened, or still under the biases.
* `others`: the mean of a round without the adversary's own share of it.

A payload `gradient` is the gradient. A delta is minus the learning rate times the sum of the gradients along the
local steps; for a single step that is the gradient again, and for several `local_steps` tells so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.parameters import Weights
from veilsum.protocol.errors import Rejection
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.session import Farewell, RoundOpened
from veilsum.protocol.numbers.fixedpoint import EXTRA_COORDINATES, FixedPoint
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Stamp
from veilsum.roles.learning.seeds import generator
from veilsum.roles.views.view import OwnUpdate, PublicFacts, View
from veilsum.simulations.attacks.carried import sums_in, uploads_in
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.misfits import AttackDoesNotFit

if TYPE_CHECKING:
    from veilsum.simulations.attacks.perturbation.keys import PerturbationKeys

Vector = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Target:
    """One gradient, and what is known about it."""

    kind: str
    owners: tuple[str, ...]
    round: int
    batch: int
    facts: PublicFacts
    model: Model = field(repr=False)
    gradient: Model = field(repr=False)
    local_steps: int = 1
    learning_rate: float = 0.0

    @property
    def note(self) -> str:
        if self.kind == "upload":
            return f"one upload of {self.batch} image{'s' * (self.batch > 1)}"
        return f"{self.kind} of {len(self.owners)} parties, {self.batch} images"

    @property
    def note_without_batch(self) -> str:
        """The same where nobody knows how many images stand behind it: what is looked for, not what there is."""
        of = "one upload" if self.kind == "upload" else f"{self.kind} of {len(self.owners)} parties"
        return f"{of}, {self.batch} image{'s' * (self.batch > 1)} looked for"


def gradients_in(view: View, images_per_party: int) -> list[Target]:
    """Everything in the view that can be read as a gradient; empty if there is nothing of the kind."""
    _require_batch(view, images_per_party)
    reader = _Reader(view, images_per_party)
    found: list[Target] = []
    for round_ in view.rounds:
        found += reader.uploads(round_)
        found += reader.sums(round_)
    return found


def _require_batch(view: View, images: int) -> None:
    """Refuse to look for more images than the view says there were."""
    counts = {one.samples for one in view.own_updates}
    if config_of(view.facts).weights == Weights.SAMPLES.value:
        counts |= {carried.samples for *_, carried in uploads_in(view) if carried.samples is not None}
    if counts and images > max(counts):
        raise AttackDoesNotFit(f"an update of this view stands for {max(counts)} samples, not for {images}")


def as_noise(target: Target, seed: int) -> Target:
    """The same target with a gradient of pure noise, of the same size: what an attack makes of nothing."""
    draw = generator(seed, "null target", *target.owners, target.round)
    noise = draw.standard_normal(target.gradient.size).astype(np.float32)
    size = float(np.linalg.norm(target.gradient.astype(np.float64)))
    scaled = noise * (size / float(np.linalg.norm(noise)))
    return replace(target, gradient=scaled.astype(np.float32))


class _Reader:
    def __init__(self, view: View, images: int) -> None:
        self.view = view
        self.images = images
        self.config = config_of(view.facts)
        self.training = self.config.training_options()
        self.encoding = self.config.parameters(view.facts.dimension).encoding
        self.scheme = self.config.load_scheme()
        self.perturbed = self.scheme.perturbs

    @cached_property
    def keys(self) -> PerturbationKeys | None:
        """The perturbation keys of a server that perturbs the model, if the view holds them."""
        if not self.view.perturbation_secrets:
            return None
        from veilsum.simulations.attacks.perturbation.keys import PerturbationKeys

        return PerturbationKeys(self.view)

    def uploads(self, round_: int) -> Iterator[Target]:
        for sender, stamp, carried in uploads_in(self.view, round_):
            vector = carried.vector
            if not carried.in_clear:
                vector = read_words(self.encoding, vector, self.images)
            payload = self._unperturbed(vector, stamp, carried) if self.perturbed else vector
            if payload is not None and len(payload) == self.view.facts.dimension:
                yield self._target("upload", (sender,), round_, payload)

    def _unperturbed(self, terms: Vector, stamp: Stamp, carried: Carried) -> Vector | None:
        """Of terms in clear the client's own gradient, exactly; of masked terms what their words give."""
        if self.keys is None or len(terms) != self.keys.length(stamp.round):
            return None
        if carried.in_clear:
            return self.keys.gradient(stamp.round, terms, stamp.attempt)
        return self.keys.words(stamp.round, np.asarray(terms, dtype=np.float64), stamp.attempt)

    def sums(self, round_: int) -> Iterator[Target]:
        """The mean of the round and, for who took part in it, the mean of the others."""
        mean, parties = self._mean(round_)
        if mean is None:
            return
        # Of several attempts the last one counts.
        last = {one.party: one for one in self.view.own_updates if one.round == round_}
        own = [one for one in last.values() if one.party in parties]
        if not own:
            yield self._target("aggregate", parties, round_, mean)
            return
        # Others' sample counts are not in a participant's view: it takes them to be its own.
        weigh = Weights(self.config.weights).of
        weights = len(parties) * weigh(own[0].samples)
        rest = mean.astype(np.float64) * weights
        for one in own:
            rest -= self._own(one) * weigh(one.samples)
            weights -= weigh(one.samples)
        others = tuple(name for name in parties if name not in {one.party for one in own})
        if others and weights > 0:
            kind = "upload" if len(others) == 1 else "others"
            yield self._target(kind, others, round_, rest / weights)

    def _own(self, one: OwnUpdate) -> Vector:
        """A member's own update; of a perturbed round what the key makes of its terms."""
        if self.keys is not None:
            return self.keys.gradient(one.round, one.payload.astype(np.float64))
        return one.payload.astype(np.float64)

    def _mean(self, round_: int) -> tuple[Vector | None, tuple[str, ...]]:
        """The best reading of the round's mean payload, and whose it is."""
        results = [one for one in self.view.results if one.round == round_]
        for one in results:
            if one.total is not None and not self.perturbed:
                return self.encoding.decode_mean(one.total, len(one.members))[0], one.members
        for _, carried in sums_in(self.view, round_):
            return self._summed(carried), carried.members
        after = next((one for one in results if one.model is not None), None)
        if after is None:
            after = next((one for one in results), None)
        if after is None or (self.perturbed and after.model is None):
            return None, ()
        if self.view.members == (SERVER,) and not (self.perturbed or self.scheme.hides_updates):
            return None, ()
        next_model = after.model if after.model is not None else self._model_at(round_ + 1)
        if next_model is None:
            return None, ()
        return self._payload_between(self._model_at(round_), next_model, round_), after.members

    def _summed(self, carried: Carried) -> Vector:
        if carried.in_clear:
            return carried.vector
        parties = len(carried.members)
        try:
            return self.encoding.decode_mean(carried.vector, parties)[0]
        except Rejection:
            return read_words(self.encoding, carried.vector, self.images * parties)

    def _payload_between(self, before: Model | None, after: Model, round_: int) -> Vector | None:
        if before is None or self.training.steps_with_optimizer:
            return None
        moved = after.astype(np.float64) - before.astype(np.float64)
        match self.training.payload:
            case "gradient":
                return -moved / self.training.learning_rate_at(round_)
            case "delta":
                return moved
            case _:
                return after

    def _model_at(self, round_: int) -> Model | None:
        """The model that round began with, where the adversary knows it."""
        # A perturbing scheme sends another model than the one the round is about.
        for source in () if self.perturbed else (self.view.sent, self.view.received):
            for _, message in source(RoundOpened, round_):
                if len(message.model):
                    model: Model = message.model
                    return model
        if round_ == 0:
            return self.view.initial_model
        for one in self.view.results:
            if one.round == round_ - 1 and one.model is not None:
                return one.model
        if round_ == max(self.view.rounds) + 1:
            finals = [message.model for _, message in self.view.received(Farewell) if len(message.model)]
            return finals[-1] if finals else None
        return None

    def _target(self, kind: str, owners: tuple[str, ...], round_: int, payload: Vector) -> Target:
        model = self._model_at(round_)
        if model is None:
            model = self.view.initial_model
        rate = self.training.learning_rate_at(round_)
        steps = 1
        gradient = payload.astype(np.float64)
        if self.training.payload != "gradient":
            delta = gradient - model if self.training.payload == "model" else gradient
            size = self.training.batch_size or self.images
            steps = self.training.epochs * -(-self.images // size)
            gradient = -delta / rate
        with np.errstate(over="ignore"):
            rounded = gradient.astype(np.float32)
        batch = self.images * len(owners)
        return Target(kind, tuple(owners), round_, batch, self.view.facts, model, rounded, steps, rate)


def read_words(encoding: FixedPoint, words: RingVector, samples: int) -> Vector:
    """Ring words as the numbers they would be if nothing hid them."""
    signed = encoding.ring.signed(np.array(words))[:-EXTRA_COORDINATES].astype(np.float64)
    return signed / (encoding.scale * samples / encoding.max_weight)
