"""The rounds of a run as `veilsum status` shows them, where the logs of its processes are: loss and metric of each."""

from __future__ import annotations

from typing import Any

from veilsum.protocol.identifiers import SERVER
from veilsum.roles.cli.output import Table
from veilsum.roles.monitor.history import RoundSoFar, RunHistory, metric_words

MOST_SHOWN = 8


def rounds_table(history: RunHistory) -> str:
    """The newest rounds; nothing where no log tells of any."""
    rounds = history.committed()
    if not rounds:
        return ""
    rows = [
        (str(one.number), str(one.count), _figure(one.loss), metric_words(one.metrics))
        for one in rounds[-MOST_SHOWN:]
    ]
    left_out = len(rounds) - len(rows)
    title = "rounds, from the logs" + (f"; {left_out} older ones are left out" if left_out else "")
    return "\n" + Table(title, ("round", "parties", "loss", "metric"), rows).render()


def rounds_figures(history: RunHistory) -> list[dict[str, Any]]:
    return [_figures(one) for one in history.committed()]


def _figures(one: RoundSoFar) -> dict[str, Any]:
    return {
        "round": one.number,
        "members": [name for name in one.members if name != SERVER] if one.members else None,
        "loss": one.loss,
        "metrics": one.metrics,
    }


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
