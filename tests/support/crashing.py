"""A role process that ends as by a power cut at a chosen point: `python crashing.py POINT command arguments...`

send:KIND   right before it signs its first message of this kind
disk:N      right before its N-th flush or rename on disk, counted from 1
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from veilsum.protocol.wire.messages import kind_of
from veilsum.roles.cli import main as cli
from veilsum.roles.process.envelopes import EnvelopeCodec


def power_cut() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cut_before_sending(kind: str) -> None:
    seal = EnvelopeCodec.seal

    def guarded(self: EnvelopeCodec, receivers: Any, message: Any, phase: str) -> Any:
        if kind_of(message) == kind:
            power_cut()
        return seal(self, receivers, message, phase)

    EnvelopeCodec.seal = guarded  # type: ignore[method-assign]  # the fault under test


def cut_before_writing(last: int) -> None:
    done = 0

    def guard(operation: Any) -> Any:
        def guarded(*arguments: Any, **named: Any) -> Any:
            nonlocal done
            done += 1
            if done == last:
                power_cut()
            return operation(*arguments, **named)

        return guarded

    os.fsync = guard(os.fsync)
    os.replace = guard(os.replace)


if __name__ == "__main__":
    what, _, where = sys.argv[1].partition(":")
    if what == "send":
        cut_before_sending(where)
    else:
        cut_before_writing(int(where))
    sys.exit(cli.main(sys.argv[2:]))
