"""What the gradient attacks share: budgets, the model under attack, and how an optimisation is run.

Budgets count evaluations (a forward pass and two backward passes), so that a result is a function of the seed
and not of how busy the machine is; a limit in CPU seconds stands behind it. The best iterate by matching loss is
kept. An iterate that is not finite ends the start; further starts follow, and if none gives a finite image the
outcome says so. Starts end early once the loss is down to what float32 can tell from zero, or rests at a minimum
above it: two steps of 20 iterations each that lower it by less than a thousandth. (Without a line search, as
published, the loss may rise and fall again, and only a loss that stays the same to the last bit ends a start.)

The published attacks run L-BFGS without a line search. With a strong Wolfe search the same problem, four images behind
one gradient, is solved to rounding in 70 evaluations where the plain one is lost after 4,000: a defence that is
credited with resisting the plain one may only have met a weak optimiser.

Most of an evaluation on small images is the overhead of calls. Two things halve it: gradients are asked for the
unknowns alone, not for the network's parameters too, and below `SMALL` pixels convolutions are done without oneDNN,
whose preparations then cost more than the sums.

Implements specs/attacks.md, section 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from veilsum.roles.learning.models.catalogue import build_model
from veilsum.roles.learning.seeds import derive_seed
from veilsum.roles.learning.training.vectorize import layout, load_vector
from veilsum.simulations.attacks.budget import Budget as Budget
from veilsum.simulations.attacks.facts import config_of
from veilsum.simulations.attacks.gradient.targets import Target
from veilsum.simulations.attacks.misfits import AttackDoesNotFit as AttackDoesNotFit

Stopped = Literal["converged", "budget", "time", "diverged"]
Images = NDArray[np.float32]
Labels = NDArray[np.int64]


CONVERGED = 1e-10
NEAR = 1e-5
SMALL = 2048
PATIENCE, PROGRESS = 2, 1e-3


@contextmanager
def fast_convolutions(images: torch.Tensor) -> Iterator[None]:
    """Without oneDNN where the images are few and small."""
    switch: Any = torch.backends.mkldnn  # its types know the property, not the value
    before = switch.enabled
    switch.enabled = before and images.numel() > SMALL
    try:
        yield
    finally:
        switch.enabled = before


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Images and labels that an attack claims stand behind a target."""

    target: Target
    images: Images = field(repr=False)
    labels: Labels
    match_loss: float
    evaluations: int
    cpu_s: float
    stopped: Stopped
    extra: dict[str, float] = field(default_factory=dict)


