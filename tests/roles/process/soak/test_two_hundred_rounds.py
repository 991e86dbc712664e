"""Two hundred rounds as processes: whoever takes part needs no more memory at the end than after the first quarter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import Company, Role, broker_of, make_federation

pytestmark = [needs_mosquitto, pytest.mark.long]

ROUNDS = 200
WARM, LATE, LOOKS = 50, 190, 8
"""So many looks, one after each round: what is held is the least of them, the rest is work under way."""
SECONDS = 1500.0
SLACK_KIB = 2 * 1024
"""What an allocator may keep; a model of this test is 390 KiB, so that one kept every ten rounds would show."""


def resident_kib(role: Role) -> int:
    status = Path(f"/proc/{role.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


def held_kib(roles: dict[str, Role], number: int) -> dict[str, int]:
    """What each process holds after a round: the least that it has at the end of this one and the next few."""
    looks: list[dict[str, int]] = []
    for later in range(LOOKS):
        roles["server"].wait_for("round_committed", SECONDS, round=number + later)
        looks.append({name: resident_kib(role) for name, role in roles.items()})
    return {name: min(look[name] for look in looks) for name in roles}


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
            warm, late = held_kib(roles, WARM), held_kib(roles, LATE)
            for role in roles.values():
                assert role.end(SECONDS) == 0, role.said()
    finally:
        broker.stop()
    with capsys.disabled():
        told = ", ".join(f"{name} {warm[name]} to {late[name]}" for name in roles)
        sys.stdout.write(f"\n{scheme}, KiB held after {WARM} and {LATE} rounds: {told}\n")
    assert not {name: late[name] - warm[name] for name in roles if late[name] - warm[name] > SLACK_KIB}
