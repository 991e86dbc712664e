"""The run before a fresh one: set aside while that begins, back in its place if it cannot, gone once it has.

    FOLDER/launch.lock                  held by whoever launches here, from its first look to its end
           earlier-run/roster.json      and first models, as they were, where another chain begins
                       state/           all that every process knew, in one rename
                       logs/

Nothing is copied back over what still counts: `state` is moved last when it is set aside, and last when it is put back,
so whoever is killed on the way leaves one of both runs whole, and the next launch knows from what lies there which. A
run has begun with its first round; from then on it is the one that counts, and the folder is renamed before it is
removed. A launch that heard nothing of that, killed or stopped at the wrong moment, is told by the checkpoints: with a
round in one of them the fresh run counts. What a start that came to nothing had to say is in FOLDER/logs/not-begun.

Without the lock a second launch could take the state away from under processes that are about to move in. Processes
that are started one by one refuse to begin while a run lies aside (roles/process/disk/launch_lock.py), and whoever
still lives in a state keeps it from being removed.

A roster is never taken back, since every party refuses an older one: where another chain had been signed, the former
one is signed anew.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.federation.beginning import MODEL_FILE
from veilsum.roles.federation.enrolment import go_back_to_chain
from veilsum.roles.federation.first_models import STATEMENTS_FOLDER
from veilsum.roles.federation.folder import ORGANISER_FOLDER, LoadedFederation
from veilsum.roles.federation.private_files import make_private_folder
from veilsum.roles.federation.signed_roster import ROSTER_FILE
from veilsum.roles.launch.children import LOGS_FOLDER
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.context import STATE_FOLDER
from veilsum.roles.process.disk.launch_lock import EARLIER_RUN_FOLDER, hold

FORGOTTEN = f"{EARLIER_RUN_FOLDER}.forgotten"
NOT_BEGUN = "not-begun"
_COPIED = (STATEMENTS_FOLDER, MODEL_FILE, ROSTER_FILE)


@dataclass
class EarlierRun:
    """What `veilsum launch --fresh` may still have to give back in a federation's folder."""

    federation: Path
    _lock: int | None = field(default=None, repr=False)
    is_aside: bool = False

    def __enter__(self) -> Self:
        """Alone here from now on; what a launch that was killed had set aside is back."""
        self._lock = hold(self.federation)
        try:
            shutil.rmtree(self.federation / FORGOTTEN, ignore_errors=True)
            if self._aside.exists():
                self._put_back()
        except BaseException:
            self._let_go()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Whatever happens before the first round of a fresh run, the run before is there afterwards."""
        try:
            if self.is_aside:
                self._put_back()
        finally:
            self._let_go()

    def set_aside(self, loaded: LoadedFederation) -> None:
        """Take the run away, and remember what another chain would replace; refused while a process lives in it."""
        if not self._state.exists():
            return
        self._require_nobody_there()
        make_private_folder(self._aside)
        self.is_aside = True
        for name in _COPIED if loaded.roster.anchor is not None else ():
            _copy(self.federation / name, self._aside / name)
        try:
            if self._logs.exists():
                self._logs.rename(self._aside / LOGS_FOLDER)
            else:
                (self._aside / LOGS_FOLDER).mkdir(mode=0o700)
            self._state.rename(self._aside / STATE_FOLDER)
        except OSError as error:
            self._put_back()
            raise ParameterError(
                [
                    f"{self._state} cannot be set aside for a fresh run ({error.strerror}): move what it holds to "
                    "another place yourself"
                ]
            ) from error

    def _put_back(self) -> None:
        """All is as it was, but for what the start had to say; unless the fresh run has begun after all."""
        if (self._aside / STATE_FOLDER).exists():
            self._require_nobody_there()
            if any(one.most_rounds_told() > 0 for one in self._folders()):
                self._remove()
                return
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

    def _require_nobody_there(self) -> None:
        """Refuse to move or remove a state that a process lives in."""
        for one in self._folders():
            one.acquire()
            one.release()

    def _folders(self) -> list[StateFolder]:
        folders = self._state.iterdir() if self._state.exists() else ()
        return [StateFolder(one, PartyId(one.name), b"") for one in folders if one.is_dir()]

    def _remove(self) -> None:
        """Renamed first: a folder that is half removed must not be taken for one to put back."""
        forgotten = self.federation / FORGOTTEN
        shutil.rmtree(forgotten, ignore_errors=True)
        self._aside.rename(forgotten)
        shutil.rmtree(forgotten, ignore_errors=True)
        self.is_aside = False

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _copy(source: Path, target: Path) -> None:
    """A file, or a folder with all that is in it; one that cannot be copied is refused by name."""
    try:
        if source.is_dir():
            target.mkdir(mode=0o700, exist_ok=True)
            for one in source.iterdir():
                _copy(one, target / one.name)
        elif source.exists():
            shutil.copy2(source, target)
    except OSError as error:
        raise ParameterError(
            [
                f"{source} cannot be copied to {target} for a fresh run ({error.strerror or error}): make room there, "
                "or make it readable; the run before is as it was"
            ]
        ) from error
