"""What a log says last is what came first: a lost connection before missing parties, an end before what follows it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tests.support.refusals import require_mentions
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RoundCommitted, RunFailed, RunFinished
from veilsum.protocol.machines.rules import SILENCES, RoleParts
from veilsum.roles.monitor.left_out import LeftOut
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.outages import Outages
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.transport.base import Interrupted, Reconnected

COMMITTED = RoundCommitted(0, 0, (), b"")


class Scene:
    """A log, and outages on a clock that the test moves."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.now = 100.0
        self.log = RoleLog("server", "json", self.stream)
        self.outages = Outages("server", self.log, clock=lambda: self.now, wall_clock=lambda: 3600.0)

    def facts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def lose(self, seconds: float) -> None:
        self.outages.hear(Interrupted("localhost:1883: the connection broke"))
        self.now += seconds
        self.outages.hear(Reconnected())


def parts_of(outages: Outages) -> RoleParts:
    random = SeededEntropy(1)
    me = Identity(SERVER, Role.SERVER, SigningKey.generate(random))
    return RoleParts(me, random, lambda model, mean, number: model, hindrance=outages.in_words)


def test_a_lost_connection_is_told_when_it_goes_and_when_it_is_back() -> None:
    scene = Scene()
    scene.lose(12.0)
    lost, restored = scene.facts()
    assert (lost["fact"], lost["text"]) == ("link_lost", "localhost:1883: the connection broke")
    assert (restored["fact"], restored["after_s"]) == ("link_restored", 12.0)


@pytest.mark.parametrize("reason", sorted(SILENCES, key=lambda one: one.name))
def test_who_could_hear_nobody_says_so_before_it_says_whom_it_missed(reason: AbortReason) -> None:
    scene = Scene()
    scene.lose(12.0)
    told = parts_of(scene.outages).explained(RunFailed(reason, detail="missing: p1"))
    assert (told.reason, told.culprit) == (AbortReason.LINK_LOST, SERVER)
    first, _, then = told.detail.partition("then")
    require_mentions(first, SERVER, "connection", 12, "01:00:00", "localhost:1883")
    require_mentions(then, "missing", "p1")


def test_an_outage_that_goes_on_has_lasted_until_now_and_its_newest_trouble_is_told() -> None:
    scene = Scene()
    scene.outages.hear(Interrupted("localhost:1883: the connection broke"))
    scene.now += 7.0
    scene.outages.hear(Interrupted("localhost:1883: Connection refused"))
    scene.now += 1.0
    assert "for 8 s" in scene.outages.in_words() and "Connection refused" in scene.outages.in_words()


@pytest.mark.parametrize("reason", sorted(set(AbortReason) - SILENCES, key=lambda one: one.name))
def test_what_is_no_silence_has_another_cause(reason: AbortReason) -> None:
    scene = Scene()
    scene.lose(12.0)
    failed = RunFailed(reason, "p1", "as it was")
    assert parts_of(scene.outages).explained(failed) == failed


def test_an_outage_before_the_last_committed_round_did_no_harm() -> None:
    scene = Scene()
    scene.lose(12.0)
    scene.outages.noted(0.0, SERVER, COMMITTED)
    failed = RunFailed(AbortReason.COHORT_TOO_SMALL, detail="missing: p1")
    assert parts_of(scene.outages).explained(failed) == failed


def test_many_outages_write_few_lines() -> None:
    scene = Scene()
    for _ in range(1000):
        scene.lose(0.1)
    assert len(scene.facts()) < 50


@pytest.mark.parametrize("end", [RunFinished(3), RunFailed(AbortReason.TIMED_OUT, "p1", "silent")])
def test_after_the_end_of_a_run_nothing_is_told_that_does_not_change_it(end: RunFinished | RunFailed) -> None:
    scene = Scene()
    scene.log.tell(end)
    scene.log.say("seems_gone", who="p1")
    scene.log.say("refused", sender="p1", text="late")
    scene.lose(1.0)
    (fact,) = scene.facts()
    assert fact["fact"] in ("run_finished", "run_failed")
    scene.log.say("unexpected", text="what nobody counts on", error="OSError", detail="")
    assert scene.facts()[-1]["fact"] == "unexpected"


def test_a_party_that_is_left_out_says_so_less_and_less_often() -> None:
    """For an hour, asked every second; one that was let in begins anew."""
    scene = Scene()
    waiting = LeftOut(RoleLog(PartyId("p1"), "json", scene.stream), 10.0, clock=lambda: scene.now)
    for _ in range(3600):
        waiting.hear("knocking")
        scene.now += 1.0
    assert 5 < len(scene.facts()) < 12
    assert "in no session for 10 s" in scene.facts()[0]["text"]
    told = len(scene.facts())
    waiting.hear("running")
    waiting.hear("knocking")
    assert len(scene.facts()) == told
