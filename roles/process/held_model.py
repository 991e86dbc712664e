"""What a party of a federation holds, read from its checkpoints by observers of the same machine."""

from __future__ import annotations

from pathlib import Path

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.process.checkpoint import StateFolder
from veilsum.roles.process.context import state_folder


def held_model(loaded: LoadedFederation, name: str, state: Path | None = None) -> tuple[Model, int]:
    """A party's model and the number of rounds in it."""
    folder = state or state_folder(loaded.folder, name)
    saved = StateFolder(folder, PartyId(name), loaded.config.agreed_digest).load()
    if saved.state.model is None:
        raise LocalProtocolError(
            f"{name} holds no model yet in {folder}: it is given one when the run has finished, or never if the "
            "scheme keeps it from this role"
        )
    return saved.state.model, saved.state.rounds_done


def held_position(loaded: LoadedFederation, name: str, state: Path | None = None) -> tuple[int, bytes]:
    """The position of the chain that a party holds, and the hash of its state there."""
    folder = state or state_folder(loaded.folder, name)
    chain = StateFolder(folder, PartyId(name), loaded.config.agreed_digest).load().state.chain
    if chain is None or chain.state is None:
        raise LocalProtocolError(f"{name} holds no state of a chain of models in {folder}")
    return chain.position, chain.state.hash


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
