"""What the page of a run shows, made of what its logs tell and of what its processes state about themselves.

Statuses are newer than logs and there only while the processes run; logs know losses, metrics, reasons and the past.
Texts of others stay texts: everything but printable characters is escaped here, and markup by the templates.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from statistics import median
from typing import Any

from veilsum.protocol.identifiers import SERVER, shown_number
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.learning.contract import headline
from veilsum.roles.monitor.history import (
    MOST_TEXTS,
    PartySoFar,
    RoundSoFar,
    RunHistory,
    RunState,
    metric_words,
)
from veilsum.roles.monitor.status import Status
from veilsum.roles.monitor.watching import Board, late_parties, newest_measured, round_in_work
from veilsum.roles.pages.charts import SMALL, Chart, Points, curves
from veilsum.transport.printable import printable

MOST_ROWS = 500
"""So many rounds stand in the table, the newest first."""
MOST_POINTS = 400
_PACE_OF = 10
_SHORT_HASH = 12


@dataclass
class Seen:
    """All that is known of a run at one moment."""

    loaded: LoadedFederation
    history: RunHistory
    board: Board = field(default_factory=Board)
    fresh: frozenset[str] = frozenset()
    """Parties whose status was heard within the last seconds."""
    source: str = ""
    """Where this is known from, for people."""

    @property
    def rounds(self) -> list[RoundSoFar]:
        return self.history.committed()

    @property
    def wanted(self) -> int:
        server = self.board.statuses.get(SERVER)
        return self.history.wanted or (server.rounds if server is not None else self.loaded.config.rounds)

    @property
    def done(self) -> int:
        server = self.board.statuses.get(SERVER)
        known = max((one.number for one in self.rounds), default=0)
        return min(self.wanted, max(known, server.round if server is not None else 0))

    @property
    def running(self) -> bool:
        """Whether somebody was just heard; logs alone cannot tell a run that goes on from one that was killed."""
        return bool(self.fresh) and self.history.state not in (RunState.FINISHED, RunState.FAILED)


def facts_of(seen: Seen) -> dict[str, Any]:
    """Everything that the templates are filled with."""
    config = seen.loaded.config
    late = {name: why for name, why in late_parties(seen.loaded, seen.board).items() if seen.running}
    state, words, mood = _state(seen)
    rounds = seen.rounds
    seconds = _durations(rounds[-MOST_ROWS - 1 :])
    return {
        "title": printable(config.name),
        "about": f"{config.scheme} · {printable(config.task)} · {len(seen.loaded.roster.participants)} parties",
        "state": state,
        "state_words": words,
        "mood": mood,
        "latest": _latest(seen, state),
        "done": seen.done,
        "wanted": seen.wanted,
        "tiles": list(_tiles(seen, late, seconds)),
        "charts": _charts(seen),
        "parties": [_party(seen, name, late.get(name, "")) for name in _names(seen)],
        "rounds": [_round(seen, one, seconds.get(one.number)) for one in reversed(rounds[-MOST_ROWS:])],
        "rounds_left_out": max(0, len(rounds) - MOST_ROWS),
        "metric_name": _metric_name(seen) or "metric",
        "warnings": [(printable(text), _who(sorted(who))) for text, who in seen.history.warnings.items()],
        "named": [
            (printable(name), [printable(one) for one in why]) for name, why in seen.history.named.items()
        ],
        "failures": list(islice(_failures(seen), MOST_TEXTS)),
        "refused_statuses": seen.board.refused,
        "source": printable(seen.source),
        "heard_at": _clock_time(seen.history.heard_at),
    }


def _names(seen: Seen) -> tuple[str, ...]:
    return (SERVER, *seen.loaded.roster.participants)


def _state(seen: Seen) -> tuple[str, str, str]:
    """One word, what stands behind it, and how it is to be coloured."""
    history = seen.history
    if history.state is RunState.FAILED:
        return "failed", printable(history.detail), "bad"
    if history.state is RunState.FINISHED and seen.done >= seen.wanted:
        return "finished", "", "good"
    if seen.running:
        server = seen.board.statuses.get(SERVER)
        return "running", f"the server is {printable(server.phase)}" if server is not None else "", "good"
    if history.state is RunState.STOPPED:
        return "stopped", "veilsum launch --resume, or host and join, go on from the last round", "warn"
    if history.state is RunState.RUNNING:
        heard = _clock_time(history.heard_at)
        return "not heard now", f"last words at {heard}" if heard else "", "warn"
    return "waiting", "nothing has been heard of this run yet", "soft"


def _latest(seen: Seen, state: str) -> str:
    """One sentence for who does not see the page; it changes with rounds and state, not every second."""
    if not seen.done:
        return f"{state}: no round is committed yet"
    last, measured = seen.rounds[-1] if seen.rounds else None, _newest_metrics(seen)
    if last is not None and last.number == seen.done:
        told = f"{state}: round {last.number} of {seen.wanted} committed by {last.count} parties"
    else:
        told = f"{state}: {seen.done} of {seen.wanted} rounds committed"
    return (
        told
        if measured is None
        else f"{told}; after round {measured[0]}: {printable(metric_words(measured[1]))}"
    )


def _newest_metrics(seen: Seen) -> tuple[int, dict[str, float]] | None:
    logged, stated = seen.history.newest_metrics(), newest_measured(seen.board)
    if stated is not None and (logged is None or logged.number < stated.measured):
        return stated.measured, dict(stated.metrics)
    return None if logged is None else (logged.number, logged.metrics)


def _metric_name(seen: Seen) -> str:
    measured = _newest_metrics(seen)
    return "" if measured is None else printable(next(iter(measured[1]), ""))


def _tested(seen: Seen) -> str:
    """On what the model was measured."""
    return "parties' own test sets" if seen.loaded.config.measures_own_tests else "test set"


def _tiles(seen: Seen, late: dict[str, str], seconds: Mapping[int, float]) -> Iterator[tuple[str, str, str]]:
    """What is to be seen at once: its name, its figure, and what stands below."""
    rounds, measured = seen.rounds, _newest_metrics(seen)
    yield "rounds done", f"{seen.done} of {seen.wanted}", _pace(seen, seconds)
    if measured is not None:
        best = headline(measured[1])
        if best is not None:
            yield (
                printable(best[0]),
                f"{best[1]:.4f}",
                f"common model, {_tested(seen)}, after round {measured[0]}",
            )
    losses = [one for one in rounds if one.loss is not None]
    if losses and losses[-1].loss is not None:
        yield "training loss", f"{losses[-1].loss:.4f}", f"mean over parties, round {losses[-1].number}"
    sent = sum(_bytes(seen, name)[0] for name in seen.loaded.roster.participants)
    if sent:
        yield "sent by parties", _size(sent), f"{_size(sent / len(seen.loaded.roster.participants))} each"
    if seen.running:
        yield "late", str(len(late)), "nobody owes anything" if not late else _who(sorted(late))
    elif rounds:
        yield (
            "in the last round",
            str(rounds[-1].count),
            f"of {len(seen.loaded.roster.participants)} parties",
        )


def _pace(seen: Seen, seconds: Mapping[int, float]) -> str:
    spans = [one for one in seconds.values() if one >= 0][-_PACE_OF:]
    if not spans:
        return ""
    each = median(spans)
    left = (seen.wanted - seen.done) * each
    pace = f"{each:.1f} s a round"
    return f"{pace}, about {_span(left)} to go" if seen.running and left else pace


def _durations(rounds: list[RoundSoFar]) -> dict[int, float]:
    """Round -> seconds since the round before was committed."""
    times = {one.number: _moment(one.committed_at) for one in rounds}
    found = {}
    for number, at in times.items():
        before = times.get(number - 1)
        if at is not None and before is not None:
            found[number] = (at - before).total_seconds()
    return found


def _party(seen: Seen, name: str, late: str) -> dict[str, Any]:
    status, logged = seen.board.statuses.get(name), seen.history.parties.get(name, PartySoFar(name))
    live = status if name in seen.fresh and seen.running else None
    sent, received = _bytes(seen, name)
    return {
        "name": name,
        "round": _where(live) if live else (logged.round or "–"),
        "doing": printable(live.phase) if live else (logged.doing or "–"),
        "loss": "–" if logged.loss is None else f"{logged.loss:.4f}",
        "sent": _size(sent) if sent else "–",
        "received": _size(received) if received else "–",
        "refused": max(logged.refused, status.refused if status is not None else 0),
        "note": printable(late or (logged.ending if logged.ending not in ("", logged.doing) else "")),
        "late": bool(late),
    }


def _where(status: Status) -> str:
    again = f", attempt {shown_number(status.attempt)}" if status.attempt else ""
    return f"{round_in_work(status)}{again}"


def _bytes(seen: Seen, name: str) -> tuple[int, int]:
    status, logged = seen.board.statuses.get(name), seen.history.parties.get(name, PartySoFar(name))
    if status is None:
        return logged.sent_bytes, logged.received_bytes
    return max(status.sent_bytes, logged.sent_bytes), max(status.received_bytes, logged.received_bytes)


def _round(seen: Seen, one: RoundSoFar, seconds: float | None) -> dict[str, Any]:
    traffic, count = one.mean_traffic(), one.count
    best = headline(one.metrics)
    absent = sorted(set(seen.loaded.roster.participants) - set(one.members))
    return {
        "number": one.number,
        "members": _members(count, absent, named=bool(one.members)),
        "attempt": one.attempt,
        "loss": "–" if one.loss is None else f"{one.loss:.4f}",
        "metric": "–" if best is None else f"{best[1]:.4f}",
        "seconds": "–" if seconds is None else f"{seconds:.1f}",
        "sent": "–" if traffic is None else _size(traffic[0]),
        "received": "–" if traffic is None else _size(traffic[1]),
        "model": printable(one.model_sha256[:_SHORT_HASH]) or "–",
    }


def _members(count: int, absent: Sequence[str], *, named: bool) -> str:
    if not named:
        return str(count)
    return f"{count}, without {_who(absent)}" if absent else f"all {count}"


def _failures(seen: Seen) -> Iterator[tuple[int, str]]:
    for number, one in sorted(seen.history.rounds.items(), reverse=True):
        yield from ((number, printable(why)) for why in reversed(one.failures))


def thinned(rounds: list[RoundSoFar]) -> list[RoundSoFar]:
    """At most MOST_POINTS of the rounds, equally far apart, the newest among them."""
    apart = -(-len(rounds) // MOST_POINTS) or 1
    return rounds[::-1][::apart][::-1]


def _charts(seen: Seen) -> list[Chart]:
    """The curves that there are figures for; drawn again only when a figure changed."""
    rounds, drawn = thinned(seen.rounds), []
    name = _metric_name(seen)
    measured = tuple((one.number, one.metrics[name]) for one in rounds if name in one.metrics)
    if measured:
        drawn.append(_curve(f"{name} on the {_tested(seen)}", name, ((name, measured),)))
    trained = tuple((one.number, one.loss) for one in rounds if one.loss is not None)
    tested = tuple((one.number, one.metrics["loss"]) for one in rounds if "loss" in one.metrics)
    losses = (("training, mean over parties", trained), (_tested(seen), tested))
    if trained or tested:
        drawn.append(_curve("Loss", "loss", tuple(one for one in losses if one[1])))
    traffic = [(one.number, one.mean_traffic()) for one in rounds]
    sent = tuple((number, both[0] / 1024) for number, both in traffic if both is not None)
    received = tuple((number, both[1] / 1024) for number, both in traffic if both is not None)
    if sent:
        drawn.append(
            _curve("Traffic of one party per round", "KiB", (("sent", sent), ("received", received)))
        )
    return drawn


@lru_cache(maxsize=16)
def _curve(title: str, up: str, lines: tuple[tuple[str, Points], ...]) -> Chart:
    return curves(dict(lines), title=title, across="round", up=up, size=SMALL)


def _who(names: Sequence[str]) -> str:
    shown = ", ".join(printable(name) for name in names[:6])
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _moment(text: str) -> datetime.datetime | None:
    """A time as our clock shows it; none where the text names no zone, or a time that no calendar here has."""
    try:
        found = datetime.datetime.fromisoformat(text)
        return found.astimezone() if found.tzinfo is not None else None
    except (ValueError, OverflowError, OSError):
        return None


def _clock_time(text: str) -> str:
    found = _moment(text)
    return "" if found is None else found.strftime("%Y-%m-%d %H:%M:%S")
