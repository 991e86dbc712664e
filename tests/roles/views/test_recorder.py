"""A process's own view: what a driver tells becomes a file, whole after every round, and never in the run's way."""

from __future__ import annotations

import asyncio
import errno
import functools
import io
import json
import stat
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.roles.process.test_driver import ALICE, DONE, DrivenParty, Script, knocks
from tests.support.federations import make_federation
from tests.support.refusals import refusal
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted
from veilsum.protocol.machines.session import Knock
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.process.context import RoleOptions, enter_role, make_party_learner
from veilsum.roles.process.machines import Machine, rules_of
from veilsum.roles.process.observer import Observers, RunObserver
from veilsum.roles.views.file import load_view, save_view
from veilsum.roles.views.recorder import ViewRecorder
from veilsum.roles.views.recording import ViewRecording, begin_recording, earlier_view
from veilsum.roles.views.view import PerturbationSecrets, PublicFacts, View, pool
from veilsum.simulations.attacks.model.ampc_coalition import AmpcCoalition
from veilsum.simulations.run.adversaries import view_recorder
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.record import Recorder
from veilsum.simulations.run.simulation import Simulation
from veilsum.transport.memory.switchboard import Switchboard

SMALL = FederationConfig(scheme="masked", task="vectors:5")
FACTS = PublicFacts(SMALL.agreed(), 5, (), 0)
FIRST = np.zeros(5, dtype=np.float32)
COMMITTED = RoundCommitted(0, 0, (ALICE,), bytes(32), FIRST + 1)


def recording_of(path: Path, said: io.StringIO | None = None, **settings: Any) -> ViewRecording:
    log = RoleLog(ALICE, "json", said if said is not None else io.StringIO())
    return ViewRecording(party=ALICE, facts=FACTS, initial_model=FIRST, path=path, log=log, **settings)


def warnings_in(said: io.StringIO) -> list[str]:
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    return [line["text"] for line in lines if line["fact"] == "warning"]


class OnlyOf(RunObserver):
    """What a party's own process would tell its recording."""

    def __init__(self, recording: ViewRecording) -> None:
        self._recording = recording

    def began(self, now: float, party: PartyId, machine: Machine) -> None:
        if party == self._recording.party:
            self._recording.began(now, party, machine)

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        if party == self._recording.party:
            self._recording.sent(now, party, receiver, message, size)
        if receiver == self._recording.party:
            self._recording.received(now, receiver, party, message, size)

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        if party == self._recording.party:
            self._recording.trained(now, party, round_number, update)

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if party == self._recording.party:
            self._recording.noted(now, party, event)


@dataclass(frozen=True)
class Overheard:
    """A simulation in which every party also recorded its own view, as its process would."""

    recorder: Recorder
    views: ViewRecorder
    recordings: Mapping[PartyId, ViewRecording]


Overhear = Callable[[str], Overheard]


@pytest.fixture(scope="module")
def overheard(tmp_path_factory: pytest.TempPathFactory) -> Overhear:
    """A run of a scheme in which all record themselves, once for all tests."""
    return functools.cache(lambda scheme: overhear(scheme, tmp_path_factory.mktemp(scheme)))


def overhear(scheme: str, folder: Path) -> Overheard:
    federation = Federation.build(FederationConfig(scheme=scheme, task="vectors:5", rounds=2, seed=5))
    views = view_recorder(federation, {}, 0)
    recordings = {
        name: ViewRecording(
            party=name,
            facts=views.facts,
            initial_model=federation.initial_model,
            path=folder / f"{name}.view",
            log=RoleLog(name, "json", io.StringIO()),
        )
        for name in federation.identities
    }
    recorder = Recorder(federation)
    Simulation(federation, observer=Observers([recorder, views, *map(OnlyOf, recordings.values())])).run()
    for recording in recordings.values():
        recording.close()
    return Overheard(recorder, views, recordings)


def contents(view: View) -> list[tuple[Any, ...]]:
    return [(one.sender, one.receiver, one.kind, one.size, repr(one.message)) for one in view.messages]


@pytest.mark.parametrize("scheme", ["plain", "masked", "mpc", "ampc"])
@pytest.mark.parametrize("party", ["server", "p2"])
def test_what_a_process_records_is_what_a_simulation_says_it_saw(
    scheme: str, party: str, overheard: Overhear
) -> None:
    run = overheard(scheme)
    own = load_view(run.recordings[PartyId(party)].path)
    cut = run.views.view(party)
    assert repr(own) == repr(cut)
    assert contents(own) == contents(cut)
    for mine, theirs in zip(own.results, cut.results, strict=True):
        assert (mine.round, mine.members) == (theirs.round, theirs.members)
        assert (mine.model is None) == (theirs.model is None)
        assert mine.model is None or (mine.model == theirs.model).all()
    for mine, theirs in zip(own.own_updates, cut.own_updates, strict=True):
        assert (mine.payload == theirs.payload).all()
    for mine, theirs in zip(own.session_keys, cut.session_keys, strict=True):
        for seeds, others in ((mine.taken, theirs.taken), (mine.biases, theirs.biases)):
            assert {n: s.reveal() for n, s in seeds.items()} == {n: s.reveal() for n, s in others.items()}


