"""A process's own view of its run, for an audit: noted while the run goes on, written whole after every round.

Never in the way of the protocol. The file is written by a thread of its own, from what
was known when it was asked for; requests that come while it writes fold into one. What cannot be written is told in
the log, and the run goes on: the last file that was complete stays.

The file is the party's own secret: data, updates, seeds and perturbation keys are in it. Times are those of the
machine's clock, so that views of several machines can be put in order.

Implements specs/guide.md, section 5.
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
from veilsum.protocol.machines.rules import MachineRules
from veilsum.protocol.numbers.model import Model
from veilsum.roles.learning.contract import Learner
from veilsum.roles.learning.defences.keeping import KeepingLearner
from veilsum.roles.learning.first_model import shapes_of
from veilsum.roles.learning.task import HoldsSamples
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.process.context import RoleContext, beginning_of, initial_model
from veilsum.roles.views.file import BadViewFile, load_view, save_view
from veilsum.roles.views.recorder import ViewRecorder
from veilsum.roles.views.view import PublicFacts, View

Save = Callable[[View, Path], None]


@dataclass(kw_only=True)
class ViewRecording(ViewRecorder):
    """What one party sees of a run, and the file that it goes to."""

    party: PartyId
    path: Path
    log: RoleLog
    save: Save = field(default=save_view, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="veilsum-view")
        self._wanted: View | None = None
        self._wanted_lock = threading.Lock()
        self._complaint = ""

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        super().noted(now, party, event)
        if isinstance(event, RoundCommitted):
            self._write_soon()

    def own_view(self) -> View:
        """Everything up to now."""
        return self._cut((str(self.party),))

    def begin(self) -> None:
        """Write what is known before the run, so that a path that cannot be written is refused at once."""
        try:
            self.save(self.own_view(), self.path)
        except OSError as error:
            raise ParameterError(
                [f"--record-view {self.path} cannot be written: {error.strerror}"]
            ) from error
        self.log.say(
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
            self._wanted = self.own_view()
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
                self.log.say("warning", text=text)
            self._complaint = text
        else:
            self._complaint = ""


def begin_recording(
    context: RoleContext, rules: MachineRules, learner: Learner | None, first: Model | None, log: RoleLog
) -> ViewRecording | None:
    """The recording that the command line asks for, if it does; `first` is the first model where it is at hand."""
    path = context.options.record_view
    if path is None:
        return None
    inner = learner.inner if isinstance(learner, KeepingLearner) else learner
    if inner is None:
        beginning = beginning_of(context)
        shape, outputs = beginning.input_shape, beginning.outputs
        first = beginning.model if first is None and context.options.init is None else first
    else:
        shape, outputs = shapes_of(inner)
    facts = PublicFacts(context.loaded.config.agreed(), rules.parameters.dimension, shape, outputs)
    earlier = earlier_view(path, context.name, facts, resume=context.options.resume)
    if earlier is not None:
        first = earlier.initial_model
    elif first is None:
        first = initial_model(context, learner)
    if first is None:
        raise ParameterError(["--record-view at this server needs the first model: give it with --init FILE"])
    recording = ViewRecording(
        party=context.name,
        facts=facts,
        initial_model=first,
        path=path,
        log=log,
        data={context.name: inner.data} if isinstance(inner, HoldsSamples) else {},
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
