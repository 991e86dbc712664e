"""What is wrong with a task or with its data, in one text that names both and the remedy."""

from __future__ import annotations

from veilsum.protocol.errors import ParameterError


class TaskError(ParameterError):
    """The named task cannot be made, or not used for what was asked: the request must change, not the run."""

    def __init__(self, problem: str) -> None:
        super().__init__([problem])
