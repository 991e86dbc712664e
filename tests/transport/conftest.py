"""A broker that all tests of this folder share; tests that harm their broker start their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers.broker import BrokerProcess, any_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = any_broker(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()
