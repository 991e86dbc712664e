"""A learner with defences, and the private state that its party must keep across restarts.

The state holds the key that everything private is drawn from, so whoever reads it can undo the defences:
store it like a private key, and never send it anywhere.

Implements specs/defences.md, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.config.user_code import making
from veilsum.roles.learning.defences.guard import Guard, Guards
from veilsum.roles.learning.defences.packing import pack, unpack
from veilsum.roles.learning.defences.parse import Defences
from veilsum.roles.learning.defences.private import PrivateKey
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner

_STATE_VERSION = 1


class DefendedLearner(TorchLearner):
    """A `TorchLearner` whose rounds pass through its party's defences."""

    def __init__(self, parts: LearnerParts, defences: Defences, entropy: RandomBytes) -> None:
        self._defences = defences
        self._key = PrivateKey.draw(entropy)
        super().__init__(parts, make_guards(defences, self._key))

    @property
    def guards(self) -> Mapping[str, Guard]:
        """The defences at work, by the names of the defences."""
        assert isinstance(self._guard, Guards)
        return self._guard.by_defence

    def notes(self, rounds: int) -> list[str]:
        """What the defences give in figures, for this party, after so many rounds."""
        return self._guard.notes(rounds)

    def account(self) -> list[str]:
        """What this party's updates so far have spent, in figures."""
        return self._guard.account()

    def state(self) -> bytes:
        """Everything private, to be kept by this party alone."""
        return pack(
            {
                "version": _STATE_VERSION,
                "defence": str(self._defences),
                "key": self._key.secret.reveal(),
                "guards": {name: guard.state() for name, guard in self.guards.items()},
            }
        )

    def restore(self, state: bytes) -> None:
        """Go on from what `state` gave; a state that does not fit is refused and changes nothing."""
        key, states = self._read(state)
        guards = make_guards(self._defences, key)
        self._attach(guards)
        for name, guard in guards.by_defence.items():
            guard.restore(states[name])
        self._key, self._guard = key, guards

    def _read(self, state: bytes) -> tuple[PrivateKey, dict[str, bytes]]:
        content = unpack(state, "the private state of a defence")
        try:
            version, defence = content["version"], content["defence"]
            key, states = PrivateKey(Secret(content["key"])), dict(content["guards"])
        except (ValueError, TypeError, KeyError) as error:
            raise LocalProtocolError(
                "this is not the private state of a defence: restore the party's own file"
            ) from error
        if version != _STATE_VERSION:
            raise LocalProtocolError(f"the private state is of version {version}, not {_STATE_VERSION}")
        if defence != str(self._defences):
            raise LocalProtocolError(
                f"the private state belongs to defence {defence!r}, not {str(self._defences)!r}: restore it with "
                "the defence it was made for, or start afresh"
            )
        if set(states) != set(self.guards):
            raise LocalProtocolError(f"the private state holds {sorted(states)}, not {sorted(self.guards)}")
        return key, states


def make_guards(defences: Defences, key: PrivateKey) -> Guards:
    """The defences at work: layers are rewired first, heads added next, noise and selection come last."""
    guards = {}
    for part in sorted(defences.parts, key=lambda part: part.reach):
        with making("defence", part.name, "correct its method guard(key)"):
            guards[part.name] = part.guard(key)
    return Guards(guards)
