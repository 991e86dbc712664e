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
    epochs: int = 60
    """Passes over what it knows, of an attack that trains a network."""
    shadows: int = 2
    """Models of its own, of an attack that trains some to compare with."""
