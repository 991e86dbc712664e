"""What somebody may have meant who wrote a name that does not exist.

Every refusal of an unknown name asks here, so that all names are compared alike.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LEAST_BEGINNING = 2
"""So many letters say which name was meant by its beginning."""
MOST_LISTED = 60


def near_names(word: str, known: Iterable[object], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """The known names that begin with the word or look like it, the nearest first, whatever their case."""
    plain = {_plain(str(name)): str(name) for name in known}
    word = _plain(word)
    longer = sorted(
        (name for name in plain if len(word) >= LEAST_BEGINNING and name.startswith(word)), key=len
    )
    similar = difflib.get_close_matches(word, plain, most, cutoff)
    return [plain[name] for name in dict.fromkeys([*longer, *similar])][:most]


def _plain(name: str) -> str:
    """Without what all options have in common, so that it makes no two of them alike."""
    return name.lower().lstrip("-")


def did_you_mean(word: str, known: Iterable[object]) -> str:
    """` (did you mean NAME?)`, to be put behind the word; nothing if no name looks like it."""
    near = near_names(word, known)
    return f" (did you mean {near[0]}?)" if near else ""


def which_then(word: str, known: Iterable[object], *, most: int = 1, cutoff: float = 0.6) -> str:
    """The remedy for an unknown name: the nearest ones, or all there are if these can be read."""
    known = tuple(known)
    near = near_names(word, known, most=most, cutoff=cutoff)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
    return f"choose one of {', '.join(map(str, known[:MOST_LISTED]))}{more}"