class Victim:
    """The network under attack at the target's model, and its gradients as functions of the input."""

    def __init__(self, target: Target, device: str | None = None, dtype: torch.dtype = torch.float32) -> None:
        facts = target.facts
        name = config_of(facts).model
        if name is None:
            raise AttackDoesNotFit("the view names no architecture: record it with an explicit model")
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.module: nn.Module = build_model(name, facts.input_shape, facts.outputs, seed=0)
        places = layout(self.module)
        if places[-1].stop != target.gradient.size:
            raise AttackDoesNotFit(
                f"the gradient has {target.gradient.size} numbers, model {name} {places[-1].stop}: "
                "another architecture made it"
            )
        load_vector(self.module, target.model)
        self.dtype = dtype
        self.module.to(self.device, dtype).eval()
        self.parameters = list(self.module.parameters())
        self.entries = [place for place in places if place.kind == "parameter"]
        flat = torch.from_numpy(np.nan_to_num(target.gradient)).to(self.device, dtype)
        self.gradient = [flat[e.start : e.stop].reshape(e.shape) for e in self.entries]
        self.shape = (target.batch, *facts.input_shape)
        self.classes = facts.outputs

    def named(self, name: str) -> torch.Tensor | None:
        """The target's gradient of one parameter."""
        for entry, gradient in zip(self.entries, self.gradient, strict=True):
            if entry.name == name:
                return gradient
        return None

    def gradients(self, loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients of a loss with respect to the parameters, themselves differentiable."""
        return torch.autograd.grad(loss, self.parameters, create_graph=True)

    def mismatch(
        self, gradients: Sequence[torch.Tensor], support: Sequence[torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Squared distance to the target, relative to its size; on the support alone, if one is given."""
        differences = [a - b for a, b in zip(gradients, self.gradient, strict=True)]
        if support is not None:
            differences = [d * mask for d, mask in zip(differences, support, strict=True)]
        return torch.stack([d.square().sum() for d in differences]).sum() / self.size

    @property
    def size(self) -> float:
        """The squared norm of the target."""
        return max(sum(float(g.double().square().sum()) for g in self.gradient), 1e-30)

    def random(self, seed: int, *name: str | int) -> torch.Generator:
        return torch.Generator().manual_seed(derive_seed(seed, *name))


@dataclass
class Best:
    """The best iterate so far, and the bill."""

    budget: Budget
    evaluations: int = 0
    loss: float = float("inf")
    values: list[torch.Tensor] = field(default_factory=list)
    stopped: Stopped = "budget"
    started: float = field(default_factory=time.process_time)

    @property
    def cpu_s(self) -> float:
        return time.process_time() - self.started

    def note(self, loss: float, values: list[torch.Tensor]) -> None:
        self.evaluations += 1
        if np.isfinite(loss) and loss < self.loss:
            self.loss = loss
            self.values = [value.detach().clone() for value in values]

    @property
    def out_of_time(self) -> bool:
        return self.cpu_s > self.budget.cpu_s


Start = Callable[[int], list[torch.Tensor]]
Objective = Callable[[list[torch.Tensor]], torch.Tensor]


def minimise(
    start: Start,
    objective: Objective,
    budget: Budget,
    converged: float = CONVERGED,
    *,
    line_search: bool = True,
) -> Best:
    """L-BFGS from several starts, `budget.evaluations` each; a start that came near is the last one."""
    best = Best(budget)
    for attempt in range(budget.restarts + 1):
        values = [value.requires_grad_(True) for value in start(attempt)]
        with fast_convolutions(values[0]):
            _descend(values, objective, best, converged, line_search=line_search)
        if best.loss < converged:
            best.stopped = "converged"
            return best
        if best.loss < NEAR:
            return best
        if best.out_of_time:
            best.stopped = "time"
            break
    if not best.values:
        best.stopped = "diverged"
        best.values = start(0)
    return best


def _descend(
    values: list[torch.Tensor], objective: Objective, best: Best, converged: float, *, line_search: bool
) -> None:
    optimiser = torch.optim.LBFGS(
        values,
        max_iter=20,
        history_size=100,
        tolerance_grad=1e-12,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe" if line_search else None,
    )
    last = best.evaluations + best.budget.evaluations
    losses: list[float] = []

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = objective(values)
        losses.append(float(loss.detach()))
        best.note(losses[-1], values)
        torch.autograd.backward([loss], inputs=values)
        return loss

    ends, lowest = [float("inf")], [float("inf")]
    while best.evaluations < last and np.isfinite(losses).all() and not best.out_of_time:
        ends.append(float(optimiser.step(closure).detach()))  # type: ignore[no-untyped-call]  # torch does not say
        lowest.append(min(losses))
        if best.loss < converged or ends[-1] == ends[-2] or (line_search and _at_rest(lowest)):
            return


def _at_rest(lowest: Sequence[float]) -> bool:
    """Whether the last steps brought next to nothing: a minimum that further steps will not leave."""
    return len(lowest) > PATIENCE and lowest[-1] > (1 - PROGRESS) * lowest[-1 - PATIENCE]


def rebuilt(
    target: Target, best: Best, labels: torch.Tensor, extra: dict[str, float] | None = None
) -> Reconstruction:
    """What an optimisation found, whose first unknown are the images."""
    images, found = to_images(best.values[0]), labels.cpu().numpy()
    return Reconstruction(
        target, images, found, best.loss, best.evaluations, best.cpu_s, best.stopped, extra or {}
    )


def to_images(values: torch.Tensor) -> Images:
    images: NDArray[Any] = values.detach().cpu().numpy().astype(np.float32)
    return images
