"""What a role process tells on standard error: one line per fact, for people or, as JSON, for programs.

Only named fields are written, none of which holds a key, a seed, a share or a vector. Some of them repeat what
others sent, so in a line for people everything but printable characters is escaped: nobody can start a line of ours
or steer the terminal it is read on. JSON escapes all of them but DEL by itself. `veilsum launch` builds its
live view and its summary from the JSON lines.

Implements specs/guide.md, section 4.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.identifiers import shown_number
from veilsum.protocol.machines.events import (
    AttemptBegan,
    Event,
    ModelTaken,
    PartyNamed,
    RoundCommitted,
    RoundFailed,
    RunFailed,
    RunFinished,
    SessionBegan,
    Warned,
)
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.monitor.kept_log import KeptLog
from veilsum.roles.monitor.log_format import LogFormat
from veilsum.roles.process.clock import told_time
from veilsum.transport.errors import BrokerRefused, BrokerUnreachable
from veilsum.transport.printable import json_text, printable

AFTERTHOUGHTS = frozenset(
    {
        "link_lost",
        "link_restored",
        "measured",
        "not_delivered",
        "refused",
        "seems_gone",
        "status_not_told",
        "trained",
        "training_failed",
        "warning",
    }
)
"""What is not told of after the end: others leave, connections close, work comes too late. It changes no result."""


class RoleLog:
    """Writes the lines of one party; how its run ended is the last one, unless something unexpected follows."""

    def __init__(
        self,
        party: str,
        log_format: LogFormat = "text",
        stream: TextIO | None = None,
        *,
        logs: Path | None = None,
    ) -> None:
        """`logs` is the folder in which all of it is kept as JSON, besides."""
        self._party = party
        self._format = log_format
        self._stream = stream if stream is not None else sys.stderr
        self._kept = None if logs is None else KeptLog(logs, party)
        self._ended = False

    @property
    def is_json(self) -> bool:
        return self._format == "json"

    def say(self, fact: str, **fields: Any) -> None:
        """One line: when, this party, the fact and its fields, which are called none of these three."""
        if self._ended and fact in AFTERTHOUGHTS:
            return
        known = json_text({"at": told_time(), "party": self._party, "fact": fact, **fields})
        self._write(known if self._format == "json" else self._in_words(fact, fields))
        self._ended = self._ended or fact in ("run_finished", "run_failed")
        if self._kept is not None and (trouble := self._kept.add(known)):
            self.say("warning", text=trouble)

    def _in_words(self, fact: str, fields: Mapping[str, Any]) -> str:
        told = ", ".join(
            _text(value) if name == "text" else f"{name} {_text(value)}"
            for name, value in fields.items()
            if value not in ("", None)
        )
        at = f"{datetime.datetime.now(datetime.UTC):%H:%M:%S}"
        return printable(f"{at} {self._party}: {fact.replace('_', ' ')}{': ' if told else ''}{told}")

    def _write(self, line: str) -> None:
        """A line that the disk does not take is lost, and the run goes on."""
        with contextlib.suppress(OSError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def tell(self, event: Event) -> None:
        """The line of an event, if it has one."""
        match event:
            case SessionBegan():
                self.say("session_began", session=event.session.hex()[:16], members=list(event.members))
            case AttemptBegan():
                self.say("round_began", **_where(event))
            case RoundCommitted():
                self.say(
                    "round_committed",
                    **_where(event),
                    members=list(event.members),
                    model_sha256=None if event.model is None else sha256_of(event.model),
                    **({} if event.loss is None else {"loss": event.loss}),
                )
                self.tell_position(event.chain)
            case ModelTaken():
                self.say("model_taken", rounds_done=event.rounds_done, model_sha256=sha256_of(event.model))
                self.tell_position(event.chain)
            case RoundFailed() | RunFailed():
                fields = {} if isinstance(event, RunFailed) else _where(event)
                self.say(
                    "run_failed" if isinstance(event, RunFailed) else "round_failed",
                    **fields,
                    reason=event.reason.value,
                    culprit=event.culprit,
                    detail=event.detail,
                )
            case RunFinished():
                model = event.model
                self.say(
                    "run_finished",
                    rounds=event.rounds,
                    model_sha256=None if model is None else sha256_of(model),
                )
            case PartyNamed():
                self.say("party_named", named=event.party, reason=event.reason.value, detail=event.detail)
            case Warned():
                self.say("warning", text=event.text)
            case _:
                pass

    def tell_failure(self, error: Exception, more: str = "") -> None:
        """The run ends with an exception: of the broker, which is then named, or of our own."""
        culprit = "broker" if isinstance(error, BrokerRefused | BrokerUnreachable) else self._party
        self.say("run_failed", reason=type(error).__name__, culprit=culprit, detail=f"{error}{more}")

    def tell_position(self, chain: ChainRecord | None) -> None:
        """Where this party is in a chain of models: what an organiser signs in a checkpoint."""
        if chain is not None and chain.state is not None:
            self.say("holds", position=chain.position, state=chain.state.hash.hex())

    def tell_traffic(self, event: RoundCommitted | RunFinished, sent_bytes: int, received_bytes: int) -> None:
        """What this process has sent and received since it started, after so many rounds."""
        done = shown_number(event.round) if isinstance(event, RoundCommitted) else event.rounds
        self.say("traffic", rounds_done=done, sent_bytes=sent_bytes, received_bytes=received_bytes)


def _where(event: AttemptBegan | RoundCommitted | RoundFailed) -> dict[str, int]:
    """The round and the attempt of an event, as people count them."""
    return {"round": shown_number(event.round), "attempt": shown_number(event.attempt)}


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name} {part:.4g}" for name, part in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
