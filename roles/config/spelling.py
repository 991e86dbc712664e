"""What somebody may have meant who wrote a name that does not exist.

Every refusal of an unknown name asks here, so that all names are compared alike. The names of arguments are names, too:
`named_arguments` makes a public function refuse one that it does not know as everything else is refused, and
`named_fields` a class; Python's own TypeError names none that was meant.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from veilsum.protocol.errors import ParameterError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=type[Any])

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


def require_known(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse arguments of names that there are not, with those that were meant."""
    known = tuple(known)
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ParameterError(
            [f"{where} takes no argument {name!r}: {which_then(name, known)}" for name in unknown]
        )


def named_arguments(function: Callable[Arguments, Result], name: str = "") -> Callable[Arguments, Result]:
    """The same function; an unknown keyword argument is a `ParameterError`. Signature and docstring stay."""
    known = [one.name for one in inspect.signature(function).parameters.values()][bool(name) :]

    @functools.wraps(function)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        require_known(name or function.__name__, kwargs, known)
        return function(*args, **kwargs)

    return called


def named_fields(cls: Class) -> Class:
    """The same class; an unknown keyword argument of its constructor is a `ParameterError`."""
    cls.__init__ = named_arguments(cls.__init__, cls.__name__)
    return cls
