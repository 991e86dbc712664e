"""A defended learner whose private state is on disk before an update leaves the party.

Codes, private heads, noise keys and the account of what was spent must survive a restart: new codes would
weaken the training, and a second noise on the same update could be averaged with the first. So the state is
written after every round of training and before its result is handed on.

A party that begins anew alone has lost its checkpoints and not its data: the run is the same, and so are the samples
that the account is about. It keeps this file, if that can be read. Another run begins with new secrets and another
account, and says what the old one came to. Rejected: new secrets whenever a party forgets its rounds. The advice to
begin anew, which a damaged checkpoint calls for, would then have set the account to nought without a word.

Implements specs/defences.md, section 2.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.federation.private_files import read_private_file, replace_private_file
from veilsum.roles.learning.contract import FloatVector, Learner, LocalUpdate
from veilsum.roles.learning.factory import Defended

STATE_FILE = "defence.state"
_LARGEST_STATE = 1 << 30
"""Private heads are as large as the model's last layers, and an account grows with the rounds."""


class KeepingLearner:
    """A learner around a defended one: it implements `Learner` of roles/learning/contract.py.

    `fresh` says that its party forgets what it did, and `another_run` that all others do so, too.
    """

    def __init__(
        self, learner: Learner, file: Path, *, fresh: bool = False, another_run: bool = False
    ) -> None:
        if not isinstance(learner, Defended):
            raise LocalProtocolError("only a learner with a defence has a private state to keep")
        self._learner: Learner = learner
        self._defended: Defended = learner
        self._file = file
        self._said: list[str] = []
        if not file.exists():
            self._keep()
        elif fresh:
            self._begin_anew(another_run)
        else:
            learner.restore(read_private_file(file, _LARGEST_STATE))

    @property
    def inner(self) -> Learner:
        """The defended learner itself."""
        return self._learner

    def initial_model(self) -> FloatVector:
        return self._learner.initial_model()

    def train(self, model: FloatVector, round: int) -> LocalUpdate:
        update = self._learner.train(model, round)
        self._keep()
        return update

    def evaluate(self, model: FloatVector) -> dict[str, float]:
        return self._learner.evaluate(model)

    def notes(self, rounds: int) -> list[str]:
        """What became of the state of an earlier start, and what the defence gives in figures."""
        return [*self._said, *self._defended.notes(rounds)]

    def _begin_anew(self, another_run: bool) -> None:
        drawn, kept = self._defended.state(), read_private_file(self._file, _LARGEST_STATE)
        try:
            self._defended.restore(kept)
        except LocalProtocolError as refusal:
            aside = self._set_aside()
            self._said.append(
                f"{self._file} is not taken over ({refusal}): new secrets are drawn and a new account begins; the old "
                f"file is now {aside.name}, and what it had spent on the same data is to be added"
            )
            self._keep()
            return
        account = "; ".join(self._defended.account())
        if not another_run:
            spent = f"with {account}" if account else "with nothing spent"
            self._said.append(
                f"{self._file} is kept, {spent}: secrets and account go on; if this party's data are others now, stop "
                "it, move that file away, and start it again"
            )
            return
        if account:
            self._said.append(
                f"another run begins with new secrets and a new account: add what the old one had spent on the same "
                f"data, {account}"
            )
        self._defended.restore(drawn)
        self._keep()

    def _set_aside(self) -> Path:
        names = (self._file.with_name(f"{self._file.name}.{number}") for number in count(1))
        return self._file.rename(next(name for name in names if not name.exists()))

    def _keep(self) -> None:
        replace_private_file(self._file, self._defended.state())
