"""The driver: events in order, durable before sent, heavy work aside, refusals told, an end that others hear of."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.refusals import require_mentions
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.errors import (
    AbortReason,
    LocalProtocolError,
    ProtocolError,
    Rejection,
    RemoteProtocolError,
)
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.decisions import AttemptEntered
from veilsum.protocol.machines.events import (
    DecisionMade,
    Event,
    RunFailed,
    RunFinished,
    Send,
    TrainingRequested,
    WorkRequested,
)
from veilsum.protocol.machines.phases import ParticipantPhase
from veilsum.protocol.machines.session import Invitation, Knock
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.wire.envelope import encode_envelope
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.learning.datasets.vectors import VectorLearner, VectorsTask
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.measuring import Measuring
from veilsum.roles.process.driver import Driver
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.envelopes import EnvelopeCodec
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.memory.switchboard import Switchboard
from veilsum.transport.reliable import FramedTransport

ALICE = PartyId("alice")
ENTROPY = SeededEntropy(3)
IDENTITIES = {
    name: Identity(name, role, SigningKey.generate(ENTROPY))
    for name, role in ((SERVER, Role.SERVER), (ALICE, Role.CLIENT))
}
ROSTER = Roster(1, tuple(one.public for one in IDENTITIES.values()))
DONE = RunFinished(1)


class Script:
    """A machine that does what a test says."""

    phase = ParticipantPhase.WAITING

    def __init__(
        self,
        first: list[Event],
        answer: Callable[[PartyId, Message], list[Event]] | None = None,
        deadline: float | None = None,
    ) -> None:
        self._first = first
        self._answer = answer
        self.deadline = deadline
        self.deadlines_handled = 0

    def start(self, now: float) -> list[Event]:
        if self.deadline is not None:
            self.deadline += now
        return self._first

    def receive(self, sender: PartyId, message: Message, now: float) -> list[Event]:
        assert self._answer is not None
        return self._answer(sender, message)

    def handle_deadline(self, now: float) -> list[Event]:
        self.deadlines_handled += 1
        self.deadline = None
        return [DONE]

    def next_deadline(self) -> float | None:
        return self.deadline


class Notebook:
    """A keeper that notes what it was given, in the thread in which it was given it."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.threads: set[int] = set()
        self.saved: Callable[[], None] = lambda: None

    def save(self, state: PersistentState) -> None:
        self.attempts.append(state.attempt)
        self.threads.add(threading.get_ident())
        self.saved()


class DrivenParty:
    """One driver on a switchboard, and what came of it."""

    def __init__(self, board: Switchboard, name: PartyId, machine: Script) -> None:
        self.said = io.StringIO()
        self.log = RoleLog(name, "json", self.said)
        self.notebook = Notebook()
        self.codec = EnvelopeCodec(IDENTITIES[name], ROSTER, bytes(32))
        self.transport = FramedTransport(board.link(name), Endpoint(name, ENTROPY(8)))
        self.machine = machine
        self.name = name

    async def run(self, **settings: Any) -> RunFinished | RunFailed:
        with ThreadPoolExecutor(2) as executor, ThreadPoolExecutor(1) as disk:
            async with self.transport:
                driver = Driver(
                    party=self.name,
                    machine=self.machine,
                    codec=self.codec,
                    transport=self.transport,
                    state=PersistentState(0, None),
                    checkpoints=self.notebook,
                    executor=executor,
                    disk=disk,
                    log=self.log,
                    **{"send_within_s": 5.0, "linger_s": 2.0, **settings},
                )
                self.driver = driver
                async with asyncio.timeout(20):
                    return await driver.run()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.getvalue().splitlines()]

    def facts(self, fact: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["fact"] == fact]


def knocks(count: int) -> list[Event]:
    return [Send(SERVER, Knock(Stamp(round=number))) for number in range(count)]


def run_pair(server: Script, alice: Script, **settings: Any) -> tuple[DrivenParty, DrivenParty]:
    board = Switchboard()
    parties = DrivenParty(board, SERVER, server), DrivenParty(board, ALICE, alice)

    async def run() -> None:
        await asyncio.gather(*(party.run(**settings) for party in parties))

    asyncio.run(run())
    return parties


def test_messages_to_one_receiver_arrive_in_the_order_in_which_they_were_sent() -> None:
    heard: list[int] = []

    def hear(sender: PartyId, message: Message) -> list[Event]:
        heard.append(message.stamp.round)
        return [DONE] if len(heard) == 20 else []

    run_pair(Script([], hear), Script([*knocks(20), DONE]))
    assert heard == list(range(20))


