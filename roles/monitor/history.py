"""What became of a run so far, put together from the facts that its processes log.

`veilsum launch` hears the facts as they are told, `veilsum page` reads them from the files, of a run that goes on or is
over. Whoever wrote a log decides what stands in it: every value is checked, and what does not fit is as if it had not
been said. What is kept is bounded, however long the logs are: by numbers of rounds, processes and texts, and by the
size of what rounds were told in detail. Of more the oldest rounds keep counts and means alone.

A run that goes on from a checkpoint tells how many rounds it has; later ones that an earlier run had told are gone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

from veilsum.protocol.identifiers import SERVER

MOST_ROUNDS = 5000
MOST_TEXTS = 200
MOST_EACH = 20
"""So many failures of one round, and so many words about one party, are kept."""
MOST_PARTIES = 20_000
MOST_BYTES = 128 << 20
"""So much of names, figures and failures is kept in all rounds together."""
_MOST_METRICS = 20
_LONGEST_TEXT = 500
_LONGEST_NAME = 64
"""Of a metric, a hash or a time."""
_ENTRY, _REFERENCE = 150, 8
"""Bytes of a figure or a text beside its characters, about, and of a name that is kept anyway."""
_LARGEST = 2**53
_LARGEST_FIGURE = 1e40
"""More than any float32; what is near the end of the floats cannot be drawn."""


class RunState(StrEnum):
    """How the run stands, as its processes told last."""

    UNHEARD = "not heard of yet"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass
class RoundSoFar:
    """One round, counted from 1; it is committed once it is known how many members it has."""

    number: int
    attempt: int = 1
    members: tuple[str, ...] = ()
    """Nobody where only their count was kept."""
    count: int = 0
    committed_at: str = ""
    model_sha256: str = ""
    losses: dict[str, float] = field(default_factory=dict)
    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    """Party -> how good it found the model of this round."""
    traffic: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Party -> bytes sent and received in this round."""
    told_loss: float | None = None
    failures: list[str] = field(default_factory=list)
    size: int = 0
    """Bytes of what is to be forgotten first, about."""

    @property
    def committed(self) -> bool:
        return self.count > 0

    def condense(self) -> None:
        """Keep what all together said, and of no party what it said."""
        metrics, traffic = dict(islice(self.metrics.items(), _MOST_METRICS)), self.mean_traffic()
        self.told_loss, self.losses = self.loss, {}
        self.measured = {"": metrics} if metrics else {}
        self.traffic = {"": (round(traffic[0]), round(traffic[1]))} if traffic is not None else {}
        self.members, self.failures, self.size = (), [], 0

    @property
    def loss(self) -> float | None:
        """The training loss that the scheme found out, else the mean of what the parties told, each counted once."""
        if self.told_loss is not None:
            return self.told_loss
        counted = set(self.members or self.losses)
        told = [loss for name, loss in self.losses.items() if name in counted]
        return sum(told) / len(told) if told else None

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of what was measured: of one model, on one test set or on the parties' own ones."""
        told = list(self.measured.values())
        names = dict.fromkeys(name for metrics in told for name in metrics)
        found = {name: [metrics[name] for metrics in told if name in metrics] for name in names}
        return {name: sum(values) / len(values) for name, values in found.items()}

    def mean_traffic(self) -> tuple[float, float] | None:
        """Bytes that one party sent and received on average."""
        told = [both for name, both in self.traffic.items() if name != SERVER]
        if not told:
            return None
        return sum(sent for sent, _ in told) / len(told), sum(received for _, received in told) / len(told)


@dataclass
class PartySoFar:
    """One process: where it is, and what it said last."""

    name: str
    round: int = 0
    doing: str = ""
    heard_at: str = ""
    loss: float | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    refused: int = 0
    ending: str = ""