def test_files_of_several_processes_pool_into_a_coalition(overheard: Overhear) -> None:
    """Server and one peer of ampc form the global model from their files; common messages count once."""
    run = overheard("ampc")
    views = [load_view(run.recordings[PartyId(name)].path) for name in ("server", "p1")]
    together = pool(views)
    assert sorted(contents(together)) == sorted(contents(run.views.view("server", "p1")))
    assert run.recorder.model is not None
    assert (AmpcCoalition().form(together) == run.recorder.model).all()


def test_a_message_that_was_sent_twice_counts_twice_in_a_coalition() -> None:
    def seen(party: str) -> View:
        one = recording_of(Path("unused"))
        one.party = PartyId(party)
        for _ in range(2):
            if party == SERVER:
                one.received(0.0, SERVER, ALICE, Knock(Stamp()), 9)
            else:
                one.sent(0.0, ALICE, SERVER, Knock(Stamp()), 9)
        return one.own_view()

    assert len(pool([seen(SERVER), seen(ALICE)]).messages) == 2


def test_a_driver_tells_its_recording_what_it_sends_and_receives_with_times(tmp_path: Path) -> None:
    heard = 0

    def hear(sender: PartyId, message: Message) -> list[Event]:
        nonlocal heard
        heard += 1
        return [DONE] if heard == 3 else []

    board = Switchboard()
    server, alice = (
        DrivenParty(board, SERVER, Script([], hear)),
        DrivenParty(board, ALICE, Script([*knocks(3), DONE])),
    )
    recordings = {party.name: recording_of(tmp_path / f"{party.name}.view") for party in (server, alice)}
    recordings[SERVER].party = SERVER

    async def run() -> None:
        await asyncio.gather(*(party.run(observer=recordings[party.name]) for party in (server, alice)))

    asyncio.run(run())
    sent, received = recordings[ALICE].own_view().messages, recordings[SERVER].own_view().messages
    assert [one.message.stamp.round for one in received if one.message is not None] == [0, 1, 2]
    assert [(one.sender, one.receiver, one.kind, one.size) for one in sent] == [
        (one.sender, one.receiver, one.kind, one.size) for one in received
    ]
    times = [one.time_s for one in sent]
    assert times == sorted(times)
    assert sum(one.size for one in sent) == alice.driver.tally.sent_bytes


def test_the_file_is_there_from_the_start_and_closed_to_others(tmp_path: Path) -> None:
    said = io.StringIO()
    recording = recording_of(tmp_path / "alice.view", said)
    recording.begin()
    assert stat.S_IMODE(recording.path.stat().st_mode) == 0o600
    assert load_view(recording.path).messages == ()
    assert "secrets included" in warnings_in(said)[0]


def test_a_full_disk_is_told_once_and_the_earlier_file_stays(tmp_path: Path) -> None:
    said = io.StringIO()

    def save(view: View, path: Path) -> None:
        if view.results:
            raise OSError(errno.ENOSPC, "No space left on device")
        save_view(view, path)

    recording = recording_of(tmp_path / "alice.view", said, save=save)
    recording.begin()
    recording.noted(0.0, ALICE, COMMITTED)
    recording.noted(0.0, ALICE, COMMITTED)
    recording.close()
    complaints = [text for text in warnings_in(said) if "No space left" in text]
    assert len(complaints) == 1
    assert "the run goes on" in complaints[0]
    assert load_view(recording.path).results == ()


def test_a_failed_write_leaves_no_draft_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("veilsum.roles.federation.private_files.os.fsync", full)
    with pytest.raises(ParameterError, match="No space left"):
        recording_of(tmp_path / "alice.view").begin()
    assert list(tmp_path.iterdir()) == []


def test_noting_never_waits_for_the_file_and_writes_fold_into_one(tmp_path: Path) -> None:
    """Twenty rounds pass while the first write hangs; then one more write has them all."""
    release, written = threading.Event(), []

    def slow(view: View, path: Path) -> None:
        release.wait(20)
        written.append(len(view.results))

    recording = recording_of(tmp_path / "alice.view", save=slow)
    for _ in range(20):
        recording.noted(0.0, ALICE, COMMITTED)
    release.set()
    recording.close()
    assert written[-1] == 20
    assert len(written) <= 3


