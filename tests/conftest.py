"""What holds for every test: how hypothesis runs, and what happens where mosquitto is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shared, loaded machine is no reason to fail: examples have no deadline, the whole test has pytest's.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def mosquitto_path() -> str | None:
    """Debian installs the broker where an ordinary user's PATH does not look."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which("mosquitto", path=path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip mosquitto tests, with that reason, where there is none; where CI=true that is an error instead."""
    needing = [item for item in items if item.get_closest_marker("mosquitto")]
    if not needing or mosquitto_path():
        return
    if os.environ.get("CI") == "true":
        raise pytest.UsageError("mosquitto is missing, and with CI=true no test may be skipped: install it")
    for item in needing:
        item.add_marker(pytest.mark.skip(reason="needs mosquitto (apt install mosquitto)"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).parents[1]
