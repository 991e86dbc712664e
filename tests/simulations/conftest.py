"""Small federations to attack, played once for all tests of a file."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from veilsum.roles.config.federation_config import FederationConfig
from veilsum.simulations.audit.stage import Played, play


@functools.cache
def played_federation(scheme: str, model: str = "mlp2:64", **settings: object) -> Played:
    options: dict[str, object] = {
        "scheme": scheme,
        "parties": 4,
        "rounds": 1,
        "seed": 7,
        "task": "digits",
        "model": model,
        "payload": "gradient",
        "local_epochs": 1,
        "device": "cpu",
        **settings,
    }
    return play(FederationConfig.from_options(options), 1)


@pytest.fixture(scope="session")
def played() -> Callable[..., Played]:
    """One image each at four parties, one round: `played("masked")`."""
    return played_federation
