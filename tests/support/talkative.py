"""A role process whose code and libraries are talkative: `python talkative.py command arguments...`

Each training warns, logs with a traceback, prints to standard error, and leaves a thread and a future that failed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import traceback
import warnings
from typing import Any

from veilsum.roles.cli import main as cli
from veilsum.roles.learning.datasets.vectors import VectorLearner


def talk() -> None:
    def fail() -> None:
        raise OSError(9, "Bad file descriptor")

    warnings.warn("this will change", FutureWarning, stacklevel=2)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    loop = asyncio.new_event_loop()
    loop.create_future().set_exception(OSError(9, "Bad file descriptor"))
    gc.collect()
    loop.close()
    try:
        fail()
    except OSError:
        logging.getLogger("a.library").exception("it broke")
        traceback.print_exc()


def train_talkatively() -> None:
    train = VectorLearner.train

    def talkative(self: VectorLearner, *arguments: Any) -> Any:
        talk()
        return train(self, *arguments)

    VectorLearner.train = talkative  # type: ignore[method-assign]  # the talk under test


if __name__ == "__main__":
    train_talkatively()
    sys.exit(cli.main(sys.argv[1:]))
