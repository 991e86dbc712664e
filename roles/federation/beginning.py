"""The first model of a federation: who makes it, what the organiser signs about it, and how it reaches the server.

Parties make it, from the task, the seed and their data, or take it from a file; each states its length and hash. The
organiser's office and the server need neither the task nor its code: the length that all state is signed into the
roster, and where the server gives the model to the parties, its file comes with the enrolment of one of them and is
believed because its hash is the signed one. Rejected: a server that makes the model, which needed code and data
where nobody else needs them; and a message with the model in a party's first hello, a form of wire for one event.

Implements specs/federation-file.md, section 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.federation.anchoring import Stated
from veilsum.roles.federation.first_models import (
    FIRST_MODEL_FILE,
    AgreedModel,
    FirstModel,
    common_model,
    keep_statement,
    settings_hash,
    state_first_model,
    write_first_model,
)
from veilsum.roles.federation.folder import KEYS_FOLDER, no_first_model
from veilsum.roles.federation.keystore import PRIVATE_FILE, load_identity
from veilsum.roles.federation.signed_roster import ROSTER_FILE, SignedRoster

if TYPE_CHECKING:
    from veilsum.protocol.numbers.model import Model

MODEL_FILE = "first-model.safetensors"
"""The model itself: in the key folder of a party that stated it, and in the folder of the federation."""
_TENSOR = "model"
_GET_ANOTHER = (
    f"get the file {MODEL_FILE} of a party's key folder, or let the parties state it anew: "
    "veilsum keys first-model"
)


def first_model_of(config: FederationConfig, file: Path, data: Path | None, init: Path | None) -> Model:
    """The first model: the given one, or what task and seed make of it, in a process that may load torch."""
    if init is not None:
        from veilsum.roles.learning.model_files import load_model

        return load_model(init)
    from veilsum.roles.learning.first_model import ask_for_beginning

    return ask_for_beginning(config, file, data).model


def state_first_models(
    folder: Path, config: FederationConfig, parties: Sequence[Identity], init: Path | None
) -> dict[PartyId, FirstModel]:
    """State for parties whose keys are here what all of them begin with."""
    participants = [one for one in parties if one.role is not Role.SERVER]
    if not participants:
        return {}
    model = first_model_of(config, folder / FILE_NAME, None, init)
    stated = {one.name: state_first_model(one, model) for one in participants}
    for name, one in stated.items():
        write_first_model(folder / KEYS_FOLDER / name / FIRST_MODEL_FILE, one)
        keep_statement(folder, one)
    write_model(folder / MODEL_FILE, model)
    return stated


def agreed_model(
    before: SignedRoster | None, anchor: Anchor | None, known: Stated, sent: Sequence[str], made_for: bytes
) -> AgreedModel | None:
    """What is signed about the first model: what all state, or what was signed before where it stays the same."""
    old = None if before is None else before.first_model
    if old is not None and not set(known.participants) <= set(sent):
        made_for = old.made_for
    if old is not None and before is not None and _same_chain(before.roster.anchor, anchor):
        return replace(old, made_for=made_for)
    if not known.models:
        return old
    return AgreedModel(*common_model(known.models), made_for)


def _same_chain(before: Anchor | None, after: Anchor | None) -> bool:
    return before is not None and after is not None and before.chain == after.chain


def who_states_anew(
    folder: Path, before: SignedRoster, config: FederationConfig, sent: Sequence[str]
) -> list[Identity]:
    """The parties for whom a first model is stated here, because the settings that it follows from have changed.

    Their keys must all be here; otherwise those who have to state it themselves are named.
    """
    old, names = before.first_model, before.roster.participants
    lacking = [name for name in names if name not in sent]
    if old is None or old.made_for == settings_hash(config) or not lacking:
        return []
    if all((folder / KEYS_FOLDER / name / PRIVATE_FILE).exists() for name in names):
        return [load_identity(folder / KEYS_FOLDER / name) for name in names]
    raise ParameterError(
        [
            f"task, seed, model or loss is another than the first model was made for, and {', '.join(lacking)} "
            "stated no new one: veilsum keys first-model there, then give each file to veilsum roster sign with "
            "--first-model"
        ]
    )


def write_model(path: Path, model: Model) -> None:
    """A first model as one tensor, for processes that know neither task nor layout."""
    from veilsum.roles.learning.model_files import save_model

    save_model(path, model, ((_TENSOR, (len(model),)),))


class OtherModel(ParameterError):
    """A file holds another model than the one that was stated, or none that can be read."""


def is_stated(model: Model, stated: FirstModel | AgreedModel) -> bool:
    from veilsum.protocol.chain.state import hash_model

    return len(model) == stated.length and hash_model(model) == stated.model_hash


def read_stated_model(path: Path, stated: FirstModel | AgreedModel, by: str) -> Model:
    """The model in a file, if it is the one that was stated."""
    from veilsum.roles.learning.model_files import load_model

    try:
        model = load_model(path)
    except ParameterError as unreadable:
        raise OtherModel([f"{problem}: {_GET_ANOTHER}" for problem in unreadable.problems]) from unreadable
    if not is_stated(model, stated):
        raise OtherModel([f"{path} holds another model than the one {by}: {_GET_ANOTHER}"])
    return model


def require_agreed(folder: Path, config: FederationConfig, signed: SignedRoster) -> AgreedModel:
    """What the roster says about the first model, if it does and the settings are still those that it was made for."""
    agreed = signed.first_model
    if agreed is None:
        why = no_first_model(folder, config, signed.roster.identities)
        raise ParameterError([f"{folder / ROSTER_FILE}: {why}"])
    if agreed.made_for != settings_hash(config):
        raise ParameterError(
            [
                f"{folder / ROSTER_FILE}: its first model was made for another task, seed, model or loss: veilsum "
                "keys first-model at every party, then veilsum roster sign with --first-model"
            ]
        )
    return agreed


def servers_first_model(folder: Path, config: FederationConfig, signed: SignedRoster) -> Model:
    """The model that a server begins with: from its file, believed for its hash."""
    agreed, path = require_agreed(folder, config, signed), folder / MODEL_FILE
    if not path.exists():
        raise ParameterError(
            [
                f"{path} does not exist, and a server makes no model: veilsum keys first-model at a party writes the "
                f"file {MODEL_FILE} into its key folder; put it there, or give a model with --init FILE"
            ]
        )
    return read_stated_model(path, agreed, "signed in the roster")
