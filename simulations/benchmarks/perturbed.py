"""What perturbation costs a client and the server, against the plain step on the same machine in the same run.

The plain client runs one forward and one backward pass; the plain server averages the clients' gradients and
takes one step. The protected client computes every term, ready for upload; the protected server also draws a key
and perturbs the model before, and recovers the gradient after. The phases are those the publications report:
perturbation, forward pass, backward passes, model update. The exchange of cross entropy is counted with the
backward passes at the client, and by itself at the server.

The protected client may lay images out with channels last in memory, which plain autograd by itself does not; a
second ratio, against a plain client that does the same, shows how much of the first is owed to that.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from veilsum.protocol.perturbation.client import (
    client_terms,
    cross_entropy_terms,
    exchange_request,
    run_forward,
)
from veilsum.protocol.perturbation.exchange import answer, conclude
from veilsum.protocol.perturbation.key import new_key
from veilsum.protocol.perturbation.layout import Terms, weighted_mean
from veilsum.protocol.perturbation.losses import mean_loss, target_matrix
from veilsum.protocol.perturbation.packing import TermBuffers, load_parameters
from veilsum.protocol.perturbation.recovery import recover
from veilsum.protocol.perturbation.settings import Loss, Mode, NoiseSettings
from veilsum.protocol.perturbation.trace import trace
from veilsum.roles.learning.models import build_model
from veilsum.simulations.benchmarks.measuring import best_cpu_seconds

OUTPUTS, CLIENTS, LEARNING_RATE = 10, 10, 0.1


def run(
    model_name: str,
    batch: int = 32,
    loss: Loss = "mse",
    groups: int = 1,
    noise: Mode = "scale+offset",
    *,
    input_shape: tuple[int, ...] | None = None,
    turns: int = 30,
) -> dict[str, Any]:
    """Ratios of protected over plain, phases in CPU seconds, and upload sizes, for one model and kind of noise."""
    if input_shape is None:
        input_shape = (1, 28, 28) if model_name.startswith("mlp") else (3, 32, 32)
    bench = _Bench(
        build_model(model_name, input_shape, OUTPUTS, seed=1), input_shape, batch, loss, groups, noise
    )
    with _one_thread():
        best = best_cpu_seconds(bench.jobs(), turns)
    return {
        "model": model_name,
        "batch": batch,
        "loss": loss,
        "groups": groups,
        "noise": noise,
        "parameters": bench.plan.size,
        "client_over_plain": best["client"] / best["plain client"],
        "client_over_plain_same_layout": best["client"] / best["plain client, same layout"],
        "server_over_plain": (best["perturb"] + best["recover"]) / best["plain server"],
        "upload_over_plain": bench.uploaded / bench.plan.size,
        "phases_s": _phases(best),
        "condition": bench.condition,
    }


def _phases(best: dict[str, float]) -> dict[str, dict[str, float]]:
    return {
        "plain_client": _client_phases(best["plain forward"], best["plain client"]),
        "plain_server": {
            "perturbation": 0.0,
            "forward": 0.0,
            "backward": 0.0,
            "update": best["plain server"],
        },
        "client": _client_phases(best["forward"], best["client"]),
        "server": {
            "perturbation": best["perturb"],
            "forward": 0.0,
            "backward": 0.0,
            "update": best["recover"],
            "exchange": best.get("exchange", 0.0),
        },
    }


def _client_phases(forward: float, whole: float) -> dict[str, float]:
    return {"perturbation": 0.0, "forward": forward, "backward": whole - forward, "update": 0.0}


class _Bench:
    """One model, one batch, one key, and everything that takes a turn on them."""

    def __init__(
        self, model: nn.Module, shape: tuple[int, ...], batch: int, loss: Loss, groups: int, noise: Mode
    ) -> None:
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(batch, *shape, generator=generator)
        self.labels = torch.randint(OUTPUTS, (batch,), generator=generator)
        self.model, self.loss = model, loss
        self.plan = trace(model, self.inputs[:1])
        self.settings = NoiseSettings(mode=noise, loss=loss, groups=groups)
        self.key = new_key(self.plan, self.settings, os.urandom)
        faster = self.plan.channels_last and self.settings.has_offset
        layout = torch.channels_last if faster else torch.contiguous_format
        self.laid_out = self.inputs.contiguous(memory_format=layout)
        self.true = self.plan.flatten(model.state_dict())
        self.perturbed = copy.deepcopy(model)
        load_parameters(self.plan, self.perturbed, self.key.encrypt(self.true))
        self.buffers = TermBuffers(self.plan, self.key.public, self.inputs)
        self.needs_exchange = loss == "ce" and self.settings.has_offset
        if self.needs_exchange:
            forward = run_forward(self.plan, self.perturbed, self.key.public, self.inputs)
            self.exchange = exchange_request(forward, os.urandom)
            self.reply = answer(self.key, self.exchange.request, os.urandom)
        terms = self.client()
        self.uploads = [_copied(terms) for _ in range(CLIENTS)]
        self.gradients = [
            replace(upload, vectors={"gradient": upload.vectors["gradient"][:-1]}) for upload in self.uploads
        ]
        self.uploaded = sum(vector.size for vector in terms.vectors.values())
        self.condition = recover(self.key, weighted_mean(self.uploads, [1.0] * CLIENTS)).condition

    def jobs(self) -> dict[str, Callable[[], object]]:
        jobs: dict[str, Callable[[], object]] = {
            "plain forward": lambda: self.model(self.inputs),
            "plain client": lambda: self.plain_client(self.inputs),
            "plain client, same layout": lambda: self.plain_client(self.laid_out),
            "forward": lambda: run_forward(
                self.plan, self.perturbed, self.key.public, self.inputs, buffers=self.buffers
            ),
            "client": self.client,
            "plain server": self.plain_server,
            "perturb": self.perturb,
            "recover": self.recover,
        }
        if self.needs_exchange:
            jobs["exchange"] = lambda: answer(self.key, self.exchange.request, os.urandom)
        return jobs

    def plain_client(self, inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = self.model(inputs)
        value = mean_loss(outputs, target_matrix(self.labels, outputs), self.loss)
        return torch.autograd.grad(value, list(self.model.parameters()))

    def client(self) -> Terms:
        if not self.needs_exchange:
            return client_terms(
                self.plan, self.perturbed, self.key.public, self.inputs, self.labels, buffers=self.buffers
            )
        forward = run_forward(self.plan, self.perturbed, self.key.public, self.inputs, buffers=self.buffers)
        exchange_request(forward, os.urandom)
        return cross_entropy_terms(forward, conclude(self.key.public, self.exchange, self.reply), self.labels)

    def plain_server(self) -> object:
        mean = weighted_mean(self.gradients, [1.0] * CLIENTS)["gradient"]
        return (self.true - LEARNING_RATE * mean).astype(np.float32)

    def perturb(self) -> object:
        return new_key(self.plan, self.settings, os.urandom).encrypt(self.true).astype(np.float32)

    def recover(self) -> object:
        mean = weighted_mean(self.uploads, [1.0] * CLIENTS)
        return self.true - LEARNING_RATE * recover(self.key, mean).gradient


def _copied(terms: Terms) -> Terms:
    """Apart from the buffers of the client, so that clients do not share memory."""
    vectors = {name: vector.copy() for name, vector in terms.vectors.items()}
    return Terms(terms.key_id, terms.partition_digest, vectors)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
