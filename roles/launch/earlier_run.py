"""The run before a fresh one: set aside while that begins, back in its place if it cannot, gone once it has.

    FOLDER/earlier-run/lock             held by the launch that set it aside
                       roster.json      and first models, as they were, where another chain begins
                       state/           all that every process knew, in one rename
                       logs/

Nothing is copied back over what still counts: `state` is moved last when it is set aside, and last when it is put back,
so whoever is killed on the way leaves one of both runs whole, and the next launch knows from what lies there which. A
run has begun with its first round; from then on it is the one that counts, and the folder is renamed before it is
removed. What a start that came to nothing had to say is kept in FOLDER/logs/not-begun.

A roster is never taken back, since every party refuses an older one: where another chain had been signed, the former
one is signed anew.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.federation.beginning import MODEL_FILE
from veilsum.roles.federation.enrolment import go_back_to_chain
from veilsum.roles.federation.first_models import STATEMENTS_FOLDER
from veilsum.roles.federation.folder import ORGANISER_FOLDER, LoadedFederation
from veilsum.roles.federation.private_files import make_private_folder
from veilsum.roles.federation.signed_roster import ROSTER_FILE
from veilsum.roles.launch.children import LOGS_FOLDER
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.context import EARLIER_RUN_FOLDER, STATE_FOLDER, state_folder

FORGOTTEN = f"{EARLIER_RUN_FOLDER}.forgotten"
NOT_BEGUN = "not-begun"
_LOCK = "lock"
_COPIED = (STATEMENTS_FOLDER, MODEL_FILE, ROSTER_FILE)


@dataclass
class EarlierRun:
    """What `veilsum launch --fresh` may still have to give back in a federation's folder."""

    federation: Path
    _lock: int | None = field(default=None, repr=False)
    is_aside: bool = False

    def tidy(self) -> None:
        """Put back what a launch that was killed had set aside, unless that launch goes on."""
        shutil.rmtree(self.federation / FORGOTTEN, ignore_errors=True)
        if self._aside.exists():
            self._hold()
            self.put_back()

    def set_aside(self, loaded: LoadedFederation) -> None:
        """Take the run away, and remember what another chain would replace; refused while a process lives in it."""
        if not self._state.exists():
            return
        for who in (SERVER, *loaded.roster.participants):
            one = StateFolder(state_folder(self.federation, who), who, loaded.config.agreed_digest)
            one.acquire()
            one.release()
        make_private_folder(self._aside)
        self._hold()
        self.is_aside = True
        for name in _COPIED if loaded.roster.anchor is not None else ():
            _copy(self.federation / name, self._aside / name)
        try:
            if self._logs.exists():
                self._logs.rename(self._aside / LOGS_FOLDER)
            self._state.rename(self._aside / STATE_FOLDER)
        except OSError as error:
            self.put_back()
            raise ParameterError(
                [f"{self._state} cannot be set aside for a fresh run ({error.strerror}): empty it yourself"]
            ) from error

    def put_back(self) -> None:
        """The fresh run has not begun: all is as it was, but for what the start had to say."""
        if (self._aside / STATE_FOLDER).exists():
            if (self._aside / ROSTER_FILE).exists():
                go_back_to_chain(self.federation, self.federation / ORGANISER_FOLDER, self._aside)
            self._put_logs_back()
            shutil.rmtree(self._state, ignore_errors=True)
            (self._aside / STATE_FOLDER).rename(self._state)
        else:
            self._put_logs_back()
        self._remove()

    def forget(self) -> None:
        """The fresh run has begun."""
        if self.is_aside:
            self._remove()

    @property
    def _aside(self) -> Path:
        return self.federation / EARLIER_RUN_FOLDER

    @property
    def _state(self) -> Path:
        return self.federation / STATE_FOLDER

    @property
    def _logs(self) -> Path:
        return self.federation / LOGS_FOLDER

    def _put_logs_back(self) -> None:
        kept = self._aside / LOGS_FOLDER
        if not kept.exists():
            return
        if self._logs.exists():
            shutil.rmtree(kept / NOT_BEGUN, ignore_errors=True)
            self._logs.rename(kept / NOT_BEGUN)
        kept.rename(self._logs)

    def _hold(self) -> None:
        """One launch at a time may decide what becomes of it; a lock ends with its process."""
        descriptor = os.open(self._aside / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise ParameterError(
                [f"{self.federation}: another veilsum launch begins a fresh run there: stop it first"]
            ) from None
        self._lock = descriptor

    def _remove(self) -> None:
        """Renamed first: a folder that is half removed must not be taken for one to put back."""
        forgotten = self.federation / FORGOTTEN
        shutil.rmtree(forgotten, ignore_errors=True)
        self._aside.rename(forgotten)
        shutil.rmtree(forgotten, ignore_errors=True)
        self.is_aside = False
        self.let_go()

    def let_go(self) -> None:
        """Leave it to the next launch what becomes of it, as the end of the process does."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    elif source.exists():
        shutil.copy2(source, target)
