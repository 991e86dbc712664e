"""The page of a run: whole, as one file, and in the parts that a live page replaces."""

from __future__ import annotations

from veilsum import __version__
from veilsum.roles.pages.run_facts import Seen, facts_of
from veilsum.roles.pages.templates import page

PARTS = ("latest", "now", "charts", "parties", "rounds", "notes", "source")
"""Each is a template `run_NAME.html` and the element of the page with this id."""


def run_page(seen: Seen, *, live: bool = False) -> str:
    """The whole page; a live one asks its server for a script, any other needs nothing else."""
    return page("run.html", live=live, version=__version__, **facts_of(seen))


def run_parts(seen: Seen) -> dict[str, str]:
    facts = facts_of(seen)
    return {name: page(f"run_{name}.html", **facts) for name in PARTS}
