"""Multi-party secure aggregation: train together without showing each other your data.

    import veilsum

    config = veilsum.FederationConfig(scheme="ampc", task="digits", rounds=3, seed=7)
    result = veilsum.simulate(config, drop="1@upload", compare="plain")
    print(result.metrics, result.figures()["model_sha256"])

Names are loaded when they are first used, so that `import veilsum` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veilsum.protocol.schemes import Scheme, register
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.simulations.run.simulate import SimulationResult, simulate
    from veilsum.transport.memory.faults import Faults

__version__ = "0.1.0"

__all__ = ["Faults", "FederationConfig", "Scheme", "SimulationResult", "register", "simulate"]

_HOMES = {
    "Faults": "veilsum.transport.memory.faults",
    "FederationConfig": "veilsum.roles.config.federation_config",
    "Scheme": "veilsum.protocol.schemes",
    "SimulationResult": "veilsum.simulations.run.simulate",
    "register": "veilsum.protocol.schemes",
    "simulate": "veilsum.simulations.run.simulate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'veilsum' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
