"""A simulation as a page: curves of loss and metric, bytes, the table of rounds, and who saw what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from veilsum import __version__
from veilsum.roles.learning.contract import headline
from veilsum.roles.pages.charts import SMALL, Chart, curves
from veilsum.roles.pages.templates import page
from veilsum.simulations.run.refused import in_words
from veilsum.simulations.run.report import COLUMNS, rows, summary, title
from veilsum.simulations.run.result import SimulationFacts, what_was_seen


def simulation_page(result: SimulationFacts) -> str:
    """The whole run in one file that needs nothing else."""
    return page(
        "simulation.html",
        title=title(result),
        ended=_early_end(result),
        summary="\n".join(summary(result)),
        version=__version__,
        **_facts(result),
    )


def simulation_part(result: SimulationFacts) -> str:
    """The same for a notebook: curves and tables alone."""
    return page("simulation_part.html", **_facts(result))


def _facts(result: SimulationFacts) -> dict[str, Any]:
    return {
        "charts": list(_charts(result)),
        "columns": COLUMNS,
        "rows": rows(result),
        "saw": list(what_was_seen(result)),
        "warnings": result.recorder.warnings,
    }


def _early_end(result: SimulationFacts) -> str:
    if result.failed is not None:
        return f"aborted: {in_words(result.failed)}"
    wanted = result.federation.config.rounds
    return f"interrupted after {len(result.rounds)} of {wanted} rounds" if result.interrupted else ""


def _charts(result: SimulationFacts) -> Iterator[Chart]:
    losses = [(one.round, one.loss) for one in result.rounds if one.loss is not None]
    if losses:
        yield curves({"loss": losses}, title="Training loss per round", across="round", up="loss", size=SMALL)
    named = [(one.round, headline(one.metrics)) for one in result.rounds]
    measured = [(number, best[1]) for number, best in named if best is not None]
    if measured:
        name = next(best[0] for _, best in named if best is not None)
        yield curves(
            {name: measured}, title=f"{name} on the test set per round", across="round", up=name, size=SMALL
        )
    if result.rounds:
        sent = {
            "up": [(one.round, one.bytes_up / len(one.members)) for one in result.rounds],
            "down": [(one.round, one.bytes_down / len(one.members)) for one in result.rounds],
        }
        yield curves(sent, title="Bytes of one party per round", across="round", up="bytes", size=SMALL)
