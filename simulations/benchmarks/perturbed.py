"""What perturbation costs a client and the server, against the plain step on the same machine in the same run.

The plain client runs one forward and one backward pass; the perturbed client computes every term, ready for
upload. The plain server does what scheme `plain` does in a round, with the same functions: it checks the uploads, takes
their weighted mean and the step, and hashes the next model. The perturbed server does what scheme `perturbed` does: it
draws a key, perturbs the model and hashes it before; after, it checks the uploads, recovers the gradient from the
weighted mean of all terms, steps and hashes. Sending and receiving are left out on both sides. The phases are
those the publications report: perturbation, forward pass, backward passes, model update. The exchange of cross entropy
is counted with the backward passes at the client, and by itself at the server.

The perturbed client may lay images out with channels last in memory, which plain autograd by itself does not; a
second ratio, against a plain client that does the same, shows how much of the first is owed to that. Where the layouts
are the same anyway there is only one plain client, and the two ratios are equal.

A ratio is taken within a turn, in which everything is run twice and timed the second time: memory and caches are
then as its own last step left them, not as somebody else's did. The median over turns is reported.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.numbers.averaging import weighted_mean
from veilsum.protocol.perturbation.algebra.exchange import answer, conclude
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.algebra.layout import Terms
from veilsum.protocol.perturbation.algebra.losses import mean_loss, target_matrix
from veilsum.protocol.perturbation.algebra.packing import load_parameters
from veilsum.protocol.perturbation.algebra.terms import (
    client_terms,
    cross_entropy_terms,
    exchange_request,
    run_forward,
)
from veilsum.protocol.perturbation.contract import require_numbers
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.settings import Loss, Mode, PerturbationSettings
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.roles.learning.contract import FloatVector, apply_update
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.perturbation.server import TaskPerturbation, TaskServerPerturbation
from veilsum.roles.learning.perturbation.traced_task import TracedTask
from veilsum.roles.learning.training.determinism import one_thread
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import to_vector
from veilsum.simulations.benchmarks.measuring import Figure

OUTPUTS, CLIENTS = 10, 10
TRAINING = TrainingOptions(payload="gradient")
PLAIN_FORWARD, PLAIN_CLIENT, SAME_LAYOUT = "plain forward", "plain client", "plain client, same layout"
FORWARD, CLIENT = "forward", "client"
PLAIN_SERVER, PERTURB, UPDATE, EXCHANGE = "plain server", "perturb", "update", "exchange"


def run(
    model_name: str,
    batch: int = 32,
    loss: Loss = "mse",
    groups: int = 1,
    kind: Mode = "scale+offset",
    *,
    input_shape: tuple[int, ...] | None = None,
    turns: int = 30,
) -> dict[str, Any]:
    """Ratios of perturbed over plain, phases in CPU seconds, and upload sizes, for one model, perturbed in one way."""
    if input_shape is None:
        input_shape = (1, 28, 28) if model_name.startswith("mlp") else (3, 32, 32)
    bench = _Bench(
        build_model(model_name, input_shape, OUTPUTS, seed=1), input_shape, batch, loss, groups, kind
    )
    with one_thread():
        seconds = _Turns.taken(bench.jobs(), turns)
    same_layout = SAME_LAYOUT if bench.other_layout else PLAIN_CLIENT
    return {
        "model": model_name,
        "batch": batch,
        "loss": loss,
        "groups": groups,
        "noise": kind,
        "parameters": bench.plan.size,
        "client_over_plain": seconds.ratio((CLIENT,), PLAIN_CLIENT),
        "client_over_plain_same_layout": seconds.ratio((CLIENT,), same_layout),
        "server_over_plain": seconds.ratio((PERTURB, UPDATE), PLAIN_SERVER),
        "upload_over_plain": bench.uploaded / bench.plan.size,
        "phases_s": _phases(seconds),
        "condition": bench.condition,
    }


def rows(figures: Mapping[str, Any]) -> list[Figure]:
    """The ratios, each with its limit where one is set.

    The limit of a server, m + 4, is meant for the m + 2 terms of the squared error; cross entropy has 3m + 1.
    """
    one_group = figures["groups"] == 1
    client: float | None = None
    if figures["noise"] == "scale":
        client = 1.1
    elif one_group and figures["loss"] == "mse":
        client = 2.35
    elif one_group and figures["model"].startswith("mlp"):
        client = 2.8
    server = figures["groups"] + 4.0 if one_group or figures["loss"] == "mse" else None
    meanings = {
        "client_over_plain": ("the perturbed client's step over a plain autograd step", client),
        "client_over_plain_same_layout": ("the same, over a plain step with images laid out alike", None),
        "server_over_plain": ("the server's round over that of a plain server", server),
        "upload_over_plain": ("numbers uploaded over numbers in the model", None),
    }
    return [
        Figure(name, figures[name], meaning, at_most=limit) for name, (meaning, limit) in meanings.items()
    ]


@dataclass(frozen=True)
class _Turns:
    """CPU seconds of every job, turn by turn."""

    seconds: Mapping[str, list[float]]

    @classmethod
    def taken(cls, jobs: Mapping[str, Callable[[], object]], turns: int) -> _Turns:
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(turns):
            for name, job in jobs.items():
                job()
                started = time.process_time()
                job()
                seconds[name].append(time.process_time() - started)
        return cls(seconds)

    def ratio(self, parts: tuple[str, ...], whole: str) -> float:
        turns = zip(*(self.seconds[name] for name in (*parts, whole)), strict=True)
        ratios: list[float] = [sum(turn[:-1]) / turn[-1] for turn in turns]
        return median(ratios)

    def __getitem__(self, name: str) -> float:
        return median(self.seconds[name]) if name in self.seconds else 0.0


def _phases(seconds: _Turns) -> dict[str, dict[str, float]]:
    server = {"perturbation": 0.0, "forward": 0.0, "backward": 0.0}
    return {
        "plain_client": _client_phases(seconds[PLAIN_FORWARD], seconds[PLAIN_CLIENT]),
        "plain_server": {**server, "update": seconds[PLAIN_SERVER]},
        "client": _client_phases(seconds[FORWARD], seconds[CLIENT]),
        "server": {
            **server,
            "perturbation": seconds[PERTURB],
            "update": seconds[UPDATE],
            "exchange": seconds[EXCHANGE],
        },
    }


def _client_phases(forward: float, whole: float) -> dict[str, float]:
    return {"perturbation": 0.0, "forward": forward, "backward": whole - forward, "update": 0.0}


class _Bench:
    """One model, one batch, one key, and everything that takes a turn on them."""

    def __init__(
        self, model: nn.Module, shape: tuple[int, ...], batch: int, loss: Loss, groups: int, kind: Mode
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(batch, *shape, generator=generator)
        self.labels = torch.randint(OUTPUTS, (batch,), generator=generator)
        self.model, self.loss = model, loss
        self.plan = trace(model, self.inputs[:1])
        self.settings = PerturbationSettings(mode=kind, loss=loss, groups=groups)
        self.key = new_key(self.plan, self.settings, os.urandom)
        self.other_layout = self.plan.channels_last and self.settings.has_offset
        self.perturbed = copy.deepcopy(model)
        load_parameters(self.plan, self.perturbed, self.key.perturb(self.plan.flatten(model.state_dict())))
        self.needs_exchange = loss == "ce" and self.settings.has_offset
        if self.needs_exchange:
            forward = run_forward(self.plan, self.perturbed, self.key.public, self.inputs)
            self.exchange = exchange_request(forward, os.urandom)
            self.reply = answer(self.key, self.exchange.request, os.urandom)
        self._set_up_servers()

    def _set_up_servers(self) -> None:
        """Both servers have the uploads of clients that share no memory."""
        self.true = to_vector(self.model)
        terms = np.concatenate(list(self.client().vectors.values()))
        self.weights = [len(self.inputs)] * CLIENTS
        self.uploads = [terms.copy() for _ in range(CLIENTS)]
        self.payloads = [np.resize(terms, len(self.true)) for _ in range(CLIENTS)]
        self.uploaded = terms.size
        traced = TracedTask(self.plan, self.settings)
        self.server = TaskServerPerturbation(traced, TRAINING)
        self.perturbation = TaskPerturbation(self.key, self.true, traced, 0, TRAINING.learning_rate_at(0))
        self.condition = self.perturbation.recover(self.mean(self.uploads)).condition

    def jobs(self) -> dict[str, Callable[[], object]]:
        jobs: dict[str, Callable[[], object]] = {
            PLAIN_FORWARD: lambda: self.model(self.inputs),
            PLAIN_CLIENT: lambda: self.plain_client(self.inputs),
            FORWARD: lambda: run_forward(self.plan, self.perturbed, self.key.public, self.inputs),
            CLIENT: self.client,
            PLAIN_SERVER: self.plain_server,
            PERTURB: lambda: hash_model(self.server.perturb(self.true, 0, os.urandom).model),
            UPDATE: self.update,
        }
        if self.other_layout:
            laid_out = self.inputs.contiguous(memory_format=torch.channels_last)
            jobs[SAME_LAYOUT] = lambda: self.plain_client(laid_out)
        if self.needs_exchange:
            jobs[EXCHANGE] = lambda: answer(self.key, self.exchange.request, os.urandom)
        return jobs

    def plain_client(self, inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.model(inputs)
        value = mean_loss(outputs, target_matrix(self.labels, outputs), self.loss)
        return torch.autograd.grad(value, list(self.model.parameters()))

    def client(self) -> Terms:
        if not self.needs_exchange:
            return client_terms(self.plan, self.perturbed, self.key.public, self.inputs, self.labels)
        forward = run_forward(self.plan, self.perturbed, self.key.public, self.inputs)
        exchange_request(forward, os.urandom)
        return cross_entropy_terms(forward, conclude(self.key.public, self.exchange, self.reply), self.labels)

    def plain_server(self) -> object:
        return self.step(self.mean(self.payloads))

    def update(self) -> object:
        return self.step(self.perturbation.recover(self.mean(self.uploads)).mean)

    def mean(self, vectors: list[FloatVector]) -> Reals:
        for vector in vectors:
            require_numbers(vector, "<f4", len(vectors[0]), "an upload")
        return weighted_mean(vectors, self.weights)

    def step(self, mean: Reals) -> object:
        return hash_model(apply_update(self.true, mean, TRAINING.payload, TRAINING.learning_rate_at(0)))
