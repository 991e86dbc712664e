"""A federation's folder with the logs of a run that was never played, as its processes would have told it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BEGAN = datetime.datetime(2026, 3, 1, 9, 0, tzinfo=datetime.UTC)


class ToldRun:
    """Writes logs into FOLDER/logs, a fact at a time."""

    def __init__(self, folder: Path, parties: tuple[str, ...] = ("p1", "p2", "p3"), rounds: int = 10) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir(exist_ok=True)
        self.parties, self.rounds, self.done, self._s = parties, rounds, 0, 0.0

    def say(self, party: str, fact: str, **fields: Any) -> None:
        self._s += 0.25
        at = (BEGAN + datetime.timedelta(seconds=self._s)).isoformat()
        with (self.logs / f"{party}.log").open("a", encoding="utf-8") as log:
            log.write(json.dumps({"at": at, "party": party, "fact": fact, **fields}) + "\n")

    def start(self) -> None:
        for name in ("server", *self.parties):
            self.say(name, "started", rounds_done=0, rounds=self.rounds, life=1)

    def commit(self, rounds: int = 1, *, members: tuple[str, ...] | None = None) -> None:
        for number in self._numbers(rounds):
            for index, name in enumerate(members or self.parties):
                self.say(name, "trained", round=number, loss=2.0 / number + index / 10)
            told = {"round": number, "attempt": 1, "members": list(members or self.parties)}
            self.say("server", "round_committed", **told, model_sha256=None)
            for name in members or self.parties:
                sent = {"sent_bytes": 50_000 * number, "received_bytes": 60_000 * number}
                self.say(name, "traffic", rounds_done=number, **sent)
            metrics = {"accuracy": 1 - 0.5 / number, "loss": 1.0 / number}
            self.say(self.parties[0], "measured", round=number, metrics=metrics, model_sha256="ab" * 32)

    def finish(self) -> None:
        for name in ("server", *self.parties):
            self.say(name, "run_finished", rounds=self.done, model_sha256=None)

    def _numbers(self, rounds: int) -> Iterator[int]:
        for _ in range(rounds):
            self.done += 1
            yield self.done
