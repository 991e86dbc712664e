"""`audit`: one attack on what one adversary really saw, asked for in Python and shown at a prompt and in a notebook.

    import veilsum

    veilsum.audit("plain", "idlg")                       # the server reads the images back
    veilsum.audit("masked", "idlg")                      # there is nothing but a sum to attack
    veilsum.audit("plain", "idlg", defence="dp:clip=1")  # what a defence is worth

The command `veilsum audit run` does the same, and reads recorded views, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.spelling import require_known
from veilsum.roles.pages.templates import page
from veilsum.simulations.audit.report.drawings import charts
from veilsum.simulations.audit.report.summary import Summary, summary_of
from veilsum.simulations.audit.report.verdicts import Verdict, verdicts, warnings
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import Row, table
from veilsum.simulations.audit.runner import Outcome, run_requests
from veilsum.simulations.audit.scales import find_scale

_MOST_VERDICTS = 3


@dataclass(frozen=True, repr=False)
class AuditResult:
    """What came of an attack: the figures of every row, and in words what they mean."""

    request: Request
    outcome: Outcome

    @property
    def rows(self) -> Sequence[Row]:
        """The attack, and beside it the undefended one, that on numbers without meaning, and that with the secret."""
        return self.outcome.rows

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """What holds and what leaks, a case each."""
        return verdicts(self.rows)

    @property
    def summary(self) -> Summary:
        """Three sentences: what was tried, what came out, what that means."""
        return summary_of(self.rows, self.request.task)

    @property
    def title(self) -> str:
        """The question that was asked."""
        asked = self.request
        defended = f" with {asked.defence}" if asked.defence else ""
        return f"audit: {asked.attack} on the view of {asked.adversary} under {asked.scheme}{defended}"

    def figures(self) -> dict[str, Any]:
        """Everything as plain values, as `--json` writes it."""
        return {"summary": self.summary.lines(), **self.outcome.figures()}

    def __repr__(self) -> str:
        found = [f"{one.case}: {one.word.upper()}. {one.reason}" for one in self.verdicts[:_MOST_VERDICTS]]
        return "\n".join((self.title, *found, *self.summary.lines()))

    def _repr_html_(self) -> str:
        """What a notebook shows: the sentences, charts and the table of figures."""
        shown = table(self.rows, self.title)
        return page(
            "audit_part.html",
            title=shown.title,
            summary=self.summary.lines(),
            verdicts=self.verdicts,
            charts=charts(self.rows),
            columns=shown.columns,
            rows=shown.rows,
            warnings=[*warnings(self.rows), *self.outcome.notes, *self.outcome.failed],
        )


def audit(
    scheme: str,
    attack: str,
    *,
    adversary: str = "server",
    defence: str = "",
    scale: str = "smoke",
    **settings: Any,
) -> AuditResult:
    """Play a small federation, take what one adversary saw of it, and attack that.

    `scale` says how much work it may be: smoke, quick or full. `settings` are further fields of a request, such as
    `task`, `images` (of a party), `parties`, `rounds` or `seed`. `veilsum audit list` shows schemes, adversaries and
    attacks; what does not fit together is refused with what does.
    """
    for name, given in (("scheme", scheme), ("attack", attack)):
        if not isinstance(given, str):
            raise ParameterError(
                [
                    f"{name} must be a name, not a {type(given).__name__}: audit plays a small federation of its own, "
                    'so write audit("masked", "idlg") or audit(config.scheme, "idlg"), and settings by their names'
                ]
            )
    require_known("audit", settings, [one.name for one in fields(Request)])
    request = Request(
        scheme=scheme,
        adversary=adversary,
        attack=attack,
        scale=find_scale(scale),
        defence=defence,
        **settings,
    )
    return AuditResult(request, run_requests([request]))
