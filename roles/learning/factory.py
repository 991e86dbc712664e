"""The learner that fits a task. Importing this file imports no torch; making a learner that trains does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.learning.contract import Learner
from veilsum.roles.learning.datasets.vectors import VectorLearner, VectorsTask
from veilsum.roles.learning.defences.parse import parse_defence
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.server_step import StepOptimizer
from veilsum.roles.learning.splits import parse_split
from veilsum.roles.learning.task import Task
from veilsum.roles.learning.training.party_step import PartyStep, make_step
from veilsum.roles.learning.training.settings import TrainingOptions

if TYPE_CHECKING:
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.learning.perturbation.traced_task import TracedTask


@runtime_checkable
class Defended(Protocol):
    """What a learner with a defence offers besides; roles keep its state beside the party's checkpoints."""

    def state(self) -> bytes:
        """Everything private that must survive a restart: a secret, for this party's own disk only."""

    def restore(self, state: bytes) -> None:
        """Go on from what `state` gave before the restart."""

    def notes(self, rounds: int) -> list[str]:
        """What the defence gives in figures after so many rounds, for people to read."""

    def account(self) -> list[str]:
        """What the updates made so far have spent, in figures, for people to read."""


def make_learner(
    config: FederationConfig,
    task: Task | VectorsTask,
    party: str,
    *,
    device: str | None = None,
    entropy: RandomBytes | None = None,
    traced: TracedTask | None = None,
    checkpoint: int = 0,
) -> Learner:
    """The learner of one party of the federation, with its part of the task's training set.

    With a defence the learner is `Defended`. What its party keeps private is drawn from `entropy`: the
    operating system's in a role process, never anything that follows from the seed. With `traced` the learner is
    a `ClientPerturbation` too, and works on a perturbed model. `checkpoint` is the number of the organiser's
    checkpoint that the party goes on from: what it draws for a round is then drawn anew.
    """
    index, split = config.index_of(party), parse_split(config.split)
    defences = parse_defence(config.defence, config.code)
    if isinstance(task, VectorsTask):
        if defences:
            raise TaskError(f"defence {defences}: task vectors does not train: leave defence out")
        return VectorLearner(task, index, config.seed, checkpoint)
    from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner

    options = config.training_options(party, device)
    parts = LearnerParts(task, index, len(config.parties), split, options, config.seed, checkpoint)
    if traced is not None:
        from veilsum.roles.learning.perturbation.client import PerturbedLearner

        return PerturbedLearner(parts, traced)
    if not defences:
        return TorchLearner(parts)
    if entropy is None:
        raise LocalProtocolError(f"defence {defences} draws secrets: pass the party's entropy")
    from veilsum.roles.learning.defences.learner import DefendedLearner

    return DefendedLearner(parts, defences, entropy)


def make_observing_learner(
    config: FederationConfig, task: Task | VectorsTask, device: str | None = None
) -> Learner:
    """A learner that trains for nobody: it gives the first model and measures others, which no defence changes."""
    first = config.parties[0]
    return make_learner(replace(config, defence=""), task, first, device=device or config.device)


def make_step_optimizer(
    task: Task | VectorsTask, options: TrainingOptions, *, by_parties: bool
) -> StepOptimizer | None:
    """What takes the step on the mean; None where the mean is applied as it is.

    `by_parties` says that it is one that every party can take: `Scheme.has_chain`.
    """
    if not options.steps_with_optimizer:
        return None
    if by_parties and isinstance(task, VectorsTask):
        return PartyStep(make_step(options))
    if isinstance(task, VectorsTask):
        raise TaskError(
            f"server_optimizer {options.server_optimizer}: task vectors has no parameters: leave it out"
        )
    from veilsum.roles.learning.training.server_optimizer import ServerOptimizer, is_of_torch
    from veilsum.roles.learning.training.vectorize import layout

    entries = layout(task.build_model())
    if by_parties or not is_of_torch(options.server_optimizer):
        return PartyStep(make_step(options, sum(one.size for one in entries if one.kind == "parameter")))
    return ServerOptimizer(options, entries)
