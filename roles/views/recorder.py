"""A process's own view of its run, for an audit: noted while the run goes on, written whole after every round.

Never in the way of the protocol. Noting is appending to lists. The file is written by a thread of its own, from what
was known when it was asked for; requests that come while it writes fold into one. What cannot be written is told in
the journal, and the run goes on: the last file that was complete stays. Everything stays in memory, too, so this is
for audits and not for runs of weeks.

The file is the party's own secret: data, updates, seeds and noise keys are in it. Times are those of the machine's
clock, so that views of several machines can be put in order.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.ampc.decomposition import EpochSecrets
from veilsum.protocol.wire.messages import Message, kind_of
from veilsum.roles.learning.contract import Learner, LocalUpdate
from veilsum.roles.learning.defences.keeping import KeepingLearner
from veilsum.roles.learning.first_model import shapes_of
from veilsum.roles.learning.task import HoldsSamples, Samples
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.process.clock import Clock, date
from veilsum.roles.process.context import RoleContext, ask_for_task, find_first_model
from veilsum.roles.process.machines import Machine, Rules
from veilsum.roles.process.observer import RunObserver
from veilsum.roles.views.file import BadViewFile, load_view, save_view
from veilsum.roles.views.view import EpochKeys, Observed, OwnUpdate, PublicFacts, Result, TellsSecrets, View

Save = Callable[[View, Path], None]


@dataclass
class ViewRecording(RunObserver):
    """What one party sees of a run, and the file that it goes to."""

    party: PartyId
    facts: PublicFacts
    initial_model: Model
    path: Path
    journal: RoleLog
    data: Samples | None = None
    earlier: View | None = None
    """What an earlier life of this party has recorded of the same run."""
    clock: Clock = date
    save: Save = field(default=save_view, repr=False)

    def __post_init__(self) -> None:
        before = self.earlier
        self._messages = [] if before is None else list(before.messages)
        self._results = [] if before is None else list(before.results)
        self._updates = [] if before is None else list(before.own_updates)
        self._keys = {} if before is None else {one.session: one for one in before.epoch_keys}
        self._noise = [] if before is None else list(before.noise_secrets)
        self._machine: Machine | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="veilsum-view")
        self._wanted: View | None = None
        self._wanted_lock = threading.Lock()
        self._complaint = ""

    # What the driver and the server's noise tell.

    def watch(self, machine: Machine, noise: object = None) -> None:
        """Whose epoch secrets and noise keys are the party's own."""
        self._machine = machine
        if isinstance(noise, TellsSecrets):
            noise.on_secrets = self._noise.append

    def sent(self, receiver: PartyId, message: Message, size: int) -> None:
        self._messages.append(Observed(self.clock(), self.party, receiver, kind_of(message), size, message))

    def received(self, sender: PartyId, message: Message, size: int) -> None:
        self._messages.append(Observed(self.clock(), sender, self.party, kind_of(message), size, message))

    def trained(self, round_number: int, update: LocalUpdate) -> None:
        self._updates.append(OwnUpdate(self.party, round_number, update.samples, update.payload))

    def noted(self, event: Event) -> None:
        self._note_keys()
        if isinstance(event, RoundCommitted):
            members = tuple(str(name) for name in event.members)
            self._results.append(
                Result(self.party, event.round, event.attempt, members, event.model, event.total)
            )
            self._write_soon()

    def _note_keys(self) -> None:
        machine = self._machine
        if not isinstance(machine, ParticipantMachine) or machine.session is None:
            return
        if isinstance(machine.secrets, EpochSecrets):
            session = machine.session.id
            self._keys[session] = EpochKeys.of(self.party, session, machine.secrets)

    # The view and its file.

    def view(self) -> View:
        """Everything up to now."""
        return View(
            members=(str(self.party),),
            facts=self.facts,
            initial_model=self.initial_model,
            messages=tuple(self._messages),
            results=tuple(self._results),
            own_updates=tuple(self._updates),
            own_data={} if self.data is None else {str(self.party): self.data},
            epoch_keys=tuple(self._keys.values()),
            noise_secrets=tuple(self._noise),
        )

    def begin(self) -> None:
        """Write what is known before the run, so that a path that cannot be written is refused at once."""
        try:
            self.save(self.view(), self.path)
        except OSError as error:
            raise ParameterError(
                [f"--record-view {self.path} cannot be written: {error.strerror}"]
            ) from error
        self.journal.say(
            "warning",
            text=f"{self.path} gets all that {self.party} sees and knows, its data and secrets included: "
            "guard it like the key folder, and delete it after the audit",
        )

    def close(self) -> None:
        """Write the last state and wait until it is on disk, however the run ended."""
        self._write_soon()
        self._thread.shutdown(wait=True)

    def _write_soon(self) -> None:
        with self._wanted_lock:
            self._wanted = self.view()
        self._thread.submit(self._write)

    def _write(self) -> None:
        with self._wanted_lock:
            view, self._wanted = self._wanted, None
        if view is None:
            return
        try:
            self.save(view, self.path)
        except (OSError, MemoryError, LocalProtocolError) as error:
            text = f"{self.path} was not written ({error}): the run goes on, an earlier file stays"
            if text != self._complaint:
                self.journal.say("warning", text=text)
            self._complaint = text
        else:
            self._complaint = ""


def begin_recording(
    place: RoleContext, rules: Rules, learner: Learner | None, first: Model | None, journal: RoleLog
) -> ViewRecording | None:
    """The recording that the command line asks for, if it does; `first` is the model of round 0 where it is at hand."""
    path = place.options.record_view
    if path is None:
        return None
    inner = learner.inner if isinstance(learner, KeepingLearner) else learner
    if inner is None:
        task = ask_for_task(place)
        shape, outputs = task.input_shape, task.outputs
        first = task.model if first is None and place.options.init is None else first
    else:
        shape, outputs = shapes_of(inner)
    facts = PublicFacts(rules.config.agreed(), rules.parameters.dimension, shape, outputs)
    earlier = earlier_view(path, place.name, facts, resume=place.options.resume)
    if earlier is not None:
        first = earlier.initial_model
    elif first is None:
        first = find_first_model(place, learner)
    recording = ViewRecording(
        party=place.name,
        facts=facts,
        initial_model=first,
        path=path,
        journal=journal,
        data=inner.data if isinstance(inner, HoldsSamples) else None,
        earlier=earlier,
    )
    recording.begin()
    return recording


def earlier_view(path: Path, party: PartyId, facts: PublicFacts, *, resume: bool) -> View | None:
    """What an earlier life has recorded, if the run goes on; a file that is no view of this party is not replaced."""
    if not path.exists():
        return None
    try:
        found = load_view(path)
    except BadViewFile as refusal:
        raise ParameterError([f"--record-view: {refusal}, and is not overwritten"]) from refusal
    if found.members != (str(party),):
        raise ParameterError(
            [f"--record-view: {path} is the view of {found.adversary}, and is not overwritten"]
        )
    if not resume:
        return None
    if _plain(found.facts) != _plain(facts):
        raise ParameterError([f"--record-view: {path} is the view of another run: name another file"])
    return found


def _plain(facts: PublicFacts) -> str:
    return json.dumps(
        [dict(facts.settings), facts.dimension, facts.input_shape, facts.outputs], sort_keys=True
    )