@dataclass
class RunHistory:
    """All that the logs told, newest last."""

    state: RunState = RunState.UNHEARD
    detail: str = ""
    wanted: int = 0
    """How many rounds the run is to have, as a process told."""
    rounds: dict[int, RoundSoFar] = field(default_factory=dict)
    parties: dict[str, PartySoFar] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """What was warned of -> who said so."""
    named: dict[str, list[str]] = field(default_factory=dict)
    """Party -> what others say it did."""
    heard_at: str = ""
    _warned_at: dict[str, str] = field(default_factory=dict)
    _ended_at: str = ""
    _size: int = 0

    def take_all(self, told: Iterable[tuple[str, Mapping[str, Any]]]) -> bool:
        """Facts with whose log they stand in; whether there were any."""
        new = False
        for writer, fact in told:
            self.take(fact, writer)
            new = True
        return new

    def take(self, fact: Mapping[str, Any], writer: str = "") -> None:
        """One fact of a process; `writer` is whose log it stands in, where that is known."""
        what, name = fact.get("fact"), writer or _text(fact.get("party"))
        if not isinstance(what, str) or not name or not self._knows(name):
            return
        party = self.parties.setdefault(name, PartySoFar(name))
        party.heard_at = _name(fact.get("at")) or party.heard_at
        self.heard_at = max(self.heard_at, party.heard_at)
        take = getattr(self, f"_take_{what}", None)
        if take is not None:
            take(party, fact)

    def committed(self) -> list[RoundSoFar]:
        """The committed rounds in order."""
        return [one for _, one in sorted(self.rounds.items()) if one.committed]

    def newest_metrics(self) -> RoundSoFar | None:
        return next((one for _, one in sorted(self.rounds.items(), reverse=True) if one.metrics), None)

    def round_of(self, fact: Mapping[str, Any]) -> RoundSoFar | None:
        """What is known of the round that a fact names."""
        return self.rounds.get(_whole(fact.get("round")) or 0)

    # What each fact changes.

    def _take_started(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        done, wanted = _whole(fact.get("rounds_done")), _whole(fact.get("rounds"))
        party.doing, party.ending = "started", ""
        party.sent_bytes = party.received_bytes = party.refused = 0
        if done is None or not self._speaks_for_all(party):
            return
        self.wanted = wanted or self.wanted
        for number in [number for number in self.rounds if number > done]:
            self._forget(number)
        self.state, self.detail = RunState.RUNNING, ""
        self._forget_warnings()
        if done == 0:
            self.named = {}

    def _forget_warnings(self) -> None:
        """Those of a run that ended: parties warn of how they begin before the server says that it started."""
        old = [text for text, at in self._warned_at.items() if at <= self._ended_at]
        for text in old:
            del self.warnings[text], self._warned_at[text]

    def _take_round_began(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        one = self._round(fact)
        if one is not None:
            party.round, party.doing = one.number, "in a round"

    def _take_trained(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        one, loss = self._round(fact), _number(fact.get("loss"))
        if one is not None:
            party.round, party.doing = one.number, "trained"
            if loss is not None:
                new = party.name not in one.losses
                party.loss = one.losses[party.name] = loss
                self._count(one, _ENTRY * new)

    def _take_round_committed(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        one = self._round(fact)
        if one is None:
            return
        party.round, party.doing = one.number, "committed"
        one.model_sha256 = one.model_sha256 or _name(fact.get("model_sha256"))
        members = tuple(map(self._known, _names(fact.get("members"))))
        if members and (self._speaks_for_all(party) or not one.committed):
            one.members, one.count, one.committed_at = members, len(members), _name(fact.get("at"))
            one.attempt = _whole(fact.get("attempt")) or one.attempt
            one.told_loss = _number(fact.get("loss"))
            unknown = (name for name in members if name not in self.parties)
            self._count(one, _REFERENCE * len(members) + _size_of(unknown))

    def _take_measured(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        one, metrics = self._round(fact), fact.get("metrics")
        if one is not None and isinstance(metrics, dict):
            told = {_name(name): _number(value) for name, value in islice(metrics.items(), _MOST_METRICS)}
            one.model_sha256 = one.model_sha256 or _name(fact.get("model_sha256"))
            if known := {name: value for name, value in told.items() if value is not None}:
                one.measured[party.name] = known
                self._count(one, _ENTRY + _size_of(known))

    def _take_traffic(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        sent, received = _whole(fact.get("sent_bytes")), _whole(fact.get("received_bytes"))
        done = _whole(fact.get("rounds_done"))
        if sent is None or received is None:
            return
        more = max(0, sent - party.sent_bytes), max(0, received - party.received_bytes)
        party.sent_bytes, party.received_bytes = sent, received
        if done in self.rounds:
            one = self.rounds[done]
            new, known = party.name not in one.traffic, one.traffic.get(party.name, (0, 0))
            one.traffic[party.name] = (known[0] + more[0], known[1] + more[1])
            self._count(one, _ENTRY * new)

    def _take_round_failed(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        one = self._round(fact)
        if one is not None and self._speaks_for_all(party) and len(one.failures) < MOST_EACH:
            one.failures.append(_why(fact))
            self._count(one, _size_of(one.failures[-1:]))

    def _take_run_finished(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        party.doing = party.ending = "finished"
        self._end(party, fact, RunState.FINISHED)

    def _take_run_failed(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        party.doing, party.ending = "failed", _why(fact)
        self._end(party, fact, RunState.FAILED, party.ending)

    def _take_stopped(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        party.doing = party.ending = "stopped"
        if self.state is RunState.RUNNING:
            self._end(party, fact, RunState.STOPPED)

    def _end(self, party: PartySoFar, fact: Mapping[str, Any], state: RunState, why: str = "") -> None:
        if self._speaks_for_all(party):
            self.state, self.detail = state, why
            self._ended_at = _text(fact.get("at")) or self.heard_at

    def _take_warning(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        text = _text(fact.get("text"))
        _note(self.warnings, text, party.name)
        if text in self.warnings:
            self._warned_at[text] = _text(fact.get("at"))

    def _take_party_named(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        words = (_text(fact.get("reason")), _text(fact.get("detail")))
        told = f"{party.name}: {', '.join(word for word in words if word)}"
        _note(self.named, _text(fact.get("named")), told, MOST_EACH)

    def _take_refused(self, party: PartySoFar, fact: Mapping[str, Any]) -> None:
        party.refused = min(_LARGEST, party.refused + (_whole(fact.get("count")) or 1))

    def _speaks_for_all(self, party: PartySoFar) -> bool:
        """The server says how the run stands; where only parties' logs are at hand, they do."""
        return party.name == SERVER or SERVER not in self.parties

    def _knows(self, name: str) -> bool:
        return name in self.parties or len(self.parties) < MOST_PARTIES

    def _known(self, name: str) -> str:
        """The name as we have it already, so that rounds share it."""
        return self.parties[name].name if name in self.parties else name

    def _round(self, fact: Mapping[str, Any]) -> RoundSoFar | None:
        """The round that a fact names; of too many the oldest is forgotten."""
        number = _whole(fact.get("round"))
        if not number:
            return None
        if number not in self.rounds and len(self.rounds) >= MOST_ROUNDS:
            oldest = min(self.rounds)
            if number < oldest:
                return None
            self._forget(oldest)
        return self.rounds.setdefault(number, RoundSoFar(number))

    def _forget(self, number: int) -> None:
        self._size -= self.rounds.pop(number).size

    def _count(self, one: RoundSoFar, size: int) -> None:
        """Add what a round was told; of too much the oldest rounds are condensed, some at once, as it takes a while."""
        one.size += size
        self._size += size
        if self._size <= MOST_BYTES:
            return
        for _, old in sorted(self.rounds.items()):
            self._size -= old.size
            old.condense()
            if self._size <= MOST_BYTES * 3 // 4:
                return


def metric_words(metrics: Mapping[str, float]) -> str:
    """Metrics as people read them; the loss among them is that on the test set."""
    return ", ".join(
        f"{'test loss' if name == 'loss' else name} {value:.4f}" for name, value in metrics.items()
    )


def _size_of(texts: Iterable[str]) -> int:
    return sum(_ENTRY + sys.getsizeof(text) for text in texts)


def _note(texts: dict[str, list[str]], text: str, who: str, most: int = MOST_TEXTS) -> None:
    if text and (text in texts or len(texts) < MOST_TEXTS):
        known = texts.setdefault(text, [])
        if who not in known and len(known) < most:
            known.append(who)


def _why(fact: Mapping[str, Any]) -> str:
    words: Iterator[str] = (_text(fact.get(key)) for key in ("reason", "culprit", "detail"))
    return "; ".join(word for word in words if word)


def _text(value: object) -> str:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _name(value: object) -> str:
    return value[:_LONGEST_NAME] if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _LARGEST else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) <= _LARGEST_FIGURE else None


def _names(value: object) -> tuple[str, ...]:
    return tuple(_text(one) for one in value[:MOST_PARTIES]) if isinstance(value, list) else ()
