"""What became of a launched federation: whether it failed, who was lost on the way, and what came first.

Many processes end together, and each has its own words for it: when a party is killed, the server says that too few are
left, and the others that the server is gone. The cause is what came first. What came before the last committed round
was survived, so it is no cause; what came after a failure of the server is its consequence. Facts carry the time,
all by the clock of this machine.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from veilsum.protocol.identifiers import SERVER
from veilsum.roles.cli.exit_codes import EXIT_BAD_REQUEST, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.launch.children import Child
from veilsum.roles.launch.nursery import NurseryLost

BROKER = "broker"
AFTER_END_S = 20.0
"""How long parties may take to end after the server, and the server after too many parties, have ended."""


@dataclass(frozen=True)
class End:
    """When and why a process ended that did not finish: in its own words, if it had any."""

    party: str
    at: str
    why: str

    def __str__(self) -> str:
        return f"{self.party}: {self.why}"


@dataclass(repr=False)
class Outcome:
    """What became of a launched federation."""

    loaded: LoadedFederation
    children: Mapping[str, Child]
    wall_s: float
    interrupted: bool = False
    refused: Sequence[str] = ()
    """Who ended before the first round began, and so ended the launch."""
    missing: Sequence[str] = ()
    """Who ended before the server was started, which was allowed."""
    nursery_lost: bool = False
    rounds_kept: int = 0
    """How many rounds the newest model on disk has, where somebody has looked."""

    def __repr__(self) -> str:
        """How far it came, who was lost, and what came first of what went wrong."""
        config = self.loaded.config
        lines = [
            f"launch: {config.scheme}, {len(config.parties)} parties, task {config.task}",
            f"rounds        {self.rounds_done} of {config.rounds}, {self.wall_s:.1f} s, exit code {self.exit_code}",
        ]
        if self.interrupted:
            lines.append("interrupted")
        if self.lost:
            lines.append(f"lost          {', '.join(one.party for one in self.lost)}")
        if self.cause is not None:
            lines.append(f"cause         {self.cause}")
        return "\n".join(lines)

    @property
    def server(self) -> Child | None:
        """None where the launch ended before it was started."""
        return self.children.get(SERVER)

    @property
    def participants(self) -> Mapping[str, Child]:
        return {name: child for name, child in self.children.items() if name not in (SERVER, BROKER)}

    @property
    def rounds_done(self) -> int:
        """How many rounds the run has, those included that it had when it went on."""
        told = [fact.get("rounds_done") for what in ("started", "stopped") for fact in self.facts(what)]
        told += [fact.get("round") for fact in self.facts("round_committed", SERVER)]
        return max([self.rounds_kept, *(one for one in told if isinstance(one, int))])

    @property
    def complete(self) -> bool:
        """Whether all rounds are committed, whatever came after the last."""
        rounds = self.loaded.config.rounds
        committed = (one["round"] for one in self.facts("round_committed", SERVER))
        return self.server is not None and (self.server.finished or any(one >= rounds for one in committed))

    @property
    def failed(self) -> bool:
        """Whether the run came to an end that nobody asked for: all rounds that nobody has are none."""
        if self.complete:
            return len(self.lost) == len(self.participants) > 0
        return not self.interrupted

    @property
    def exit_code(self) -> int:
        if not self.failed:
            return EXIT_OK if self.complete else EXIT_INTERRUPTED
        deciding = [self.children[name] for name in self.refused or (SERVER,) if name in self.children]
        wrong_request = any(child.code == EXIT_BAD_REQUEST for child in deciding)
        return EXIT_BAD_REQUEST if wrong_request else EXIT_FAILED

    @property
    def lost(self) -> Sequence[End]:
        """The parties that did not come to the end of the run though it went on, in the order of their ends."""
        if self.nursery_lost:
            return []
        ends = [self._end(child) for child in self.participants.values() if self._is_lost(child)]
        stopped_at = self._end(self.server).at if self.server and not self.complete else ""
        return sorted((one for one in ends if not stopped_at or one.at <= stopped_at), key=_when)

    @property
    def cause(self) -> End | None:
        """What came first of all that a failure may have come from."""
        if not self.failed:
            return None
        if self.nursery_lost:
            return End("launch", "", str(NurseryLost()))
        commits = [str(one.get("at", "")) for one in self.facts("round_committed", SERVER)]
        suspects = [child for name, child in self.children.items() if name not in (BROKER, *self.missing)]
        ends = [self._end(child) for child in suspects if not child.finished and not child.told_to_stop]
        later = [one for one in ends if not commits or one.at >= max(commits)]
        return min(later or ends, key=_when, default=None)

    def facts(self, fact: str, who: str | None = None) -> Iterator[Mapping[str, Any]]:
        for name, child in self.children.items():
            if who is None or who == name:
                yield from (one for one in child.facts if one.get("fact") == fact)

    def _is_lost(self, child: Child) -> bool:
        """Whoever we had to stop after the server had finished is lost, too."""
        if child.finished:
            return False
        return not child.told_to_stop or (self.complete and not self.interrupted)

    def _end(self, child: Child) -> End:
        failure = child.failure
        at = child.ended_at if failure is None else str(failure.get("at", child.ended_at))
        return End(child.name, at, _why(child))


def _when(end: End) -> str:
    return end.at


def _why(child: Child) -> str:
    """Why a process ended: what it told last, or wrote last, or what the system says."""
    failure = child.failure
    if failure is not None:
        keys = ("detail",) if failure["fact"] == "start_failed" else ("reason", "culprit", "detail")
        said = [str(failure[key]) for key in keys if failure.get(key) and failure[key] != child.name]
        return "; ".join(said) or str(failure["fact"]).replace("_", " ")
    if child.told_to_stop:
        return f"had not ended {AFTER_END_S:g} s after the server"
    if child.code is not None and child.code < 0:
        return f"ended by {signal.Signals(-child.code).name}"
    return child.reason or f"ended with exit code {child.code}"