def test_what_others_sent_and_only_a_job_finds_wrong_is_told_and_ends_no_process() -> None:
    def refuse(result: object, now: float) -> list[Event]:
        raise Rejection(AbortReason.BAD_SHARE, "found out late")

    alice = DrivenParty(
        Switchboard(), ALICE, Script([WorkRequested(lambda: None, refuse, refuse)], deadline=0.2)
    )
    assert asyncio.run(alice.run(linger_s=0.1)) is DONE
    assert len(alice.facts("refused")) == alice.driver.tally.refused == 1


def test_a_message_that_a_machine_refuses_without_naming_its_sender_ends_no_process() -> None:
    def refuse(sender: PartyId, message: Message) -> list[Event]:
        raise Rejection(AbortReason.BAD_SHARE, "blamed on nobody")

    server, _ = run_pair(Script([], refuse, deadline=1.0), Script([*knocks(1), DONE]))
    assert [fact["sender"] for fact in server.facts("refused")] == [ALICE]


def test_a_decision_is_durable_before_the_next_message_is_signed() -> None:
    """The keeper is called in another thread, and what follows waits for it."""
    board = Switchboard()
    alice = DrivenParty(board, ALICE, Script([DecisionMade(AttemptEntered(0, 4)), *knocks(1), DONE]))
    signed_after: list[list[int]] = []
    seal = alice.codec.seal

    def watched(*arguments: Any) -> Any:
        signed_after.append(list(alice.notebook.attempts))
        return seal(*arguments)

    alice.codec.seal = watched  # type: ignore[method-assign]  # a spy
    asyncio.run(alice.run(linger_s=0.1))
    assert signed_after == [[5]]
    assert threading.get_ident() not in alice.notebook.threads


def test_work_and_training_run_in_other_threads_and_come_back_as_steps() -> None:
    """The result of a job is fed to the machine; a job that fails by the rules is fed to `failed`."""
    threads: set[int] = set()
    results: list[object] = []

    def job() -> str:
        threads.add(threading.get_ident())
        return "worked"

    def broken() -> None:
        raise LocalProtocolError("cannot work")

    def collect(result: object, now: float) -> list[Event]:
        results.append(result)
        return [DONE] if len(results) == 3 else []

    def failed(error: ProtocolError, now: float) -> list[Event]:
        return collect(str(error), now)

    learner = VectorLearner(VectorsTask(4), 0, 0)
    requests: list[Event] = [
        WorkRequested(job, collect, failed),
        WorkRequested(broken, collect, failed),
        TrainingRequested(0, learner.initial_model(), collect, failed),
    ]
    asyncio.run(DrivenParty(Switchboard(), ALICE, Script(requests)).run(learner=learner))
    assert {"worked", "cannot work"} <= {result for result in results if isinstance(result, str)}
    assert [result.samples for result in results if isinstance(result, LocalResult)] == [1]
    assert threading.get_ident() not in threads


def test_jobs_that_take_all_threads_do_not_hold_up_a_checkpoint() -> None:
    """Both threads are busy until the decision is on disk, which they would never see if it waited for them."""
    on_disk = threading.Event()
    seen: list[bool] = []
    nothing: Callable[..., list[Event]] = lambda *_: []  # noqa: E731 - a script's answer
    busy = WorkRequested(lambda: seen.append(on_disk.wait(10.0)), nothing, nothing)
    party = DrivenParty(Switchboard(), ALICE, Script([busy, busy, DecisionMade(AttemptEntered(0, 0)), DONE]))
    party.notebook.saved = on_disk.set
    asyncio.run(party.run())
    assert seen == [True, True]


def test_a_job_that_breaks_for_no_known_reason_ends_the_run() -> None:
    """An error outside the rules is raised where the driver was started, not lost with its task."""

    def broken() -> None:
        raise ZeroDivisionError

    nothing: Callable[..., list[Event]] = lambda *_: []  # noqa: E731 - a script's answer
    party = DrivenParty(Switchboard(), ALICE, Script([WorkRequested(broken, nothing, nothing)]))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(party.run())


def test_a_refused_message_is_told_with_its_reason_and_the_run_goes_on() -> None:
    heard: list[int] = []

    def hear(sender: PartyId, message: Message) -> list[Event]:
        heard.append(message.stamp.round)
        if message.stamp.round == 0:
            raise RemoteProtocolError(sender, AbortReason.WRONG_ROUND, "not now")
        return [DONE]

    server, _ = run_pair(Script([], hear), Script([*knocks(2), DONE]))
    assert heard == [0, 1]
    (fact,) = server.facts("refused")
    require_mentions(fact["text"], "alice", "now")
    assert AbortReason.WRONG_ROUND.value in fact["text"]
    assert server.driver.tally.refused == 1


