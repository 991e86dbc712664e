"""Who comes new to a federation: public keys, a login, and the word on the first model, read from the party's files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.crypto.identity import PublicIdentity
from veilsum.protocol.errors import ParameterError, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.broker.logins import LOGIN_FILE
from veilsum.roles.broker.signed_login import login_signed_by
from veilsum.roles.federation.beginning import MODEL_FILE, read_stated_model
from veilsum.roles.federation.first_models import FIRST_MODEL_FILE, FirstModel, read_first_model
from veilsum.roles.federation.keystore import PUBLIC_FILE, read_public_identity

if TYPE_CHECKING:
    from veilsum.protocol.numbers.model import Model


@dataclass(frozen=True)
class Newcomer:
    """A party that is not enrolled yet; `login` is its line for the broker, if that does not have it already."""

    identity: PublicIdentity
    login: str | None = None
    stated: FirstModel | None = None
    model: Model | None = field(default=None, repr=False)


def newcomer_from_files(public_file: Path, login_file: Path | None) -> Newcomer:
    """A party by its public files, which lie beside each other."""
    if public_file.is_dir():
        public_file = public_file / PUBLIC_FILE
    identity = read_public_identity(public_file)
    beside = public_file.with_name(FIRST_MODEL_FILE)
    files = [beside] if beside.exists() else []
    stated = sent_statements([identity], files).get(identity.name)
    login_file = login_file or public_file.with_name(LOGIN_FILE)
    login = login_signed_by(identity, login_file) if login_file.exists() else None
    return Newcomer(identity, login, stated, sent_model(files))


def sent_statements(identities: Sequence[PublicIdentity], files: Sequence[Path]) -> dict[PartyId, FirstModel]:
    """What the files say, if it is the word of one of these parties."""
    by_name = {one.name: one for one in identities}
    sent = {}
    for path in files:
        stated = read_first_model(path)
        if stated.name not in by_name:
            raise ParameterError([f"{path} is the first model of {stated.name}, who is not being enrolled"])
        try:
            stated.require_stated_by(by_name[stated.name])
        except Rejection as refusal:
            raise ParameterError([f"{path}: {refusal.detail}; ask {stated.name} for a new one"]) from None
        sent[stated.name] = stated
    return sent


def sent_model(files: Sequence[Path]) -> Model | None:
    """The first model itself, where its file came with a statement; one that is not what was stated is refused."""
    for path in files:
        if (model := path.with_name(MODEL_FILE)).exists():
            stated = read_first_model(path)
            return read_stated_model(model, stated, f"that {stated.name} stated")
    return None
