"""Check the models of specs/models/ with SPIN, and print one JSON document; `make model` does this.

    python tests/support/check_models.py [MODEL ...]

Each property of each model must hold in every state that can be reached, and each planted bug must be found, by the
property that it is planted against. The exit code is 1 if one does not, 2 if there is no SPIN.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parents[2] / "specs" / "models"
PROGRAMS = ("spin", "gcc")
LONGEST_S = 600
DEEPEST = 1_000_000

ASSERTED = "assertion violated"
STUCK = "invalid end state"
CIRCLE = "non-progress cycle"


@dataclass(frozen=True)
class Property:
    """What a model must never show, and how SPIN calls it when it does."""

    model: str
    never: str
    shown_as: str = ASSERTED


@dataclass(frozen=True)
class Run:
    """One property with the settings of the model; a planted bug is one of them, and must be found."""

    property: Property
    settings: tuple[str, ...] = ()
    bug: str = ""


@dataclass(frozen=True)
class Searched:
    """What SPIN's checker says at its end."""

    states: int
    depth: int
    violations: int
    shown_as: str
    complete: bool


SHARES = Property("survivors", "both share kinds for a target")
LISTS = Property("position", "two lists opened at a position with a common member")
CERTIFICATES = Property("votes", "two certificates at one position")
LEANING = Property("leaning", "a vote for what no honest party verified")
TAGS = Property("tags", "one tag key on two updates")
DEADLOCK = Property("attempt", "deadlock", STUCK)
ENDLESS = Property("attempt", "an attempt that does not end", CIRCLE)

PAIR = ("COLLUDERS=2",)
"""Four parties of a roster of six to eight, both tolerated colluders among them."""
CRASHES = ("CRASHES",)

RUNS = (
    Run(SHARES),
    Run(SHARES, PAIR),
    Run(SHARES, bug="BUG_ADOPTS_AGAIN"),
    Run(SHARES, bug="BUG_NO_PROOF"),
    Run(SHARES, bug="BUG_SIGNS_BEFORE_STORING"),
    Run(SHARES, PAIR, "BUG_TWO_THIRDS"),
    Run(LISTS),
    Run(LISTS, PAIR),
    Run(LISTS, CRASHES),
    Run(LISTS, bug="BUG_OWN_RECORDS"),
    Run(LISTS, bug="BUG_SIGNS_LATER"),
    Run(LISTS, bug="BUG_ONE_STATEMENT_FEWER"),
    Run(LISTS, bug="BUG_NOBODY_DENIES"),
    Run(LISTS, PAIR, "BUG_TWO_THIRDS"),
    Run(LISTS, CRASHES, "BUG_NO_QUORUM"),
    Run(CERTIFICATES),
    Run(CERTIFICATES, PAIR),
    Run(CERTIFICATES, bug="BUG_ANY_VOTERS"),
    Run(CERTIFICATES, bug="BUG_VOTES_BEFORE_STORING"),
    Run(CERTIFICATES, bug="BUG_FRESH_VOTES"),
    Run(CERTIFICATES, PAIR, "BUG_TWO_THIRDS"),
    Run(LEANING),
    Run(LEANING, PAIR),
    Run(LEANING, bug="BUG_LEANS_ON_COLLUDERS"),
    Run(TAGS),
    Run(TAGS, bug="BUG_KEY_WITHOUT_SESSION"),
    Run(TAGS, bug="BUG_WORDS_NOT_STORED"),
    Run(TAGS, bug="BUG_OLD_HELLO"),
    Run(DEADLOCK),
    Run(DEADLOCK, bug="BUG_NO_DEADLINE"),
    Run(ENDLESS),
    Run(ENDLESS, bug="BUG_RENEWED_DEADLINE"),
)


def search(run: Run) -> Searched:
    """Every state that the model can reach, up to the first violation."""
    names = (*run.settings, run.bug) if run.bug else run.settings
    model = MODELS / f"{run.property.model}.pml"
    circles = run.property.shown_as == CIRCLE
    with tempfile.TemporaryDirectory() as folder:
        _call(folder, "spin", "-a", *(f"-D{name}" for name in names), str(model))
        _call(folder, "gcc", "-O2", "-w", "-DNP" if circles else "-DSAFETY", "-o", "pan", "pan.c")
        said = _call(folder, "./pan", f"-m{DEEPEST}", *(["-l"] if circles else []))
    return Searched(
        states=int(float(_number(r"([\d.e+]+) states, stored", said))),
        depth=int(_number(r"depth reached (\d+)", said)),
        violations=int(_number(r"errors: (\d+)", said)),
        shown_as=next((kind for kind in (ASSERTED, STUCK, CIRCLE) if f": {kind}" in said), ""),
        complete="Search not completed" not in said and "too small" not in said,
    )


def _call(folder: str, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _number(pattern: str, said: str) -> str:
    found = re.search(pattern, said)
    if found is None:
        raise SystemExit(f"the checker does not say {pattern!r}:\n{said}")
    return found[1]


def check(models: tuple[str, ...] = ()) -> dict[str, Any]:
    """What was found of each property and of each planted bug, and whether all is as it must be."""
    properties, bugs = [], []
    for run in RUNS:
        if models and run.property.model not in models:
            continue
        found = search(run)
        entry = {"model": run.property.model, "never": run.property.never, "settings": list(run.settings)}
        if run.bug:
            seen = found.violations > 0 and found.shown_as == run.property.shown_as
            bugs.append({**entry, "bug": run.bug, "found": seen, "depth": found.depth})
        else:
            counted = {"states": found.states, "depth": found.depth, "violations": found.violations}
            properties.append({**entry, **counted, "complete": found.complete})
    held = all(one["violations"] == 0 and one["complete"] for one in properties)
    return {"ok": held and all(one["found"] for one in bugs), "properties": properties, "bugs": bugs}


def main(models: tuple[str, ...]) -> int:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    known = {run.property.model for run in RUNS}
    if missing or not known.issuperset(models):
        wanted = (
            f"the models are {', '.join(sorted(known))}" if not missing else "apt install spin gcc libc6-dev"
        )
        sys.stderr.write(f"nothing was checked: {', '.join(missing) or ' '.join(models)}; {wanted}\n")
        return 2
    found = check(models)
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    raise SystemExit(main(tuple(sys.argv[1:])))
