"""HTML from templates that escape what they are given, every page complete in one file.

Names of parties, of tasks and of files come from other people. A template escapes them by itself; only a `Chart` of
`charts.py`, which escaped its own text, is taken as it is.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment() -> Environment:
    """The templates of this package. A name that a template misses is an error, never an empty place."""
    return Environment(
        loader=PackageLoader("veilsum.roles.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def page(template: str, **facts: object) -> str:
    """A page or a part of one: the template of this name, filled with these facts."""
    return environment().get_template(template).render(**facts)
