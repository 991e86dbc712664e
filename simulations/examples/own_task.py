"""A task of one's own: two moons of points, dealt unevenly, learned together without showing a point.

The same function is named on a command line as `--task ./own_task.py:moons`.
"""

from __future__ import annotations

import numpy as np
from torch import nn

import veilsum

HERE = "veilsum.simulations.examples.own_task"


def moons(options: veilsum.TaskOptions) -> veilsum.SupervisedTask:
    """Points on two half circles that reach into each other: which one is it?"""
    rng = np.random.default_rng(options.seed)
    labels = rng.integers(0, 2, 800)
    angles = rng.uniform(0, np.pi, 800)
    side = 1 - 2 * labels
    points = np.stack([np.cos(angles) * side + labels, np.sin(angles) * side + labels / 2], axis=1)
    points = (points + 0.1 * rng.standard_normal(points.shape)).astype(np.float32)

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))

    train = veilsum.Samples(points[:600], labels[:600])
    test = veilsum.Samples(points[600:], labels[600:])
    return veilsum.SupervisedTask(train, test, network)


def main() -> None:
    config = veilsum.FederationConfig(
        scheme="masked",
        parties=("alice", "bob", "carol", "dave"),
        task=f"{HERE}:moons",
        split="dirichlet:0.5",
        rounds=8,
        seed=7,
    )
    together = veilsum.simulate(config, compare="standalone")
    figures = together.figures()
    print(f"together {together.metrics['accuracy']:.3f}, each alone {figures['baseline_metric']:.3f}")


if __name__ == "__main__":
    main()