def test_a_path_that_cannot_be_written_is_refused_at_once(tmp_path: Path) -> None:
    with refusal(ParameterError, "--record-view", "alice.view", "written"):
        recording_of(tmp_path / "nowhere" / "alice.view").begin()


def test_a_file_that_is_no_view_of_this_party_is_not_overwritten(tmp_path: Path) -> None:
    settings = tmp_path / "federation.toml"
    settings.write_text("[federation]")
    with refusal(ParameterError, "--record-view", "federation.toml", "recorded", "overwritten"):
        earlier_view(settings, ALICE, FACTS, resume=False)
    other = recording_of(tmp_path / "bob.view")
    other.party = PartyId("bob")
    other.begin()
    with refusal(ParameterError, "--record-view", "bob.view", "bob", "overwritten"):
        earlier_view(other.path, ALICE, FACTS, resume=True)


def test_a_resumed_run_goes_on_with_its_file_and_a_fresh_one_begins_anew(tmp_path: Path) -> None:
    first = recording_of(tmp_path / "alice.view")
    first.sent(0.0, ALICE, SERVER, Knock(Stamp()), 9)
    first.noted(0.0, ALICE, COMMITTED)
    first.close()
    before = earlier_view(first.path, ALICE, FACTS, resume=True)
    second = recording_of(first.path, earlier=before)
    second.noted(0.0, ALICE, RoundCommitted(1, 0, (ALICE,), bytes(32), FIRST + 2))
    second.close()
    found = load_view(first.path)
    assert [one.round for one in found.results] == [0, 1]
    assert len(found.messages) == 1
    assert earlier_view(first.path, ALICE, FACTS, resume=False) is None
    with pytest.raises(ParameterError, match="another run"):
        earlier_view(first.path, ALICE, PublicFacts({**FACTS.settings, "seed": 9}, 5, (), 0), resume=True)


def test_server_and_client_state_the_same_public_facts_with_and_without_torch(tmp_path: Path) -> None:
    """Or their views could not be pooled; a defended learner's samples are its party's own data."""
    fed = make_federation(tmp_path / "fed", "plain", 2, task="digits", defence="dp:sigma=0.01", min_parties=2)
    places = {
        name: enter_role(role, RoleOptions(fed.folder, name, record_view=tmp_path / f"{name}.view"))
        for name, role in (("server", Role.SERVER), ("p1", Role.CLIENT))
    }
    learner = make_party_learner(places["p1"], tmp_path)
    first = learner.initial_model()
    rules = rules_of(fed.config, fed.roster, len(first))
    views = {}
    for name, context in places.items():
        own = learner if name == "p1" else None
        recording = begin_recording(context, rules, own, None, RoleLog(name, "json", io.StringIO()))
        assert recording is not None
        recording.close()
        views[name] = load_view(recording.path)
        assert (views[name].initial_model == first).all()
    assert views["server"].facts == views["p1"].facts
    assert views["p1"].facts.input_shape == (1, 8, 8)
    assert views["p1"].facts.outputs == 10
    assert views["server"].own_data == {}
    assert len(views["p1"].own_data["p1"]) > 100
    assert pool(list(views.values())).members == ("server", "p1")


def test_without_the_flag_nothing_is_recorded(tmp_path: Path) -> None:
    fed = make_federation(tmp_path / "fed", "masked")
    context = enter_role(Role.SERVER, RoleOptions(fed.folder, "server"))
    rules = rules_of(fed.config, fed.roster, 40)
    log = RoleLog("server", "json", io.StringIO())
    assert begin_recording(context, rules, None, None, log) is None


def test_perturbation_keys_that_a_server_draws_are_in_its_file(tmp_path: Path) -> None:
    class Drawing:
        on_secrets: Callable[[PerturbationSecrets], None] = staticmethod(lambda _: None)

    drawing, recording = Drawing(), recording_of(tmp_path / "alice.view")
    recording.hear_secrets(ALICE, drawing)
    drawn = PerturbationSecrets(
        bytes(16), *(np.arange(count, dtype=np.float64) for count in (9, 2, 2, 4)), 0.5
    )
    drawing.on_secrets(drawn)
    recording.close()
    (found,) = load_view(recording.path).perturbation_secrets
    assert (found.key_id, found.loss_shift) == (drawn.key_id, drawn.loss_shift)
    for part in ("scale", "gammas", "blinders", "shifts"):
        assert (getattr(found, part) == getattr(drawn, part)).all()
        assert part not in repr(found)
