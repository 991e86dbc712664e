"""What a party knows, on disk: whole or not at all, three times over, and under one settings hash.

    checkpoint-000000000042.json   numbers, checksum, and which model belongs to them
    model-<rounds>-<hash>.f32      the model: float32, little-endian
    memory-<rounds>-<hash>.bin     what the server's optimiser remembers, if it has one
    step-<rounds>-<hash>.bin       what the step of a chain remembers
    next-...                       the state that the party voted for; once it is certified, the model of the next round
    ....copy                       each of these parts once more (disk/part_files.py)
    lock                           held by the process that lives here

Each checkpoint is a new file: written under a temporary name, flushed, renamed, and the folder flushed; so
after a crash at any point the newest complete one counts. Model and memory are files of their own, because a decision
in the middle of a round must be durable before the next message and must not cost the writing of a large model.

The last three checkpoints are kept, the newest one of each of the last three models, and what belongs to them. A newest
one that is damaged is passed over with a warning, and then the party is cautious: a round that was under way counts as
spent, since the lost lines may have said so; and it has no vote at its position, unless it remembers which it cast. One
lost file can at most have opened a round; two can have opened it and uploaded in it, so after two the next round counts
as spent even if the file that is left knows nothing of it. Where only the model of a newer checkpoint is lost, with its
copy, the party goes back to an older model and still knows what it did since: that stays spent, and it states nothing
of it, as if its disk were gone. The serial number in the name grows for ever, damaged or not.

No key, mask or seed is ever in a checkpoint. The model is not public either, and with a defence the party's learner
keeps `defence.state`, with its key, in the same folder (roles/learning/defences/keeping.py): the folder is closed to
other users.

Implements specs/guide.md, section 6.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.participation import Given, ParticipationRecord, Spent
from veilsum.roles.federation.private_files import make_private_folder, replace_private_file
from veilsum.roles.process.chain_fields import (
    chain_parts,
    pack_attempts,
    pack_chain,
    unpack_attempts,
    unpack_chain,
)
from veilsum.roles.process.disk.checkpoint_file import (
    FORMAT,
    FORMAT_VERSION,
    OtherVersion,
    encode_fields,
    read_fields,
)
from veilsum.roles.process.disk.part_files import (
    DamagedFile,
    Part,
    forget_parts,
    read_part,
    write_part,
)
from veilsum.roles.process.persistent_state import PersistentState

KEPT = 3
_LOCK = "lock"
_NAME = re.compile(r"checkpoint-(\d{12})\.json")


class CheckpointError(LocalProtocolError):
    """A checkpoint cannot be written, read or continued from; the text names the file and the remedy."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        self.path = path
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{path}: {problem}: {remedy}")


class NothingReadable(CheckpointError):
    """No checkpoint of the folder is whole: what the party knew is lost."""


@dataclass
class Saved:
    """What was found on disk: the state, and what had to be passed over."""

    state: PersistentState
    passed_over: list[str] = field(default_factory=list)


