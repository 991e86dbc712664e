"""A broker with TLS, logins and access rules, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.broker import BrokerProcess, guarded_mosquitto
from tests.support.tables.sealed_party import FEDERATION


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Path]]:
    folder = tmp_path_factory.mktemp("guarded")
    passwords = {"alice": "secret a", "bob": "secret b", "eve": "secret e"}
    process = guarded_mosquitto(folder, FEDERATION, passwords)
    process.start()
    yield process, folder
    process.stop()
