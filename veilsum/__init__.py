"""Multi-party secure aggregation: train together without showing each other your data.

    import veilsum

    config = veilsum.FederationConfig(scheme="ampc", task="digits", rounds=3, seed=7)
    result = veilsum.simulate(config, drop="1@upload", compare="plain")
    print(result.metrics, result.figures()["model_sha256"])

    veilsum.audit("plain", "idlg")   # what the server could read back, in words and figures

A task of your own has `Samples` and what `Task` asks for; a scheme of your own is a `Scheme` that you `register`.
`Table`, `schedules`, `play`, `check_invariants` and `rounds_under_faults` test it (specs/testing.md; the rest of the
kit is in veilsum.simulations.testing).

Names are loaded when they are first used, so that `import veilsum` costs nothing. Not even `typing` is imported: with
`python -m veilsum` the current folder is still on the path here.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from veilsum.protocol.errors import ParameterError
    from veilsum.protocol.schemes import Scheme, register
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.learning.datasets.supervised import SupervisedTask
    from veilsum.roles.learning.defences.defence import Defence
    from veilsum.roles.learning.task import Samples, Task, TaskOptions
    from veilsum.simulations.attacks.attack import Attack
    from veilsum.simulations.audit.ask import AuditResult, audit
    from veilsum.simulations.run.simulate import SimulationResult, simulate
    from veilsum.simulations.testing import (
        InvariantViolated,
        Table,
        check_invariants,
        play,
        rounds_under_faults,
        schedules,
    )
    from veilsum.transport.memory.faults import Faults

__version__ = "0.1.0"

__all__ = [
    "Attack",
    "AuditResult",
    "Defence",
    "Faults",
    "FederationConfig",
    "InvariantViolated",
    "ParameterError",
    "Samples",
    "Scheme",
    "SimulationResult",
    "SupervisedTask",
    "Table",
    "Task",
    "TaskOptions",
    "audit",
    "check_invariants",
    "play",
    "register",
    "rounds_under_faults",
    "schedules",
    "simulate",
]

_TESTING = "veilsum.simulations.testing"
_HOMES = {
    "Attack": "veilsum.simulations.attacks.attack",
    "AuditResult": "veilsum.simulations.audit.ask",
    "Defence": "veilsum.roles.learning.defences.defence",
    "Faults": "veilsum.transport.memory.faults",
    "FederationConfig": "veilsum.roles.config.federation_config",
    "InvariantViolated": _TESTING,
    "ParameterError": "veilsum.protocol.errors",
    "Samples": "veilsum.roles.learning.task",
    "Scheme": "veilsum.protocol.schemes",
    "SimulationResult": "veilsum.simulations.run.simulate",
    "SupervisedTask": "veilsum.roles.learning.datasets.supervised",
    "Table": _TESTING,
    "Task": "veilsum.roles.learning.task",
    "TaskOptions": "veilsum.roles.learning.task",
    "audit": "veilsum.simulations.audit.ask",
    "check_invariants": _TESTING,
    "play": _TESTING,
    "register": "veilsum.protocol.schemes",
    "rounds_under_faults": _TESTING,
    "schedules": _TESTING,
    "simulate": "veilsum.simulations.run.simulate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'veilsum' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
