"""A small federation made to be attacked: every party holds few images, so that each update tells much.

The stage runs the real machines of the scheme on virtual time and records who saw what. What the parties hold is the
truth that an attack is measured by; attacks never see it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.contract import Learner, against_chance
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.equipment import TaskEquipment
from veilsum.roles.learning.factory import make_learner
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import Array, Samples, Task
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.observer import Observers, RunObserver
from veilsum.roles.views.recorder import ViewRecorder
from veilsum.roles.views.view import View
from veilsum.simulations.run.adversaries import members_of, view_recorder
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.invariants import InvariantMonitor
from veilsum.simulations.run.record import Recorder
from veilsum.simulations.run.simulation import Simulation

if TYPE_CHECKING:
    from veilsum.roles.learning.perturbation.traced_task import TracedTask

_PIXEL_MAX = 255


@dataclass(frozen=True, eq=False)
class FewImages:
    """A task cut down to a few training samples; all else is the task's own."""

    whole: Task
    train: Samples

    @property
    def test(self) -> Samples:
        return self.whole.test

    def learner(
        self,
        config: FederationConfig,
        party: str,
        entropy: RandomBytes | None = None,
        traced: TracedTask | None = None,
    ) -> Learner:
        """The learner of a party that holds its part of these samples, in their order."""
        by_order = replace(config, split="by-order")
        return make_learner(by_order, self, party, entropy=entropy, traced=traced)  # type: ignore[arg-type]  # a Task by delegation

    def __getattr__(self, name: str) -> object:
        return getattr(self.whole, name)


@dataclass(frozen=True, eq=False)
class Played:
    """A stage after its run: the views of its parties, and the truth about them."""

    config: FederationConfig
    recorder: Recorder
    views: ViewRecorder
    truth: Mapping[str, Samples]
    learner: Learner = field(repr=False)

    def view(self, adversary: str) -> View:
        return self.views.view(*members_of(adversary, self.config.parties))

    @property
    def model(self) -> Model:
        """The true global model after the last round."""
        assert self.recorder.model is not None
        return self.recorder.model

    def accuracy(self, model: Model) -> float:
        """Of any model on the test set: balanced over classes, where guessing the most frequent one gains nothing."""
        return balanced_accuracy(self.learner.evaluate(model))


@dataclass(frozen=True, eq=False)
class Cast:
    """A federation that is about to play, with what its parties hold and the recorders of what they see."""

    federation: Federation
    recorder: Recorder
    views: ViewRecorder
    truth: Mapping[str, Samples]
    learner: Learner = field(repr=False)

    @property
    def observers(self) -> list[RunObserver]:
        return [self.recorder, self.views]

    def after(self) -> Played:
        """What there is once it was played."""
        return Played(self.federation.config, self.recorder, self.views, self.truth, self.learner)


def cast(
    config: FederationConfig,
    images_per_party: int,
    draw: int = 0,
    model: Model | None = None,
    label_noise: float = 0.0,
    classes: Sequence[int] | None = None,
) -> Cast:
    """A federation with `images_per_party` training images each, the draw-th such choice of the seed."""
    task = attackable_task(config)
    names = [PartyId(name) for name in config.parties]
    needed = images_per_party * len(names)
    eligible = np.arange(len(task.train))
    if classes is not None:
        eligible = np.flatnonzero(np.isin(task.train.targets, classes))
    if needed > len(eligible):
        raise ParameterError(
            [
                f"{len(names)} parties with {images_per_party} images each need {needed}: "
                f"{config.task} has {len(eligible)}"
            ]
        )
    order = generator(config.seed, "audit images", draw).permutation(eligible)[:needed]
    outputs = int(task.train.targets.max()) + 1
    chosen = task.train.take(order.astype(np.int64))
    if label_noise:
        chosen = with_wrong_labels(chosen, label_noise, outputs, generator(config.seed, "audit labels", draw))
    few = FewImages(task, chosen)

    def make_learners(equipping: TaskEquipment, entropy: SeededEntropy) -> dict[PartyId, Learner]:
        return {
            name: few.learner(config, name, entropy.for_party(f"audit/{draw}/{name}"), equipping.traced)
            for name in names
        }

    federation = Federation.build(config, model, make_learners)
    truth = {
        name: few.train.take(np.arange(index * images_per_party, (index + 1) * images_per_party))
        for index, name in enumerate(names)
    }
    # What a perturbing server begins with is its own; others know the model that follows from the seed.
    first = federation.learners[names[0]]
    public = first.initial_model() if federation.scheme.perturbs else None
    views = view_recorder(federation, truth, outputs, public)
    held = {str(name): one for name, one in truth.items()}
    return Cast(federation, Recorder(federation), views, held, first)


def play(
    config: FederationConfig,
    images_per_party: int,
    draw: int = 0,
    model: Model | None = None,
    label_noise: float = 0.0,
    classes: Sequence[int] | None = None,
) -> Played:
    """Run the federation that `cast` makes of the same arguments."""
    parties = cast(config, images_per_party, draw, model, label_noise, classes)
    observer = Observers([InvariantMonitor(), *parties.observers])
    Simulation(parties.federation, observer=observer).run()
    recorder = parties.recorder
    if recorder.model is None or len(recorder.rounds) < config.rounds:
        reason = recorder.reason.value if recorder.reason is not None else "no round was committed"
        raise LocalProtocolError(f"the federation to be attacked did not finish: {reason}")
    return parties.after()


def balanced_accuracy(metrics: Mapping[str, float]) -> float:
    """What a task of classes says of a model, with guesses worth nothing."""
    found = against_chance(metrics)
    if found is None:
        raise ParameterError(["the task measures nothing: an audit needs its metrics"])
    return found[1]


def attackable_task(config: FederationConfig) -> Task:
    """The configured task, if it has images and classes."""
    task = load_task(config.task, config.task_options(), config.code)
    if isinstance(task, VectorsTask) or task.train.labels is None or len(task.train.input_shape) != 3:
        raise ParameterError(
            [
                f"task {config.task} has no images with classes to rebuild: use digits, mnist, cifar10 or ham10000"
            ]
        )
    return task


def with_wrong_labels(samples: Samples, share: float, classes: int, rng: np.random.Generator) -> Samples:
    """The same inputs, a share of them with the label of another class."""
    targets = samples.targets.copy()
    wrong = rng.random(len(targets)) < share
    targets[wrong] = (targets[wrong] + rng.integers(1, classes, int(wrong.sum()))) % classes
    return Samples(samples.inputs, targets)


def pixels(samples: Samples) -> Array:
    """The inputs as the model sees them: from 0 to 1."""
    inputs = samples.inputs
    return inputs.astype(np.float32) / _PIXEL_MAX if inputs.dtype == np.uint8 else inputs
