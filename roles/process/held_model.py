"""What a party of a federation holds, read from its checkpoints by observers of the same machine."""

from __future__ import annotations

from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.spelling import which_then
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.process.checkpoint import CheckpointError, StateFolder
from veilsum.roles.process.context import state_folder
from veilsum.roles.process.disk.launch_lock import EARLIER_RUN_FOLDER, aside_refusal
from veilsum.roles.process.persistent_state import PersistentState


def held_model(loaded: LoadedFederation, name: str, state: Path | None = None) -> tuple[Model, int]:
    """A party's model and the number of rounds in it."""
    folder, held = _held_state(loaded, name, state)
    if held.model is None:
        raise LocalProtocolError(
            f"{name} holds no model yet in {folder}: it is given one when the run has finished, or never if the "
            "scheme keeps it from this role"
        )
    return held.model, held.rounds_done


def held_position(loaded: LoadedFederation, name: str, state: Path | None = None) -> tuple[int, bytes]:
    """The position of the chain that a party holds, and the hash of its state there."""
    folder, held = _held_state(loaded, name, state)
    chain = held.chain
    if chain is None or chain.state is None:
        raise LocalProtocolError(f"{name} holds no state of a chain of models in {folder}")
    return chain.position, chain.state.hash


def _held_state(loaded: LoadedFederation, name: str, state: Path | None) -> tuple[Path, PersistentState]:
    """The folder of a party that is on the roster, and what its newest checkpoint says."""
    names = (SERVER, *loaded.roster.participants)
    if name not in names:
        raise ParameterError([f"{name} is not on the roster: {which_then(name, names)}"])
    if state is None and (loaded.folder / EARLIER_RUN_FOLDER).exists():
        raise ParameterError([aside_refusal(loaded.folder)])
    folder = state or state_folder(loaded.folder, name)
    try:
        return folder, StateFolder(folder, PartyId(name), loaded.config.agreed_digest).load().state
    except CheckpointError as refusal:
        raise ParameterError([str(refusal)]) from refusal


def newest_model(loaded: LoadedFederation) -> tuple[Model, int, str] | None:
    """The model with the most rounds among those on this machine, and who holds it."""
    found: list[tuple[int, str, Model]] = []
    for name in (SERVER, *loaded.roster.participants):
        try:
            model, rounds = held_model(loaded, name)
        except LocalProtocolError:
            continue
        found.append((rounds, name, model))
    if not found:
        return None
    most, holder, newest = max(found, key=lambda one: one[0])
    return newest, most, holder