def test_bytes_that_no_party_signed_are_refused_before_the_machine() -> None:
    """Nor does a message that another party carries, or one under another configuration."""
    board = Switchboard()
    server = DrivenParty(board, SERVER, Script([], lambda sender, message: [DONE]))
    alice = DrivenParty(board, ALICE, Script([*knocks(1), DONE]))
    stranger = EnvelopeCodec(IDENTITIES[ALICE], ROSTER, bytes([9]) * 32)

    async def run() -> None:
        running = asyncio.create_task(server.run())
        (envelope,) = stranger.seal([SERVER], Knock(Stamp()), "waiting")
        for name in ("forger", ALICE):
            async with FramedTransport(board.link(name), Endpoint(name, ENTROPY(8))) as sending:
                await sending.send("server", [b"hello"], 5.0)
                await sending.send("server", encode_envelope(envelope), 5.0)
        await alice.run()
        await running

    asyncio.run(run())
    texts = " ".join(fact["text"] for fact in server.facts("refused"))
    assert len(server.facts("refused")) == 4
    assert AbortReason.WRONG_CONFIG.value in texts
    require_mentions(texts, "forger", "carries", ALICE)


def test_the_machine_is_woken_at_its_deadline() -> None:
    machine = Script([], deadline=0.2)
    asyncio.run(DrivenParty(Switchboard(), ALICE, machine).run())
    assert machine.deadlines_handled == 1


def test_a_message_that_nobody_acknowledges_is_told_and_does_not_hold_up_the_end() -> None:
    """What is lost after the end is not told, nor does anybody wait for a server that has said that the run is over."""
    told = DrivenParty(Switchboard(), ALICE, Script(knocks(1), deadline=1.5))
    assert asyncio.run(told.run(send_within_s=0.3)) is DONE
    assert told.facts("not_delivered")[0]["receiver"] == "server"
    after = DrivenParty(Switchboard(), ALICE, Script([*knocks(1), DONE]))
    assert asyncio.run(after.run(send_within_s=3600.0, linger_s=3600.0)) is DONE
    for party in (told, after):
        assert party.lines[-1]["fact"] == "run_finished"


def test_a_receiver_that_acknowledges_nothing_does_not_decide_how_long_the_log_gets() -> None:
    """Fifty messages are not delivered: the lines about it are few, and say how many."""
    party = DrivenParty(Switchboard(), ALICE, Script(knocks(50), deadline=2.0))
    asyncio.run(party.run(send_within_s=0.3))
    lines = party.facts("not_delivered")
    assert len(lines) == 2
    assert sum(line.get("count", 1) for line in lines) == 50


def test_after_its_end_a_party_still_answers_until_all_is_acknowledged() -> None:
    """The server has finished, but alice comes late: her knock is answered while the farewell is under way."""
    answered: list[str] = []
    farewell = Invitation(Stamp(), bytes(32))

    def answer(sender: PartyId, message: Message) -> list[Event]:
        answered.append(sender)
        return []

    board = Switchboard()
    server = DrivenParty(board, SERVER, Script([Send(ALICE, farewell), DONE], answer))
    alice = DrivenParty(board, ALICE, Script(knocks(1), lambda sender, message: [DONE]))

    async def run() -> None:
        running = asyncio.create_task(server.run(linger_s=10.0))
        await asyncio.sleep(0.5)
        await alice.run()
        await running

    asyncio.run(run())
    assert answered == ["alice"]


class SlowlyMeasured(VectorLearner):
    """Measuring goes on until a test lets it end."""

    def __init__(self) -> None:
        super().__init__(VectorsTask(40), ALICE, 1)
        self.begun, self.may_end = threading.Event(), threading.Event()

    def evaluate(self, model: Model) -> dict[str, float]:
        self.begun.set()
        assert self.may_end.wait(20.0)
        return {"accuracy": 0.5}


@pytest.mark.parametrize("stopped", [False, True])
def test_that_a_run_is_finished_is_the_last_line_also_of_a_party_that_measures_its_model_at_the_end(
    stopped: bool,
) -> None:
    """What is measured stands before it; whoever is stopped meanwhile has finished, and says so at once."""
    learner = SlowlyMeasured()
    done = RunFinished(1, learner.initial_model())
    alice = DrivenParty(Switchboard(), ALICE, Script([done]))

    async def run() -> None:
        running = asyncio.ensure_future(
            alice.run(linger_s=0.1, learner=learner, measuring=Measuring(learner, alice.log))
        )
        await asyncio.to_thread(learner.begun.wait, 20.0)
        assert not alice.facts("run_finished")
        if stopped:
            running.cancel()
            # By a thread: the loop itself waits for those of the party's pool when it leaves.
            threading.Timer(0.1, learner.may_end.set).start()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            learner.may_end.set()
            assert await running is done

    asyncio.run(run())
    told = [line["fact"] for line in alice.lines]
    assert told == [*([] if stopped else ["measured"]), "traffic", "run_finished"]
