"""Ending a task within a time that somebody set, whatever the task thinks of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

_logger = logging.getLogger(__name__)


async def end_task(task: asyncio.Task[Any], within_s: float) -> bool:
    """Cancel the task and wait for its end; whether it came in time.

    Clean-up in a library can swallow a cancellation, so at half time the task is told again. One that goes on even
    then is left behind, with a warning.
    """
    for _ in range(2):
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=within_s / 2)
        if done:
            return True
    _logger.warning("%s did not end within %g s and is left behind", task.get_name(), within_s)
    return False
