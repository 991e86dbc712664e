"""What a refusal is held against: its type, its typed reason and culprit, and the names and figures it must mention.

Whole sentences are nobody's contract: an error may say the same thing better at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from veilsum.protocol.errors import AbortReason

Refused = TypeVar("Refused", bound=BaseException)


def mentions(said: str, name: str) -> bool:
    """Whether a text holds the name as a word of its own: 3 is not mentioned by 31, nor bob by bobby."""
    before = r"(?<!\w)" if re.match(r"\w", name) else ""
    after = r"(?!\w)" if re.search(r"\w$", name) else ""
    return re.search(before + re.escape(name) + after, said) is not None


def require_mentions(said: str, *names: object) -> None:
    """Hold a text against the names that it must mention: settings, parties, files, figures, commands' flags.

    A name is one word; a sentence is refused here.
    """
    wanted = [str(name) for name in names]
    assert wanted, "nothing to mention"
    assert not [name for name in wanted if len(name.split()) != 1], "names are single words"
    missing = [name for name in wanted if not mentions(said, name)]
    assert not missing, f"{said} does not mention {', '.join(missing)}"


@contextmanager
def refusal(
    kind: type[Refused],
    *names: object,
    reason: AbortReason | None = None,
    culprit: str | None = None,
    **typed: object,
) -> Iterator[pytest.ExceptionInfo[Refused]]:
    """Expect an error of the kind, for the reason, with the culprit and with each of the other typed attributes, whose
    text mentions each of the names, as `require_mentions` says.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert reason is None or getattr(error, "reason", None) is reason, f"another reason: {error!r}"
    assert culprit is None or getattr(error, "culprit", None) == culprit, f"another culprit: {error!r}"
    other = {name: getattr(error, name, None) for name in typed}
    assert other == typed, f"another {', '.join(typed)}: {error!r}"
    if names:
        require_mentions(str(error), *names)
