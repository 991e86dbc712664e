"""What `veilsum launch` shows while it runs, and what it reports at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from shlex import quote
from types import TracebackType
from typing import Any, Self, TextIO

from veilsum.protocol.identifiers import SERVER
from veilsum.roles.broker.files import CARRIER
from veilsum.roles.cli.output import Table
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.launch.children import LOGS_FOLDER
from veilsum.roles.launch.earlier_run import NOT_BEGUN
from veilsum.roles.launch.outcome import BROKER, Outcome
from veilsum.roles.monitor.history import RunHistory, metric_words
from veilsum.transport.printable import printable

_TOLD = (
    "broker",
    "session_began",
    "round_committed",
    "round_failed",
    "run_failed",
    "run_finished",
    "warning",
    "measured",
)
_BY_ANY = ("run_failed", "warning", "measured")
"""What is shown whoever tells it; the rest is the server's and the broker's."""


class LiveView:
    """One line per fact that matters; on a terminal a table of all processes that is drawn again and again."""

    def __init__(self, config: FederationConfig, stream: TextIO | None = None) -> None:
        self._config = config
        self._stream = stream if stream is not None else sys.stderr
        self._rows: dict[str, tuple[str, str]] = {}
        self._warned: set[str] = set()
        self._history = RunHistory()
        self._live: Any = None

    def __enter__(self) -> Self:
        if self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=self._stream), refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def on_fact(self, fact: Mapping[str, Any]) -> None:
        party, what = str(fact.get("party", "?")), str(fact.get("fact", ""))
        self._history.take(fact)
        known = self._rows.get(party, ("", ""))[0]
        round_text = f"{fact['round']}/{self._config.rounds}" if "round" in fact else known
        self._rows[party] = (round_text, what.replace("_", " "))
        if self._live is not None:
            self._live.update(self._table())
        elif what in _TOLD and (party in (SERVER, BROKER) or what in _BY_ANY):
            self._say(party, what, fact)

    def _say(self, party: str, what: str, fact: Mapping[str, Any]) -> None:
        text = _line(what, fact, self._config.rounds, self._history)
        if what == "measured" and self._config.measures_own_tests:
            one = self._history.round_of(fact)
            if one is None or len(one.measured) < len(one.members or self._config.parties):
                return
            party, text = "all", f"{text}, mean of the parties, each on its own test samples"
        if what == "warning":
            if text in self._warned:
                return
            self._warned.add(text)
        # Whoever looked on may have gone, or the disk behind may be full: the run does not end over that.
        with contextlib.suppress(OSError):
            self._stream.write(printable(f"{party}: {text}") + "\n")
            self._stream.flush()

    def _table(self) -> Any:
        from rich.table import Table as LiveTable
        from rich.text import Text

        table = LiveTable("process", "round", "loss", "last heard", caption=self._newest())
        for party, (where, heard) in self._rows.items():
            known = self._history.parties.get(party)
            loss = "" if known is None or known.loss is None else f"{known.loss:.4f}"
            table.add_row(*(Text(printable(text)) for text in (party, where, loss, heard)))
        return table

    def _newest(self) -> str:
        """The last model that was measured, below the table."""
        best = self._history.newest_metrics()
        return "" if best is None else printable(f"after round {best.number}: {metric_words(best.metrics)}")


def _line(what: str, fact: Mapping[str, Any], rounds: int, history: RunHistory) -> str:
    match what:
        case "round_committed":
            members, known = len(fact.get("members", ())), history.round_of(fact)
            loss = "" if known is None or known.loss is None else f", loss {known.loss:.4f}"
            return f"round {fact.get('round')}/{rounds} committed by {members} parties{loss}"
        case "measured":
            measured = history.round_of(fact)
            return f"after round {fact.get('round')}: {metric_words(measured.metrics if measured else {})}"
        case "session_began":
            return f"session of {len(fact.get('members', ()))} parties"
        case "round_failed" | "run_failed":
            words = [str(fact[key]) for key in ("reason", "culprit", "detail") if fact.get(key)]
            return f"{what.replace('_', ' ')}: {'; '.join(words)}"
        case "run_finished":
            return f"finished after {fact.get('rounds')} rounds"
    return str(fact.get("text", what))


def figures_of(outcome: Outcome, model_sha256: str | None, metrics: Mapping[str, float]) -> dict[str, Any]:
    """The same keys as the JSON of `veilsum simulate`, as far as processes can know them."""
    config = outcome.loaded.config
    failed = next(iter(outcome.facts("run_failed", SERVER)), None)
    best = next(iter(metrics.items()), (None, None))
    commits, history = list(outcome.facts("round_committed", SERVER)), history_of(outcome)
    cause = outcome.cause
    return {
        "scheme": config.scheme,
        "parties": len(config.parties),
        "rounds": [
            {key: fact.get(key) for key in ("round", "attempt", "members")}
            | _hash_of(outcome, fact)
            | _seen_in(history, fact["round"])
            for fact in commits
        ],
        "task": config.task,
        "seed": config.seed,
        "metric_name": best[0],
        "metric": best[1],
        "model_sha256": model_sha256,
        "attempts": len(commits) + len(list(outcome.facts("round_failed", SERVER))),
        "sessions": len(list(outcome.facts("session_began", SERVER))),
        "aborted": outcome.failed,
        "abort_reason": failed.get("reason") if failed else None,
        "abort_detail": failed.get("detail") if failed else None,
        "interrupted": outcome.interrupted and not outcome.complete,
        "cause": None if cause is None else {"party": cause.party, "detail": cause.why},
        "lost": [one.party for one in outcome.lost],
        "refused_messages": sum(int(fact.get("count", 1)) for fact in outcome.facts("refused")),
        "warnings": list(dict.fromkeys(str(fact.get("text")) for fact in outcome.facts("warning"))),
        "wall_s": outcome.wall_s,
    }


def history_of(outcome: Outcome) -> RunHistory:
    """All facts of all processes, in the order in which they were told."""
    told = [(name, fact) for name, child in outcome.children.items() for fact in child.facts]
    history = RunHistory()
    for name, fact in sorted(told, key=lambda one: str(one[1].get("at", ""))):
        history.take(fact, name)
    return history


def _seen_in(history: RunHistory, number: int) -> dict[str, Any]:
    known = history.rounds.get(number)
    return {"loss": known and known.loss, "metrics": known.metrics if known is not None else {}}


def _hash_of(outcome: Outcome, commit: Mapping[str, Any]) -> dict[str, Any]:
    """The model after a round, as whoever holds it has told."""
    told = (
        fact.get("model_sha256")
        for fact in outcome.facts("round_committed")
        if fact.get("round") == commit.get("round")
    )
    return {"model_sha256": next((one for one in told if one), None)}


def describe(outcome: Outcome, figures: Mapping[str, Any], *, kept: bool = False) -> str:
    """The summary for people; `kept` says that the run before is as it was, since a fresh one did not begin."""
    rows = [
        (
            str(one["round"]),
            str(len(one["members"])),
            str(one["attempt"]),
            "-" if one["loss"] is None else f"{one['loss']:.4f}",
            "-" if not one["metrics"] else f"{next(iter(one['metrics'].values())):.4f}",
            (one["model_sha256"] or "-")[:16],
        )
        for one in figures["rounds"]
    ]
    title = f"{figures['scheme']}, {figures['parties']} parties, task {figures['task']}, over {CARRIER}"
    lines = [
        Table(title, ("round", "parties", "attempt", "loss", "metric", "model"), rows).render()
        if rows
        else f"{title}\n"
    ]
    if figures["metric"] is not None:
        lines.append(f"final test {figures['metric_name']} {figures['metric']:.4f}")
        if outcome.loaded.config.measures_own_tests:
            lines.append(
                "metric        of a round: mean of the parties' own test sets; final: on all of them"
            )
    if figures["model_sha256"]:
        lines.append(f"model         sha256 {figures['model_sha256'][:16]}")
    lines.append(
        f"attempts      {figures['attempts']}, sessions {figures['sessions']}, {figures['wall_s']:.1f} s"
    )
    lines += [printable(f"lost          {one}") for one in outcome.lost if not outcome.refused]
    logs = outcome.loaded.folder / LOGS_FOLDER
    lines.append(f"logs          {logs / NOT_BEGUN if kept else logs}")
    if kept:
        lines.append("earlier run   as it was: the fresh one did not begin")
    if (outcome.failed or outcome.interrupted) and outcome.rounds_done and not outcome.complete:
        lines.append(f"to go on      veilsum launch {quote(str(outcome.loaded.folder))} --resume")
    return "\n".join([*lines, *_last_words(outcome, figures)]) + "\n"


def _last_words(outcome: Outcome, figures: Mapping[str, Any]) -> Iterator[str]:
    """How it ended, if not as it should: the cause comes last, because that is what people read first."""
    cause = outcome.cause
    if cause is None:
        if outcome.interrupted and not outcome.complete:
            wanted, done = outcome.loaded.config.rounds, outcome.rounds_done
            yield (
                f"stopped after {done} of {wanted} rounds" if done else "stopped before a round was committed"
            )
        return
    server = SERVER if figures["abort_reason"] else ""
    if server and cause.party != server:
        detail = f": {figures['abort_detail']}" if figures["abort_detail"] else ""
        yield printable(f"then          {server}: {figures['abort_reason']}{detail}")
    before = "no round was begun" if cause.party in outcome.refused else "the run failed"
    yield printable(f"{before}: {cause}")
