"""The benchmark measures what it says, on a small payload."""

from __future__ import annotations

import pytest

from tests.support.brokers.broker import BrokerProcess
from veilsum.simulations.benchmarks.mqtt import run


def test_one_contest_reports_rates_and_their_ratio(broker: BrokerProcess) -> None:
    figures = run(2, ("127.0.0.1", broker.port), contests=1)
    assert figures["size_mib"] == 2
    assert figures["goodput_over_raw"] == pytest.approx(figures["goodput_mib_s"] / figures["raw_mib_s"])
    assert figures["goodput_mib_s"] > 0