class StateFolder:
    """The folder of one party; one process at a time may live in it."""

    def __init__(self, folder: Path, party: PartyId, settings_hash: bytes) -> None:
        self.folder = folder
        self._party = party
        self._settings = settings_hash.hex()
        self._lock: int | None = None
        self._serial = 0
        self._parts: dict[str, tuple[object, Part]] = {}

    def acquire(self) -> None:
        """Move in, or refuse because another process of this party is there."""
        make_private_folder(self.folder)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.folder / _LOCK, flags, 0o600)
        except OSError as error:
            problem = f"cannot be opened ({error.strerror})"
            raise CheckpointError(self.folder / _LOCK, problem, "correct the folder") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise CheckpointError(
                self.folder, f"another process is running as {self._party}", "stop it first"
            ) from None
        self._lock = descriptor
        for draft in self.folder.glob(".*.????????"):
            draft.unlink(missing_ok=True)
        self._serial = max((serial for serial, _ in self._files()), default=0)

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def next_life(self) -> int:
        """The number of this start: more than that of any checkpoint here."""
        return self._serial + 1

    def exists(self) -> bool:
        """Whether any checkpoint is here, readable or not."""
        with self._reading():
            return any(True for _ in self._files())

    def load(self) -> Saved:
        """The newest checkpoint that is whole; refused if it was made under other settings, or may not be read."""
        with self._reading():
            return self._load()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """What may not be read is no damage: an older state in its place would undo what was committed."""
        try:
            yield
        except OSError as error:
            path = Path(error.filename or self.folder)
            raise CheckpointError(
                path, f"cannot be read ({error.strerror})", "correct its owner and mode, and start again"
            ) from error

    def _load(self) -> Saved:
        if not self.exists():
            raise CheckpointError(
                self.folder, "there is no checkpoint", f"run {self._party} first, or correct the folder"
            )
        passed_over: list[str] = []
        without_model: dict[str, Any] | None = None
        unreadable = 0
        for _, path in sorted(self._files(), reverse=True):
            try:
                fields = read_fields(path)
                self._require_ours(path, fields)
            except OtherVersion as other:
                raise CheckpointError(
                    path,
                    f"it has format {other}, and this version of veilsum reads and writes {FORMAT_VERSION} only",
                    "end the run with the version that wrote it, or begin a new one with --fresh",
                ) from None
            except DamagedFile as damage:
                passed_over.append(f"{path.name} is damaged ({damage}) and was passed over")
                unreadable += without_model is None
                continue
            warnings: list[str] = []
            try:
                state = self._restore(fields, warnings)
            except DamagedFile as damage:
                passed_over.append(f"{path.name} lacks a part ({damage}) and was passed over")
                without_model = without_model or fields
                continue
            if without_model is not None:
                _remember(state, without_model)
            if unreadable:
                _be_cautious(state, unreadable)
            return Saved(state, passed_over + warnings)
        raise NothingReadable(
            self.folder,
            "no checkpoint is readable",
            "restore the folder from a backup, or start again with --fresh",
        )

    def knows_other_chain_than(self, roster: Roster) -> bool:
        """Whether what is here, readable under whatever settings, is of another chain of models than the roster's."""
        for _, path in sorted(self._files(), reverse=True):
            with contextlib.suppress(DamagedFile), self._reading():
                chain, anchor = read_fields(path)["chain"], roster.anchor
                return chain is not None and anchor is not None and chain["chain"] != anchor.chain.hex()
        return False

    def most_rounds_told(self) -> int:
        """The most rounds that any readable checkpoint here tells of, made under whatever settings."""
        told = [0]
        for _, path in self._files():
            with contextlib.suppress(DamagedFile), self._reading():
                told.append(read_fields(path)["rounds_done"])
        return max(told)

    def save(self, state: PersistentState) -> None:
        """Make the state durable; returns only when it is on disk."""
        self._require_at_home()
        serial = self._serial + 1
        path = self.folder / f"checkpoint-{serial:012}.json"
        try:
            self._save_parts(state)
            replace_private_file(path, encode_fields(self._fields(serial, state)))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise CheckpointError(
                    path,
                    "the disk is full",
                    "make room and start again with --resume; nothing committed is lost",
                ) from error
            raise CheckpointError(
                path, f"cannot be written ({error.strerror})", "correct the folder"
            ) from error
        self._serial = serial
        try:
            self._forget_old()
        except OSError as error:
            raise CheckpointError(
                self.folder, f"old checkpoints cannot be removed ({error.strerror})", "correct the folder"
            ) from error

    def _require_at_home(self) -> None:
        """Refuse to write where we have not moved in: the folder may have been moved away under us, or removed."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(self._lock), (self.folder / _LOCK).stat()):
                    return
            raise CheckpointError(
                self.folder,
                "it was moved or removed while the process that lives in it was running",
                "put it back, and start again with --resume",
            )

    def _save_parts(self, state: PersistentState) -> None:
        """Write the large parts that are not on disk yet; one that is still the same object is.

        The state that was voted for becomes the model of the next round without being written again.
        """
        parts: dict[str, object | None] = {
            "model": state.model,
            "memory": state.memory.get(state.rounds_done),
            **chain_parts(state.chain),
        }
        for kind, value in parts.items():
            if value is None:
                self._parts.pop(kind, None)
                continue
            known = next((part for held, part in self._parts.values() if held is value), None)
            if known is None:
                content = (
                    value if isinstance(value, bytes) else np.ascontiguousarray(value, dtype="<f4").tobytes()
                )
                known = write_part(self.folder, kind, state.rounds_done, content)
            self._parts[kind] = value, known

    def _fields(self, serial: int, state: PersistentState) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "serial": serial,
            "party": self._party,
            "settings": self._settings,
            "rounds_done": state.rounds_done,
            "attempt": state.attempt,
            "spent": [_packed(number, spent) for number, spent in sorted(state.record.spent.items())],
            "given": _packed_updates(state.record.given),
            "entered": pack_attempts(state.record.entered),
            "chain": pack_chain(state.chain),
            "cohorts": [sorted(cohort) for cohort in state.record.cohorts],
            "parts": {kind: part for kind, (_, part) in self._parts.items()},
        }

    def _require_ours(self, path: Path, fields: Mapping[str, Any]) -> None:
        if fields["party"] != self._party:
            raise CheckpointError(
                path, f"it belongs to {fields['party']}, not to {self._party}", "correct --state"
            )
        if fields["settings"] != self._settings:
            raise CheckpointError(
                path,
                f"it was made under settings {fields['settings']}, federation.toml now has {self._settings}",
                "restore the settings (only rounds, deadlines, devices, data and broker may change), or --fresh",
            )

    def _restore(self, fields: Mapping[str, Any], warnings: list[str]) -> PersistentState:
        parts, rounds_done = fields["parts"], fields["rounds_done"]
        values: dict[str, Any] = {
            kind: read_part(self.folder, part, warnings) for kind, part in parts.items()
        }
        if "model" in values:
            values["model"] = np.frombuffer(values["model"], dtype="<f4").copy()
        self._parts = {kind: (values[kind], part) for kind, part in parts.items()}
        memory = {rounds_done: values["memory"]} if "memory" in values else {}
        return PersistentState(
            rounds_done,
            values.get("model"),
            _unpacked_record(fields),
            fields["attempt"],
            memory=memory,
            chain=unpack_chain(fields["chain"], values.get("model"), values),
        )

    def _files(self) -> Iterator[tuple[int, Path]]:
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if match := _NAME.fullmatch(path.name):
                    yield int(match[1]), path

    def _forget_old(self) -> None:
        """Remove all but the last three checkpoints and the newest of each of three models, and what none names."""
        kept, models, wanted = 0, set[str](), set[str]()
        for _, path in sorted(self._files(), reverse=True):
            if kept >= KEPT and len(models) >= KEPT:
                path.unlink(missing_ok=True)
                continue
            try:
                parts = read_fields(path)["parts"]
            except DamagedFile:
                continue
            model = parts["model"]["sha256"] if "model" in parts else ""
            if kept >= KEPT and model in models:
                path.unlink(missing_ok=True)
                continue
            kept += 1
            models.add(model)
            wanted |= {part["file"] for part in parts.values()}
        forget_parts(self.folder, wanted)


def _unpacked_record(fields: Mapping[str, Any]) -> ParticipationRecord:
    return ParticipationRecord(
        [frozenset(PartyId(name) for name in cohort) for cohort in fields["cohorts"]],
        dict(_unpacked(spent) for spent in fields["spent"]),
        _unpacked_updates(fields["given"]),
        unpack_attempts(fields["entered"]),
    )


def _packed(round_number: int, spent: Spent | None) -> list[Any]:
    if spent is None:
        return [round_number]
    return [round_number, sorted(spent.cohort), sorted(spent.electorate)]


def _unpacked(fields: list[Any]) -> tuple[int, Spent | None]:
    if len(fields) == 1:
        return int(fields[0]), None
    cohort, electorate = (frozenset(PartyId(name) for name in names) for names in fields[1:])
    return int(fields[0]), Spent(cohort, electorate)


def _packed_updates(given: Given) -> list[Any]:
    return [given.round, {model.hex(): update.hex() for model, update in given.updates.items()}]


def _unpacked_updates(fields: list[Any]) -> Given:
    updates = {bytes.fromhex(model): bytes.fromhex(update) for model, update in fields[1].items()}
    return Given(int(fields[0]), updates)


def _be_cautious(state: PersistentState, lost: int) -> None:
    """What the lost files may have said counts as said; one of them may have been a vote, and nobody votes twice."""
    if lost > 1 or state.attempt > 0:
        state.record.spent[state.rounds_done] = None
    if state.chain is not None and state.chain.next_state is None:
        state.chain = replace(state.chain, votes_here=False)


def _remember(state: PersistentState, newer: Mapping[str, Any]) -> None:
    """Go on from an older model with what a newer checkpoint still says we did; of votes since we know too little."""
    state.record = replace(_unpacked_record(newer), entered=(-1, ()))
    state.attempt = newer["attempt"] if newer["rounds_done"] == state.rounds_done else 0
    if newer["attempt"] > 0:
        state.record.spent.setdefault(newer["rounds_done"], None)
    if state.chain is not None and state.chain.next_state is None:
        state.chain = replace(state.chain, votes_here=False)
