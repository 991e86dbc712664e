"""Views on disk: a line with the format and a SHA-256, then a .npz of plain arrays with a JSON table of contents.

Never pickle. A message is stored as the bytes it has on the wire, and read back by the strict decoder. The hash is that
of everything behind the line, so a file of which any byte was altered or lost is refused before it is opened. Who made
the file up fits the hash, too: what it unpacks to is bounded (unpacking.py), and whatever reading it raises is a
`BadViewFile`.
The file holds secrets of whoever recorded it; it is written with mode 0600.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.schemes import find_scheme
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.cli.output_file import write_output
from veilsum.roles.learning.task import Samples
from veilsum.roles.views.unpacking import MOST_BYTES, TooMuch, UnpackingError, unpack_arrays
from veilsum.roles.views.view import (
    Observed,
    OwnUpdate,
    PerturbationSecrets,
    PublicFacts,
    Result,
    SessionKeys,
    View,
)

FORMAT = "veilsum view 3"
_FAMILY = b"veilsum view "
_TABLE = "table"
MOST_TABLE_BYTES = 64 << 20
"""What the table of contents may have: JSON becomes many times its size in memory."""
_KINDS_OF_SEEDS = ("given", "taken", "biases")


class BadViewFile(ParameterError):
    """The file is not a view, or not the one that was written."""

    def __init__(self, problem: str) -> None:
        super().__init__([problem])


class _Arrays:
    """Arrays on their way to disk, named by number."""

    def __init__(self) -> None:
        self.named: dict[str, NDArray[Any]] = {}

    def put(self, array: NDArray[Any] | None) -> str | None:
        if array is None:
            return None
        name = f"a{len(self.named)}"
        self.named[name] = np.ascontiguousarray(array)
        return name


def save_view(view: View, path: Path) -> None:
    arrays = _Arrays()
    text = json.dumps(_table(view, arrays)).encode()
    buffer = io.BytesIO()
    contents: dict[str, NDArray[Any]] = {_TABLE: np.frombuffer(text, dtype=np.uint8), **arrays.named}
    np.savez_compressed(buffer, **contents)  # type: ignore[arg-type]  # names never clash with its options
    content = buffer.getvalue()
    write_output(path, _first_line(content) + content, private=True)


def load_view(path: Path, most_bytes: int = MOST_BYTES) -> View:
    """The view in the file, or `BadViewFile` with what is wrong; at most so many bytes are unpacked."""
    content = _content(path, most_bytes)
    try:
        arrays = unpack_arrays(content, most_bytes)
        table = _parsed_table(arrays.pop(_TABLE))
        _require_scheme(path, table["facts"][0]["scheme"])
        return _view(table, arrays)
    except BadViewFile:
        raise
    except TooMuch as error:
        raise _too_large(path, error) from error
    except Exception as error:
        raise BadViewFile(f"{path} is not a recorded view: {type(error).__name__}: {error}") from error


def _too_large(path: Path, error: TooMuch) -> BadViewFile:
    return BadViewFile(
        f"{path} is not read: {error}; record fewer rounds into one file, or, if you trust it, give load_view() a "
        "larger most_bytes"
    )


def _parsed_table(packed: NDArray[Any]) -> Any:
    if packed.nbytes > MOST_TABLE_BYTES:
        raise UnpackingError(
            f"its table has {packed.nbytes} bytes, and {MOST_TABLE_BYTES} are the most that is read"
        )
    return json.loads(packed.tobytes())


def _require_scheme(path: Path, name: str) -> None:
    """A file does not choose what is imported: a scheme from outside is loaded because its user named it."""
    try:
        find_scheme(name)
    except ParameterError as unknown:
        raise BadViewFile(
            f"{path} was recorded under {name!r}, which is not loaded: name it with --scheme"
        ) from unknown


def _first_line(content: bytes) -> bytes:
    return f"{FORMAT}, sha256 {hashlib.sha256(content).hexdigest()}\n".encode()


def _content(path: Path, most_bytes: int) -> bytes:
    """What stands behind the first line, if it is what was written."""
    # Without O_NONBLOCK, opening a pipe that has no writer would wait for one.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadViewFile(f"{path} is no regular file: save the view to one and name that")
        if status.st_size > most_bytes:
            raise _too_large(path, TooMuch(status.st_size, most_bytes))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            line, _, content = file.read(status.st_size).partition(b"\n")
    finally:
        os.close(descriptor)
    if not line.startswith(_FAMILY):
        raise BadViewFile(f"{path} is not a recorded view")
    if not line.startswith(FORMAT.encode()):
        raise BadViewFile(f"{path} is a view of another version; this one reads {FORMAT!r}")
    if line + b"\n" != _first_line(content):
        raise BadViewFile(f"{path} was altered or cut short: it is not what was written")
    return content


def _table(view: View, arrays: _Arrays) -> dict[str, Any]:
    facts = view.facts
    return {
        "members": view.members,
        "facts": [dict(facts.settings), facts.dimension, facts.input_shape, facts.outputs],
        "initial_model": arrays.put(view.initial_model),
        "messages": [
            [one.time_s, one.sender, one.receiver, one.kind, one.size, _packed(one.message, arrays)]
            for one in view.messages
        ],
        "results": [
            [one.party, one.round, one.attempt, one.members, arrays.put(one.model), arrays.put(one.total)]
            for one in view.results
        ],
        "own_updates": [
            [one.party, one.round, one.samples, arrays.put(one.payload)] for one in view.own_updates
        ],
        "own_data": {
            name: [arrays.put(data.inputs), arrays.put(data.targets)] for name, data in view.own_data.items()
        },
        "epoch_keys": [
            [one.party, one.session.hex(), *_packed_seeds(one.seeds)] for one in view.session_keys
        ],
        "noise_secrets": [
            [
                one.key_id.hex(),
                *(arrays.put(part) for part in (one.scale, one.gammas, one.blinders, one.shifts)),
                one.loss_shift,
            ]
            for one in view.perturbation_secrets
        ],
    }


def _packed(message: Message | None, arrays: _Arrays) -> list[Any] | None:
    if message is None:
        return None
    stamp, body = message.stamp, b"".join(encode_message(message))
    place = arrays.put(np.frombuffer(body, dtype=np.uint8))
    return [stamp.session.hex(), stamp.round, stamp.attempt, stamp.model_hash.hex(), place]


def _packed_seeds(seeds: Mapping[str, Mapping[str, Secret]]) -> list[Any]:
    """The seeds of the first kinds in their places; behind them, where there are any, those of other kinds by name."""
    others = {kind: _hex(each) for kind, each in seeds.items() if kind not in _KINDS_OF_SEEDS}
    return [*(_hex(seeds.get(kind, {})) for kind in _KINDS_OF_SEEDS), *([others] if others else [])]


def _opened_seeds(packed: list[Any]) -> dict[str, Mapping[str, Secret]]:
    *first, others = packed if len(packed) > len(_KINDS_OF_SEEDS) else [*packed, {}]
    known = zip(_KINDS_OF_SEEDS, first, strict=True)
    named = {kind: each for kind, each in known if each or not others}
    return {kind: _secrets(each) for kind, each in {**named, **others}.items()}


def _hex(seeds: Mapping[str, Secret]) -> dict[str, str]:
    return {name: seed.reveal().hex() for name, seed in seeds.items()}


def _secrets(seeds: Mapping[str, str]) -> dict[str, Secret]:
    return {name: Secret(bytes.fromhex(text)) for name, text in seeds.items()}


def _view(table: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> View:
    settings, dimension, shape, outputs = table["facts"]

    def array(name: str | None) -> Any:
        return None if name is None else arrays[name]

    def opened(kind: str, packed: list[Any] | None) -> Message | None:
        if packed is None:
            return None
        session, round_, attempt, model_hash, place = packed
        stamp = Stamp(bytes.fromhex(session), round_, attempt, bytes.fromhex(model_hash))
        return decode_message(kind, stamp, arrays[place].tobytes())

    return View(
        members=tuple(table["members"]),
        facts=PublicFacts(settings, dimension, tuple(shape), outputs),
        initial_model=array(table["initial_model"]),
        messages=tuple(
            Observed(time_s, sender, receiver, kind, size, opened(kind, packed))
            for time_s, sender, receiver, kind, size, packed in table["messages"]
        ),
        results=tuple(
            Result(party, round_, attempt, tuple(members), array(model), array(total))
            for party, round_, attempt, members, model, total in table["results"]
        ),
        own_updates=tuple(
            OwnUpdate(party, round_, samples, array(payload))
            for party, round_, samples, payload in table["own_updates"]
        ),
        own_data={
            name: Samples(array(inputs), array(targets))
            for name, (inputs, targets) in table["own_data"].items()
        },
        session_keys=tuple(
            SessionKeys(party, bytes.fromhex(session), _opened_seeds(packed))
            for party, session, *packed in table["epoch_keys"]
        ),
        perturbation_secrets=tuple(
            PerturbationSecrets(
                bytes.fromhex(key_id), array(scale), array(gammas), array(blinders), array(shifts), shift
            )
            for key_id, scale, gammas, blinders, shifts, shift in table["noise_secrets"]
        ),
    )
