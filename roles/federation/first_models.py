"""What each party says it begins with: the length and the hash of the first model, signed with its own key.

A server that could name the first model would choose a crafted one. So every party computes it from task and seed, or
takes it from a file that all were given, and states it when it enrols. The organiser keeps the statements and signs the
model into the roster only if all agree: it needs neither task nor data for that, and says who differs.

Implements specs/federation-file.md, section 13.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilsum.protocol.crypto.domains import DIGEST_BYTES, domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity, PublicIdentity
from veilsum.protocol.crypto.signing import verify_signature
from veilsum.protocol.errors import LocalProtocolError, ParameterError, ProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId, require_party_id
from veilsum.roles.config.user_code import names_file
from veilsum.roles.federation.identity_fields import from_base64, to_base64
from veilsum.roles.federation.public_files import replace_public_file

if TYPE_CHECKING:
    from veilsum.protocol.numbers.model import Model
    from veilsum.roles.config.federation_config import FederationConfig

FIRST_MODEL_FILE = "first-model.json"
STATEMENTS_FOLDER = "first-models"

_DOMAIN = "first-model"
_FORMAT = "veilsum first model"
_FORMAT_VERSION = 1
_FIELDS = {"format", "format_version", "name", "length", "model_hash", "signature"}
_LARGEST_FILE = 65_536
_LONGEST_MODEL = 2**48


@dataclass(frozen=True)
class AgreedModel:
    """What all parties that stated one begin with, as the organiser signs it.

    `made_for` is the hash of the settings that it follows from: when they change, it is stated anew.
    """

    length: int
    model_hash: bytes
    made_for: bytes


@dataclass(frozen=True)
class FirstModel:
    """One party's statement; `model_hash` is the hash of a model that all messages carry."""

    name: PartyId
    length: int
    model_hash: bytes
    signature: bytes = b""

    @property
    def digest(self) -> bytes:
        parts = (self.name.encode(), self.length.to_bytes(8, "big"), self.model_hash)
        return hashlib.sha256(length_prefixed(domain_tag(_DOMAIN), *parts)).digest()

    def require_stated_by(self, identity: PublicIdentity) -> None:
        """Refuse a statement that this party did not make, or that was changed since."""
        if self.name != identity.name:
            raise LocalProtocolError(f"the first model of {self.name} was given for {identity.name}")
        verify_signature(identity.verify_key, _DOMAIN, self.digest, self.signature)


def state_first_model(identity: Identity, model: Model) -> FirstModel:
    """The statement of a party that begins with this model."""
    from veilsum.protocol.chain.state import hash_model

    unsigned = FirstModel(identity.name, len(model), hash_model(model))
    signature = identity.signing.sign(_DOMAIN, unsigned.digest)
    return FirstModel(unsigned.name, unsigned.length, unsigned.model_hash, signature)


def write_first_model(path: Path, stated: FirstModel) -> None:
    document = {"format": _FORMAT, "format_version": _FORMAT_VERSION, **first_model_fields(stated)}
    replace_public_file(path, json.dumps(document, indent=2).encode() + b"\n")


def first_model_fields(stated: FirstModel) -> dict[str, int | str]:
    """A statement as fields of JSON."""
    return {
        "name": stated.name,
        "length": stated.length,
        "model_hash": stated.model_hash.hex(),
        "signature": to_base64(stated.signature),
    }


def first_model_from_fields(fields: Mapping[str, Any]) -> FirstModel:
    """A statement of these fields; others are for the caller."""
    model_hash = bytes.fromhex(fields["model_hash"])
    length = _require_model(fields["length"], model_hash)
    return FirstModel(require_party_id(fields["name"]), length, model_hash, from_base64(fields["signature"]))


def read_first_model(path: Path) -> FirstModel:
    """A statement as its file has it; whether the party made it is for `require_stated_by`."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ParameterError([f"{path} does not exist: veilsum keys first-model makes it"]) from None
    try:
        fields = json.loads(content)
        if not isinstance(fields, dict) or set(fields) != _FIELDS or fields["format"] != _FORMAT:
            raise ValueError(f"its format is not {_FORMAT!r}")
        if fields["format_version"] != _FORMAT_VERSION:
            raise ValueError(f"its format version is {fields['format_version']!r}, not {_FORMAT_VERSION}")
        return first_model_from_fields(fields)
    except (ProtocolError, ValueError, TypeError, RecursionError) as error:
        raise ParameterError([f"{path}: {error}; ask the party for a new one"]) from None


def keep_statement(folder: Path, stated: FirstModel) -> None:
    """Put a statement where later signings find it."""
    (folder / STATEMENTS_FOLDER).mkdir(exist_ok=True)
    write_first_model(folder / STATEMENTS_FOLDER / f"{stated.name}.json", stated)


def kept_statements(folder: Path, identities: Iterable[PublicIdentity]) -> dict[PartyId, FirstModel]:
    """The statements of these parties that are there; one made with other keys than the enrolled ones is as none."""
    found = {}
    for identity in identities:
        path = folder / STATEMENTS_FOLDER / f"{identity.name}.json"
        if path.exists():
            stated = read_first_model(path)
            with contextlib.suppress(Rejection):
                stated.require_stated_by(identity)
                found[identity.name] = stated
    return found


def settings_hash(config: FederationConfig) -> bytes:
    """A hash over the settings that the first model follows from; nothing that they name is run."""
    file = names_file(config.task)
    code = None if file is None else config.code.digest_of(file)
    texts = json.dumps([config.task, config.seed, config.model, config.loss, code])
    return hashlib.sha256(length_prefixed(domain_tag("first-model-settings"), texts.encode())).digest()


def agreed_model_fields(agreed: AgreedModel | None) -> dict[str, int | str] | None:
    """As fields of JSON: bytes are hexadecimal."""
    if agreed is None:
        return None
    return {
        "length": agreed.length,
        "model_hash": agreed.model_hash.hex(),
        "made_for": agreed.made_for.hex(),
    }


def agreed_model_from_fields(fields: object) -> AgreedModel | None:
    if fields is None:
        return None
    if not isinstance(fields, dict) or set(fields) != {"length", "model_hash", "made_for"}:
        raise ValueError("a first model has the fields length, made_for and model_hash")
    hashes = bytes.fromhex(fields["model_hash"]), bytes.fromhex(fields["made_for"])
    return AgreedModel(_require_model(fields["length"], *hashes), *hashes)


def _require_model(length: object, *hashes: bytes) -> int:
    if type(length) is not int or not 0 < length < _LONGEST_MODEL or {*map(len, hashes)} != {DIGEST_BYTES}:
        raise ValueError("its length or hash is that of no model")
    return length


def common_model_hash(stated: Mapping[PartyId, FirstModel]) -> bytes:
    """The hash that all state, or a refusal that names who begins with what."""
    return common_model(stated)[1]


def common_model(stated: Mapping[PartyId, FirstModel]) -> tuple[int, bytes]:
    """The length and hash that all state, or a refusal that names who begins with what."""
    groups: dict[tuple[int, bytes], list[PartyId]] = defaultdict(list)
    for name, one in sorted(stated.items()):
        groups[one.length, one.model_hash].append(name)
    if len(groups) > 1:
        told = "; ".join(
            f"{', '.join(names)}: {length} values, {model_hash.hex()[:16]}..."
            for (length, model_hash), names in groups.items()
        )
        raise ParameterError(
            [
                f"parties begin with different first models ({told}): compare task, seed, model and --init there, "
                "then veilsum keys first-model anew"
            ]
        )
    (common,) = groups
    return common
