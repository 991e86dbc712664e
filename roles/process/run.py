"""One role as an operating-system process: from files to a driver, and from its end to an exit code.

    settings, roster, keys  ->  model, state on disk  ->  channels, transport, machine  ->  driver

A role draws its randomness from the operating system and refuses keys of simulations. torch is loaded by
participants that train, and by a server only to perturb the model or to step with one of torch's optimisers. The
state folder is locked for as long as the process lives, and a checkpoint with a new life is on disk before the first
message leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.events import RunFinished
from veilsum.roles.learning.contract import Learner
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.status import EVERY_S, MOST_LATE, Status, sign_status
from veilsum.roles.process.channels import Channels
from veilsum.roles.process.checkpoint import CheckpointError, StateFolder
from veilsum.roles.process.clock import monotonic
from veilsum.roles.process.context import (
    RoleContext,
    RoleOptions,
    defence_notes,
    equipment_notes,
    find_equipment,
    find_first_model,
    find_optimizer,
    make_party_learner,
    state_folder,
    take_place,
)
from veilsum.roles.process.driver import Driver
from veilsum.roles.process.entropy import require_real_entropy, system_entropy
from veilsum.roles.process.envelopes import EnvelopeCodec
from veilsum.roles.process.machines import Rules
from veilsum.roles.process.observer import RunObserver
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.roles.process.pump import Ended
from veilsum.roles.process.quorum import Quorum
from veilsum.roles.process.server_step import StepOptimizer
from veilsum.roles.views.recording import ViewRecording, begin_recording
from veilsum.transport.errors import TransportError
from veilsum.transport.framing.datagrams import LIFE_BYTES
from veilsum.transport.mqtt.transport import MqttTransport

EXIT_FINISHED = 0
EXIT_FAILED = 1
EXIT_STOPPED = 130
THREADS = 4
THREAD_NAMES = "veilsum-work"
JOIN_S = 0.5
LONGEST_LINGER_S = 20.0


class Stopped(Exception):
    """The process was told to stop."""


def run_role(role: Role, options: RoleOptions) -> int:
    """Take part until the run ends; returns the exit code."""
    place = take_place(role, options)
    journal = RoleLog(place.name, options.log_format)
    journal.take_over_logging()
    state = StateFolder(
        options.state or state_folder(place.loaded.folder, place.name),
        place.name,
        place.loaded.config.agreed_digest,
    )
    state.acquire()
    try:
        return _run(place, state, journal)
    finally:
        state.release()


def _run(place: RoleContext, state: StateFolder, journal: RoleLog) -> int:
    options = place.options
    learner = None if place.name == SERVER else make_party_learner(place, state.folder)
    saved = None
    if state.exists() and not options.fresh:
        if not options.resume:
            raise ParameterError(
                [f"{state.folder} holds an earlier run: --resume goes on from it, --fresh forgets it"]
            )
        try:
            saved = state.load()
        except CheckpointError as refusal:
            raise ParameterError([str(refusal)]) from refusal
        unused = (
            [f"--init {options.init} is not used: the run goes on from its checkpoint"]
            if options.init
            else []
        )
        for text in (*saved.passed_over, *unused):
            journal.say("warning", text=text)
    durable = saved.durable if saved is not None else PersistentState(0, None)
    first = durable.model if durable.model is not None else find_first_model(place, learner)
    rules = Rules.of(place.loaded.config, place.loaded.roster, len(first))
    if rules.holds_model(place.name):
        durable.model = first
    durable.life = state.next_life
    seen = saved.seen if saved is not None else {}
    state.save(durable, seen)
    post = EnvelopeCodec(place.identity, rules.roster, rules.parameters.config_hash, durable.life, seen)
    equipment = find_equipment(place, learner)
    warnings = (
        *rules.scheme.warnings(rules.parameters),
        *equipment_notes(equipment),
        *defence_notes(place, learner),
    )
    for text in warnings:
        journal.say("warning", text=text)
    optimizer = find_optimizer(place)
    recording = begin_recording(place, rules, learner, first if durable.rounds_done == 0 else None, journal)
    process = RoleProcess(
        place, rules, durable, state, post, learner, journal, equipment, optimizer, recording
    )
    return process.run()


@dataclass
class RoleProcess:
    """Everything one process runs on."""

    place: RoleContext
    rules: Rules
    durable: PersistentState
    state: StateFolder
    post: EnvelopeCodec
    learner: Learner | None
    journal: RoleLog
    equipment: object | None
    optimizer: StepOptimizer | None
    recording: ViewRecording | None = None

    def run(self) -> int:
        work = ThreadPoolExecutor(THREADS, thread_name_prefix=THREAD_NAMES)
        disk = ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAMES)
        code = EXIT_FAILED
        try:
            ended = asyncio.run(self._take_part(work, disk))
            code = EXIT_FINISHED if isinstance(ended, RunFinished) else EXIT_FAILED
        except Stopped:
            self.journal.say("stopped", rounds_done=self.durable.rounds_done)
            code = EXIT_STOPPED
        except (TransportError, LocalProtocolError) as error:
            self._tell_failure(error)
        except Exception as error:
            self._tell_failure(error)
            raise
        finally:
            for executor in (work, disk):
                executor.shutdown(wait=False, cancel_futures=True)
            if self.recording is not None:
                self.recording.close()
            leave_threads_behind(code)
        return code

    def _tell_failure(self, error: Exception) -> None:
        self.journal.say(
            "run_failed", reason=type(error).__name__, culprit=self.place.name, detail=str(error)
        )

    async def _take_part(self, work: Executor, disk: Executor) -> Ended:
        with _stopping_on_signals():
            transport = self._transport()
            self.journal.say(
                "started",
                round=self.durable.rounds_done,
                rounds=self.rules.config.rounds,
                life=self.durable.life,
            )
            async with transport:
                return await self._drive(transport, work, disk)

    def _transport(self) -> MqttTransport:
        place, random = self.place, require_real_entropy(system_entropy)
        life = random(LIFE_BYTES)
        federation = place.loaded.federation_id
        channels = Channels(place.identity, self.rules.roster, federation, life, random)
        return MqttTransport(
            place.loaded.broker_address(place.name, place.key_folder),
            federation,
            place.name,
            channels.seal_chunk,
            channels.open_chunk,
            life=life,
            on_gone=lambda address: self.journal.say("seems_gone", who=address),
            connect_within_s=self.rules.config.timing.patience_s,
        )

    async def _drive(self, transport: MqttTransport, work: Executor, disk: Executor) -> Ended:
        timing = self.rules.config.timing
        random = require_real_entropy(system_entropy)
        machine = self.rules.machine(
            self.place.identity, self.durable, random, self.equipment, self.optimizer
        )
        if self.recording is not None:
            self.recording.hear_secrets(self.place.name, self.equipment)
        driver = Driver(
            party=self.place.name,
            machine=machine,
            post=self.post,
            transport=transport,
            durable=self.durable,
            keeper=self.state,
            executor=work,
            disk=disk,
            journal=self.journal,
            learner=self.learner,
            observer=self.recording or RunObserver(),
            send_within_s=2 * timing.phase_s,
            linger_s=min(timing.phase_s, LONGEST_LINGER_S),
        )
        telling = asyncio.create_task(self._tell_status(transport, driver))
        try:
            if self.place.name == SERVER:
                gathering = Quorum(
                    self.rules.roster,
                    self.place.loaded.federation_id,
                    self.rules.parameters.min_parties,
                    self.journal,
                )
                await gathering.wait(transport, timing.patience_s)
            return await driver.run()
        finally:
            telling.cancel()
            await asyncio.wait([telling])

    async def _tell_status(self, transport: MqttTransport, driver: Driver) -> None:
        identity, number = self.place.identity, 0
        while True:
            number += 1
            tally = driver.tally
            status = Status(
                party=identity.name,
                role=identity.role.value,
                life=self.durable.life,
                number=number,
                round=self.durable.rounds_done,
                rounds=self.rules.config.rounds,
                attempt=max(0, self.durable.attempt - 1),
                phase="training" if tally.training else driver.machine.phase.value,
                sent_bytes=tally.sent_bytes,
                received_bytes=tally.received_bytes,
                refused=tally.refused,
                late=tuple(sorted(name for name, count in tally.unacknowledged.items() if count > 0))[
                    :MOST_LATE
                ],
            )
            try:
                await transport.publish_status(sign_status(identity, self.place.loaded.federation_id, status))
            except TransportError as error:
                self.journal.say("status_not_told", text=str(error))
            await asyncio.sleep(EVERY_S)


def leave_threads_behind(code: int) -> None:
    """Training that nobody waits for any more cannot be interrupted: if it goes on, end the process over it."""
    ours = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAMES)]
    give_up_at = monotonic() + JOIN_S
    for thread in ours:
        thread.join(max(0.0, give_up_at - monotonic()))
    if any(thread.is_alive() for thread in ours):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


@contextlib.contextmanager
def _stopping_on_signals() -> Iterator[None]:
    """SIGINT and SIGTERM end the main task in order: the transport is closed, the state is on disk."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        task.cancel()

    for which in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(which, stop)
    try:
        yield
    except asyncio.CancelledError:
        if told:
            raise Stopped from None
        raise
    finally:
        for which in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(which)
