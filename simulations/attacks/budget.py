"""How much an attack may cost."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """How much an attack on one target may cost, and what it takes to stand behind one party's update."""

    evaluations: int = 600
    restarts: int = 2
    cpu_s: float = 30.0
    images: int = 1
