"""How a party trains: optimiser, epochs, batches, learning rate, and what it uploads.

The options are agreed by all parties and hashed with the configuration, so they are plain values. The
learning rate of a round is a function of the round alone: a party that resumes at round 40 uses the rate of
round 40.

A momentum or an Adam state that lived on from round to round would make an update depend on what the
process did before it was restarted. The local optimiser therefore starts afresh in every round. That of the server
goes on, and its memory is a value that the checkpoint keeps: roles/learning/training/server_optimizer.py.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.numbers.rates import SCHEDULE_FORMS, RateSchedule, is_schedule
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.learning.contract import PAYLOADS, Payload

Optimizer: TypeAlias = Literal["sgd", "adam"]
GradientBatch: TypeAlias = Literal["full", "mini"]

DEFAULT_EPOCHS = 5
PLAIN_STEP = "sgd"
"""The server's step without an optimiser: apply the mean as it is."""
_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d{1,3})?")


@dataclass(frozen=True)
class TrainingOptions:
    """One party's training in one round.

    `batch_size = None` means all samples at once. `local_epochs = None` means five, or the one that payload
    `gradient` allows.

    With `payload = "gradient"` a round is one gradient at the round's model (FedSGD): over all samples, or,
    with `gradient_batch = "mini"`, over one batch of `batch_size` samples. The step is then taken on the
    mean.

    `server_optimizer` takes the step on the mean: `sgd` applies it as it is, any other may be named with settings, as
    in `adam:lr=0.01`. Where parties can take the step it is one of protocol/numbers/step_kinds.py, elsewhere any of
    torch.
    """

    optimizer: Optimizer = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    local_epochs: int | None = None
    batch_size: int | None = 16
    schedule: str = "constant"
    payload: Payload = "model"
    gradient_batch: GradientBatch = "full"
    device: str = "cpu"
    server_optimizer: str = PLAIN_STEP

    def __post_init__(self) -> None:
        problems = [*self._choice_problems(), *self._range_problems(), *self._gradient_problems()]
        if problems:
            raise ParameterError(problems)

    @property
    def epochs(self) -> int:
        """Passes over the party's samples in one round."""
        if self.local_epochs is None:
            return 1 if self.payload == "gradient" else DEFAULT_EPOCHS
        return self.local_epochs

    @property
    def steps_with_optimizer(self) -> bool:
        """Whether the server does more with the mean than apply it."""
        return self.server_optimizer != PLAIN_STEP

    def learning_rate_at(self, round: int) -> float:
        """The learning rate of a round, counted from 0."""
        return RateSchedule(self.learning_rate, self.schedule).at(round)

    def _choice_problems(self) -> Iterator[str]:
        for name, value, allowed in (
            ("optimizer", self.optimizer, get_args(Optimizer)),
            ("payload", self.payload, PAYLOADS),
            ("gradient_batch", self.gradient_batch, get_args(GradientBatch)),
        ):
            if value not in allowed:
                yield f"{name} {value!r} is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}"
        if not is_schedule(self.schedule):
            near = did_you_mean(self.schedule.partition(":")[0], ("constant", "step", "cosine"))
            yield f"schedule {self.schedule!r} is not one of: {SCHEDULE_FORMS}{near}"
        if not _DEVICE.fullmatch(self.device):
            yield f"device {self.device!r} is not one of auto, cpu, cuda, cuda:INDEX, mps"

    def _range_problems(self) -> Iterator[str]:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            yield f"learning_rate must be positive, not {self.learning_rate}"
        if not 0 <= self.momentum < 1:
            yield f"momentum must be in [0, 1), not {self.momentum}"
        if self.momentum and self.optimizer == "adam":
            yield "momentum belongs to sgd; adam has its own: leave momentum at 0"
        if self.epochs < 1:
            yield f"local_epochs must be at least 1, not {self.local_epochs}"
        if self.batch_size is not None and self.batch_size < 1:
            yield f"batch_size must be at least 1, or none for all samples at once, not {self.batch_size}"

    def _gradient_problems(self) -> Iterator[str]:
        if self.payload == "gradient":
            if self.epochs != 1:
                yield f"payload gradient takes one gradient: local_epochs must be 1, not {self.local_epochs}"
            if self.optimizer != "sgd" or self.momentum:
                yield (
                    "payload gradient takes no local steps: use optimizer sgd with momentum 0, and for the step on the "
                    "mean server_optimizer, as in server_optimizer adam"
                )
            if self.gradient_batch == "mini" and self.batch_size is None:
                yield "gradient_batch mini needs a batch_size"
        elif self.gradient_batch != "full":
            yield f"gradient_batch belongs to payload gradient, not to payload {self.payload}"
        if self.steps_with_optimizer and self.payload == "model":
            yield (
                f"server_optimizer {self.server_optimizer} steps on a mean gradient or delta: payload model has "
                "neither; set payload to gradient or delta"
            )
