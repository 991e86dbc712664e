"""Kills at random: processes of a federation and its broker end as by power cuts, and are started again with --resume.

What is killed, when, and for how long it is away follows from a seed. How far the others have come by then does not,
so a seed tells what was tried and not what happened: the checks are about what everyone told and holds in the end.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.brokers.broker import BrokerProcess
from tests.support.federations import Company, Role

BROKER = "broker"
LONGEST_GAP_S = 1.5
LONGEST_ABSENCE_S = 2.5
LONGEST_WAIT_S = 30.0
ALL_AT_ONCE = 0.15
"""How often the power goes for everyone, the broker included."""
ENDS_WITHIN_S = 900.0
MOST_RESUMPTIONS = 3


@dataclass
class Storm:
    """One run under kills; every process that was started stays known, with all that it told."""

    company: Company
    broker: BrokerProcess
    seed: str
    killed: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    resumptions: int = 0
    committed_under_kills: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.running: dict[str, Role] = {}

    def blow(self, kills: int) -> None:
        """Start everyone, kill so many times, and wait until all have ended; then resume until all are done."""
        self.running = self.company.start_all()
        for number in range(kills):
            if number % 2:
                self._wait_for_a_commit()
            time.sleep(self._random.uniform(0.0, LONGEST_GAP_S))
            self._strike()
        self.committed_under_kills = len(committed_hashes(self.company))
        self._wait_for_the_end()
        while self.unfinished() and self.resumptions < MOST_RESUMPTIONS:
            self.resumptions += 1
            self.running = self.company.start_all("--resume")
            self._wait_for_the_end()

    def unfinished(self) -> dict[str, Role]:
        return {name: role for name, role in self.running.items() if role.process.returncode != 0}

    def _wait_for_a_commit(self) -> None:
        """Every other kill hits a federation that is at work again, unless it comes to its end before."""
        before, give_up_at = len(committed_hashes(self.company)), time.monotonic() + LONGEST_WAIT_S
        while len(committed_hashes(self.company)) == before and time.monotonic() < give_up_at:
            if all(role.process.poll() is not None for role in self.running.values()):
                return
            time.sleep(0.02)

    def _strike(self) -> None:
        names = [BROKER, *self.running]
        victims = names if self._random.random() < ALL_AT_ONCE else [self._random.choice(names)]
        for name in victims:
            self._kill(name)
        time.sleep(self._random.uniform(0.0, LONGEST_ABSENCE_S))
        for name in victims:
            self._start_again(name)

    def _kill(self, name: str) -> None:
        if name == BROKER:
            self.broker.kill()
        elif self.running[name].process.poll() is None:
            self.running[name].kill()
        else:
            return
        self.killed["party" if name in self.company.loaded.roster.participants else name] += 1

    def _start_again(self, name: str) -> None:
        if name == BROKER:
            self.broker.start()
        elif self.running[name].process.returncode != 0:
            self.running[name] = self.company.start(name, "--resume")

    def _wait_for_the_end(self) -> None:
        for name, role in self.running.items():
            role.end(ENDS_WITHIN_S)
            if role.process.returncode != 0:
                told = role.told("run_failed")
                self.reasons.append(f"{name}: {told[-1]['reason'] if told else 'untyped'}")


def require_typed_ends(company: Company) -> None:
    """Whoever was not killed ended with all rounds, or said in a typed line why not; every line is one of facts."""
    for role in company.roles:
        code = role.process.returncode
        assert code in (0, 1, -9), f"{role.name} ended with {code}: {role.said()}"
        assert code != 1 or role.facts[-1]["fact"] == "run_failed", role.said()
        assert code != 0 or role.facts[-1]["fact"] == "run_finished", role.said()
        assert not role.other_lines, f"{role.name} wrote lines that are no facts: {role.other_lines}"


def committed_hashes(company: Company) -> Mapping[int, set[str]]:
    """Under which hashes rounds were ever told as committed, by anyone that holds the model, at any time."""
    found: dict[int, set[str]] = {}
    for role in company.roles:
        for fact in list(role.told("round_committed")):
            if fact["model_sha256"] is not None:
                found.setdefault(fact["round"], set()).add(fact["model_sha256"])
    return found


def require_nothing_lost(company: Company) -> None:
    """No start of a process knows less than an earlier one told as committed, and no round has two models."""
    known: dict[str, int] = {}
    for role in company.roles:
        for begun in role.told("started"):
            assert begun["rounds_done"] >= known.get(role.name, 0), (
                f"{role.name} forgot a round: {role.said()}"
            )
        told = [fact["round"] for fact in role.told("round_committed")]
        known[role.name] = max(known.get(role.name, 0), *told, 0)
    doubled = {number: hashes for number, hashes in committed_hashes(company).items() if len(hashes) > 1}
    assert not doubled, f"rounds with several models: {doubled}"
