"""One role as an operating-system process: from files to a driver, and from its end to an exit code.

    settings, roster, keys  ->  model, state on disk  ->  channels, transport, machine  ->  driver

A role draws its randomness from the operating system and refuses keys of simulations. torch is loaded by
participants that train, and by a server only to perturb the model or to step with one of torch's optimisers. The
state folder is locked for as long as the process lives, and a checkpoint is on disk before the first message leaves.

Implements specs/guide.md, section 7.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field

from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.rules import MachineRules, RoleParts
from veilsum.protocol.machines.scheme import Scheme, starting_warnings
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.wire.limits import DEFAULT_LIMITS
from veilsum.roles.broker.connect import transport_over_broker
from veilsum.roles.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from veilsum.roles.cli.signals import nothing_left_to_stop, stopping_in_order
from veilsum.roles.federation.signed_roster import ROSTER_FILE
from veilsum.roles.learning.contract import Learner
from veilsum.roles.learning.equipment import equipment_notes
from veilsum.roles.learning.server_step import StepOptimizer
from veilsum.roles.monitor.left_out import LeftOut
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.outages import Outages
from veilsum.roles.monitor.status import MOST_LATE, Status, pause_after, sign_status
from veilsum.roles.monitor.takeover import taken_over
from veilsum.roles.process.channels import IdentityLines
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.clock import date, monotonic
from veilsum.roles.process.context import (
    RoleContext,
    RoleOptions,
    enter_role,
    first_length,
    initial_model,
    make_equipment,
    make_measuring,
    make_optimizer,
    make_party_learner,
    starting_notes,
    state_folder,
)
from veilsum.roles.process.disk.lost_folder import NO_VOTE, load_or_begin_anew, nothing_to_resume
from veilsum.roles.process.disk.unbegun import begin, is_unbegun
from veilsum.roles.process.driver import Driver
from veilsum.roles.process.entropy import require_real_entropy, system_entropy
from veilsum.roles.process.envelopes import EnvelopeCodec
from veilsum.roles.process.machines import holds_model, make_machine, rules_of, step_of
from veilsum.roles.process.observer import Observers
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.roles.process.pump import Ended
from veilsum.roles.process.waiting.quorum import Need, Quorum
from veilsum.roles.process.waiting.staying import take_part
from veilsum.roles.views.recording import ViewRecording, begin_recording
from veilsum.transport.base import ConnectionRequest, RoleTransport, TransportFactory
from veilsum.transport.errors import TransportError
from veilsum.transport.foreign import RateLimit
from veilsum.transport.framing.datagrams import LIFE_BYTES

TRACEBACK = "VEILSUM_TRACEBACK"
THREADS = 4
THREAD_NAMES = "veilsum-work"
JOIN_S = 0.5
LONGEST_LINGER_S = 20.0


class Stopped(Exception):
    """The process was told to stop."""


def run_role(role: Role | str, options: RoleOptions, open_transport: TransportFactory | None = None) -> int:
    """Take part until the run ends; returns the exit code. What cannot begin raises `ParameterError`.

    Messages travel over what `open_transport` makes, by default over the federation's broker.
    """
    context = enter_role(role, options)
    if open_transport is None:
        open_transport = transport_over_broker(context.loaded, context.name, context.key_folder)
    log = RoleLog(context.name, options.log_format, logs=options.logs)
    checkpoints = StateFolder(
        options.state or state_folder(context.loaded.folder, context.name),
        context.name,
        context.loaded.config.agreed_digest,
    )
    checkpoints.acquire()
    try:
        with taken_over(log):
            return _run(context, checkpoints, log, open_transport)
    finally:
        checkpoints.release()


def _run(
    context: RoleContext, checkpoints: StateFolder, log: RoleLog, open_transport: TransportFactory
) -> int:
    another = checkpoints.knows_other_chain_than(context.loaded.roster)
    learner = None if context.name == SERVER else make_party_learner(context, checkpoints.folder, another)
    scheme = context.loaded.config.load_scheme()
    state = _saved_state(context, checkpoints, scheme, log) or PersistentState(0, None)
    first = state.model if state.model is not None else initial_model(context, learner)
    rules = rules_of(context.loaded.config, context.loaded.roster, first_length(context, first))
    if holds_model(scheme, context.name):
        state.model = first
    if scheme.has_chain:
        _join_chain(context, checkpoints, state, log)
    state.life = checkpoints.next_life
    begin(checkpoints.folder)
    checkpoints.save(state)
    start = int.from_bytes(require_real_entropy(system_entropy)(4), "big")
    limits = DEFAULT_LIMITS.for_vectors(scheme.most_vector_bytes(rules.parameters))
    codec = EnvelopeCodec(context.identity, rules.roster, rules.parameters.config_hash, start, limits)
    equipment = make_equipment(context, rules.parameters, learner)
    warnings = (
        *starting_warnings(scheme, rules.parameters),
        *equipment_notes(equipment),
        *starting_notes(context, learner, first),
    )
    for text in warnings:
        log.say("warning", text=text)
    optimizer = make_optimizer(context)
    recording = begin_recording(context, rules, learner, first if state.rounds_done == 0 else None, log)
    return RoleProcess(
        context=context,
        scheme=scheme,
        rules=rules,
        state=state,
        checkpoints=checkpoints,
        codec=codec,
        learner=learner,
        log=log,
        open_transport=open_transport,
        equipment=equipment,
        optimizer=optimizer,
        recording=recording,
    ).run()


def _saved_state(
    context: RoleContext, checkpoints: StateFolder, scheme: Scheme, log: RoleLog
) -> PersistentState | None:
    """What the party has on disk; None where it begins, or where others will give it all that it needs."""
    options = context.options
    if not checkpoints.exists() or options.fresh:
        unbegun = is_unbegun(checkpoints.folder, context.identity.public)
        if options.resume and context.name != SERVER and not unbegun:
            advice = nothing_to_resume(context.name, scheme, context.loaded.folder)
            log.say("warning", text=f"{checkpoints.folder}: {advice}")
        return None
    if not options.resume:
        raise ParameterError(
            [f"{checkpoints.folder} holds an earlier run: --resume goes on from it, --fresh forgets it"]
        )

    def warn(text: str) -> None:
        log.say("warning", text=text)

    saved = load_or_begin_anew(checkpoints, context.name, scheme, context.loaded.folder, warn)
    if saved is None:
        return None
    unused = (
        [f"--init {options.init} is not used: the run goes on from its checkpoint"] if options.init else []
    )
    for text in (*saved.passed_over, *unused):
        warn(text)
    return saved.state


def _join_chain(context: RoleContext, checkpoints: StateFolder, state: PersistentState, log: RoleLog) -> None:
    """Take up the chain of the roster, and say where we are in it, so that an organiser can be told."""
    roster = context.loaded.roster
    forgetful = context.options.fresh and not checkpoints.knows_other_chain_than(roster)
    try:
        state.join_chain(roster, forgetful=forgetful)
    except LocalProtocolError as refusal:
        raise ParameterError([f"{checkpoints.folder} under {ROSTER_FILE}: {refusal}"]) from refusal
    if forgetful and context.name != SERVER:
        log.say("warning", text=NO_VOTE)
    log.tell_position(state.chain)


@dataclass
class RoleProcess:
    """Everything one process runs on."""

    context: RoleContext
    scheme: Scheme
    rules: MachineRules
    state: PersistentState
    checkpoints: StateFolder
    codec: EnvelopeCodec
    learner: Learner | None
    log: RoleLog
    open_transport: TransportFactory
    equipment: object | None
    optimizer: StepOptimizer | None
    recording: ViewRecording | None = None
    wills: RateLimit = field(default_factory=RateLimit)

    def __post_init__(self) -> None:
        self.driver: Driver | None = None
        self.outages = Outages(self.context.name, self.log)

    def run(self) -> int:
        work = ThreadPoolExecutor(THREADS, thread_name_prefix=THREAD_NAMES)
        disk = ThreadPoolExecutor(1, thread_name_prefix=THREAD_NAMES)
        code = EXIT_FAILED
        try:
            ended = asyncio.run(self._take_part(work, disk))
            code = EXIT_OK if isinstance(ended, RunFinished) else EXIT_FAILED
        except Stopped:
            code = self._stopped()
        except (TransportError, LocalProtocolError) as error:
            self.log.tell_failure(error)
        except Exception as error:
            self.log.tell_failure(error, f" (unexpected; {TRACEBACK}=1 shows where)")
            if os.environ.get(TRACEBACK) == "1":
                raise
        finally:
            for executor in (work, disk):
                executor.shutdown(wait=False, cancel_futures=True)
            if self.recording is not None:
                self.recording.close()
            leave_threads_behind(code)
        return code

    def _stopped(self) -> int:
        """Whoever is stopped after its end has come to that end: it only stayed for the others, or for a last word."""
        ended = None if self.driver is None else self.driver.finish(self.rules.rounds)
        if ended is not None:
            return EXIT_OK if isinstance(ended, RunFinished) else EXIT_FAILED
        self.log.say("stopped", rounds_done=self.state.rounds_done)
        return EXIT_INTERRUPTED

    async def _take_part(self, work: Executor, disk: Executor) -> Ended:
        with _stopping_on_signals():
            transport = self._transport()
            self.log.say(
                "started",
                rounds_done=self.state.rounds_done,
                rounds=self.rules.rounds,
                life=self.state.life,
            )
            ended: Ended | None = None
            try:
                async with transport:
                    ended = await self._drive(transport, work, disk)
            except TransportError as error:
                # A run that has come to its end is not undone by a good-bye that does not get through.
                if ended is None:
                    raise
                self.log.say("warning", text=str(error))
            return ended

    def _transport(self) -> RoleTransport:
        context, random = self.context, require_real_entropy(system_entropy)
        federation = context.loaded.federation_id
        request = ConnectionRequest(
            federation=federation,
            address=context.name,
            life=random(LIFE_BYTES),
            crypto=IdentityLines(context.identity, self.rules.roster, federation, random),
            on_gone=self._hear_will,
            connect_within_s=self.rules.timing.patience_s,
            largest_message=self.codec.largest_envelope,
            on_link=self.outages.hear,
        )
        return self.open_transport(request)

    def _hear_will(self, address: str) -> None:
        """Anyone with a login may have sent it: it is told of members only, and sparingly."""
        who = self.rules.roster.identity(address).name
        if self.wills.admit("seems_gone", who) is not None:
            self.log.say("seems_gone", who=who)

    async def _drive(self, transport: RoleTransport, work: Executor, disk: Executor) -> Ended:
        timing = self.rules.timing
        random = require_real_entropy(system_entropy)
        context = self.context
        step = step_of(context.loaded.config, context.name, self.state, self.optimizer)
        in_words = self.outages.in_words
        parts = RoleParts(context.identity, random, step.apply, self.equipment, step.take, in_words)
        machine = make_machine(self.scheme, self.rules, parts, self.state)
        if self.recording is not None:
            self.recording.hear_secrets(self.context.name, self.equipment)
        driver = self.driver = Driver(
            party=self.context.name,
            machine=machine,
            codec=self.codec,
            transport=transport,
            state=self.state,
            checkpoints=self.checkpoints,
            executor=work,
            disk=disk,
            log=self.log,
            learner=self.learner,
            observer=Observers([self.outages, *([self.recording] if self.recording else [])]),
            measuring=make_measuring(context, self.learner, self.log),
            send_within_s=2 * timing.phase_s,
            linger_s=min(timing.phase_s, LONGEST_LINGER_S),
        )
        telling = asyncio.create_task(self._tell_status(transport, driver))
        try:
            if isinstance(machine, ServerMachine):
                machine.waiting_since = monotonic()
                quorum = Quorum(
                    self.rules.roster,
                    self.context.loaded.federation_id,
                    Need.of(self.scheme, self.rules, self.state.chain),
                    self.log,
                )
                await quorum.wait(transport, timing.patience_s)
            federation, stay_s = context.loaded.federation_id, context.options.stay_s
            return await take_part(driver, transport, self.rules, federation, stay_s)
        finally:
            telling.cancel()
            await asyncio.wait([telling])

    async def _tell_status(self, transport: RoleTransport, driver: Driver) -> None:
        identity, number = self.context.identity, 0
        started_ms = int(date() * 1000)
        left_out = LeftOut(self.log, self.rules.timing.opening_s + self.rules.timing.phase_s)
        while True:
            number += 1
            tally = driver.tally
            left_out.hear(driver.machine.phase.value)
            status = Status(
                party=identity.name,
                role=identity.role.value,
                life=started_ms,
                number=number,
                round=self.state.rounds_done,
                rounds=self.rules.rounds,
                attempt=max(0, self.state.attempt - 1),
                phase="training" if tally.training else driver.machine.phase.value,
                sent_bytes=tally.sent_bytes,
                received_bytes=tally.received_bytes,
                refused=tally.refused,
                late=tally.owing.late()[:MOST_LATE],
                **(driver.measuring.for_status() if driver.measuring is not None else {}),
            )
            try:
                await transport.publish_status(
                    sign_status(identity, self.context.loaded.federation_id, status)
                )
            except TransportError as error:
                self.log.say("status_not_told", text=str(error))
            await asyncio.sleep(pause_after(number, driver.machine.phase.value))


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
    """SIGINT, SIGTERM and SIGHUP end the main task in order: the transport is closed, the state is on disk."""
    task = asyncio.current_task()
    assert task is not None
    told = False

    def stop() -> None:
        nonlocal told
        told = True
        task.cancel()

    with stopping_in_order(stop):
        try:
            yield
        except asyncio.CancelledError:
            if told:
                raise Stopped from None
            raise
        finally:
            nothing_left_to_stop()
