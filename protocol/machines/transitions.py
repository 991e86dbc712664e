"""Transition tables: phase x trigger -> the phases it may lead to, as data.

A trigger is a message class, or a word for something that is not a message: `start`; `deadline`; `training` or other
`work` that is done; `loss` of a party; `comparison` of what others stated; `outcome` of a set-up or an attempt. What is
not in the table is an error: a message that arrives in a phase without an entry is refused with the sender's name, and
a machine that tries to move along a missing entry has a bug. The diagrams in specs/machines.md are drawn from the same
tables, so they cannot lie.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from veilsum.protocol.errors import AbortReason, LocalProtocolError, RemoteProtocolError
from veilsum.protocol.wire.messages import Message

Trigger: TypeAlias = type[Message] | str


class Phase(enum.Enum):
    """Base of every machine's phases; members are gerunds, their values appear in logs and diagrams."""


@dataclass(frozen=True)
class TransitionTable:
    """The phases of a machine and what moves it from one to another; what is not listed is refused."""

    name: str
    initial: Phase
    moves: Mapping[tuple[Phase, Trigger], tuple[Phase, ...]]

    def require_expected(self, phase: Phase, message: Message, sender: str) -> None:
        """Refuse, in its sender's name, a message that this phase does not know."""
        if (phase, type(message)) not in self.moves:
            raise RemoteProtocolError(
                sender, AbortReason.UNEXPECTED_MESSAGE, f"{type(message).__name__} while {phase.value}"
            )

    def require_move(self, phase: Phase, trigger: Trigger, target: Phase) -> None:
        """Refuse, as our own mistake, a move that the table does not have."""
        if target not in self.moves.get((phase, trigger), ()):
            raise LocalProtocolError(
                f"{self.name}: no move from {phase.value} to {target.value} on {name_of(trigger)}"
            )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """All phases, in the order of the table."""
        seen = dict.fromkeys([self.initial])
        for (phase, _), targets in self.moves.items():
            seen.update(dict.fromkeys((phase, *targets)))
        return tuple(seen)

    @property
    def messages(self) -> tuple[type[Message], ...]:
        """The kinds of messages that the machine takes."""
        return tuple(dict.fromkeys(trigger for _, trigger in self.moves if not isinstance(trigger, str)))

    def diagram(self) -> str:
        """A mermaid state diagram. Its names cannot hold a hyphen, so phases with one get an alias."""
        lines = ["stateDiagram-v2"]
        lines += [f'    state "{one.value}" as {_alias(one)}' for one in self.phases if "-" in one.value]
        lines.append(f"    [*] --> {_alias(self.initial)}")
        for phase, target, triggers in self._arrows():
            lines.append(f"    {_alias(phase)} --> {_alias(target)}: {', '.join(triggers)}")
        sources = {phase for phase, _ in self.moves}
        lines += [f"    {_alias(phase)} --> [*]" for phase in self.phases if phase not in sources]
        return "\n".join(lines)

    def _arrows(self) -> Iterable[tuple[Phase, Phase, list[str]]]:
        arrows: dict[tuple[Phase, Phase], list[str]] = {}
        for (phase, trigger), targets in self.moves.items():
            for target in targets:
                arrows.setdefault((phase, target), []).append(name_of(trigger))
        return ((phase, target, triggers) for (phase, target), triggers in arrows.items())


def name_of(trigger: Trigger) -> str:
    return trigger if isinstance(trigger, str) else trigger.__name__


def _alias(phase: Phase) -> str:
    return str(phase.value).replace("-", "_")
