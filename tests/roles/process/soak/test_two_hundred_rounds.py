"""Two hundred rounds as processes: whoever takes part needs no more memory at the end than after the first quarter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company, Role, broker_of, make_federation

pytestmark = [needs_mosquitto, pytest.mark.long]

ROUNDS = 200
WARM, LATE = 50, 195
SECONDS = 1500.0
SLACK_KIB = 6 * 1024
"""What an allocator may keep; a model of this test is 390 KiB, so that one kept every ten rounds would show."""


def resident_kib(role: Role) -> int:
    status = Path(f"/proc/{role.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("scheme", ["masked", "ampc"])
def test_memory_is_flat_over_two_hundred_rounds(
    tmp_path: Path, scheme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fed = make_federation(
        tmp_path / "fed", scheme, 3, task="vectors:100000", rounds=ROUNDS, phase_s=20.0, patience_s=40.0
    )
    broker = broker_of(fed, tmp_path / "broker")
    broker.start()
    try:
        with Company(fed) as company:
            roles = company.start_all()
            used: dict[str, list[int]] = {name: [] for name in roles}
            for number in (WARM, LATE):
                roles["server"].wait_for("round_committed", SECONDS, round=number)
                for name, role in roles.items():
                    used[name].append(resident_kib(role))
            for role in roles.values():
                assert role.end(SECONDS) == 0, role.said()
    finally:
        broker.stop()
    with capsys.disabled():
        told = ", ".join(f"{name} {warm} to {late}" for name, (warm, late) in used.items())
        sys.stdout.write(f"\n{scheme}, resident KiB after {WARM} and {LATE} rounds: {told}\n")
    assert not {name: both for name, both in used.items() if both[1] - both[0] > SLACK_KIB}
