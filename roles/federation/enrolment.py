"""Making a federation and changing who belongs to it: what `veilsum init`, `keys` and `roster` do.

The organiser's machine holds the whole folder (roles/federation/folder.py). Every change of membership or of agreed
settings is a new roster version, and brings the broker's logins and access list along.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.agreed.anchor import Anchor
from veilsum.protocol.agreed.parameters import Weights
from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.errors import AbortReason, ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId, require_party_id
from veilsum.roles.broker.files import AUTHORITY, write_certificates, write_configuration
from veilsum.roles.broker.logins import (
    OBSERVER,
    OBSERVERS,
    create_login,
    is_observer,
)
from veilsum.roles.broker.signed_login import create_signed_login
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.config.user_code import CodeAccess
from veilsum.roles.config.values import NAMING_CODE
from veilsum.roles.federation.admission import forget_invitation, logins_of, publish_logins
from veilsum.roles.federation.anchoring import (
    ChooseAnchor,
    Stated,
    anchor_after_change,
    anchor_of_new_chain,
    anchor_when_signing,
)
from veilsum.roles.federation.beginning import (
    MODEL_FILE,
    agreed_model,
    is_stated,
    state_first_models,
    who_states_anew,
    write_model,
)
from veilsum.roles.federation.first_models import (
    FIRST_MODEL_FILE,
    FirstModel,
    keep_statement,
    kept_statements,
    settings_hash,
    write_first_model,
)
from veilsum.roles.federation.folder import (
    BROKER_FOLDER,
    KEYS_FOLDER,
    ORGANISER_FOLDER,
    enrolment_problems,
    require_organiser,
)
from veilsum.roles.federation.keystore import (
    create_identity,
    load_identity,
)
from veilsum.roles.federation.new_folder import make_folder
from veilsum.roles.federation.newcomers import Newcomer, newcomer_from_files, sent_model, sent_statements
from veilsum.roles.federation.pins import accept_roster, pin_organiser
from veilsum.roles.federation.private_files import make_private_folder
from veilsum.roles.federation.public_files import replace_public_file
from veilsum.roles.federation.signed_roster import (
    ROSTER_FILE,
    RosterRefused,
    SignedRoster,
    read_roster,
    sign_roster,
    write_roster,
)

if TYPE_CHECKING:
    from veilsum.protocol.numbers.model import Model

ORGANISER = "organiser"


def create_federation(
    folder: Path,
    config: FederationConfig,
    *,
    with_keys: bool = True,
    init: Path | None = None,
    beside: Collection[str] = (),
) -> SignedRoster:
    """Write a complete federation into a new or empty folder; without keys, its parties enrol later.

    `init` is a file with the first model, where it is not the task's own. Without keys nothing of the task is loaded,
    neither its code nor its data. `beside` are the names of files that may lie there already.
    """
    require_usable_folder(folder, beside)
    config.require_workable()
    if not with_keys:
        _require_nothing_to_load(config, init)
    if with_keys or config.task_is_numbers:
        config = config.with_weight_limit()
    config = replace(config, min_parties=config.cohort_floor)
    if config.broker_tls and config.broker_ca is None:
        config = replace(config, broker_ca=f"{BROKER_FOLDER}/{AUTHORITY}")
    config.require_workable()
    _require_free_names(config)
    make_folder(folder)
    config = _bring_code(folder, config.with_data_seen_from(folder))
    make_private_folder(folder / KEYS_FOLDER)
    replace_public_file(folder / FILE_NAME, config.to_toml().encode("utf-8"))
    organiser = create_identity(folder / ORGANISER_FOLDER, ORGANISER, Role.ORGANISER, with_rsa=False)
    broker = folder / BROKER_FOLDER
    write_configuration(broker, config)
    if config.broker_tls:
        write_certificates(broker, folder / ORGANISER_FOLDER, config)
    logins = {name: create_login(folder / KEYS_FOLDER / name, name) for name in OBSERVERS}
    parties: list[Identity] = []
    for name, role in _parties_with_roles(config) if with_keys else ():
        identity, logins[name] = create_party(folder / KEYS_FOLDER / name, name, role)
        parties.append(identity)
    stated = state_first_models(folder, config, parties, init)
    known = Stated(None, tuple(stated), stated, config.parties)
    anchor = anchor_after_change(known) if config.load_scheme().has_chain else None
    model = agreed_model(None, anchor, known, tuple(stated), settings_hash(config))
    public = tuple(one.public for one in parties)
    signed = sign_roster(organiser, 1, public, config.agreed(), anchor=anchor, first_model=model)
    _publish(folder, signed, logins)
    for party in parties:
        key_folder = folder / KEYS_FOLDER / party.name
        pin_organiser(key_folder, organiser.public)
        accept_roster(folder / ROSTER_FILE, key_folder)
    return signed


def begin_anew(folder: Path, organiser_folder: Path, init: Path | None) -> SignedRoster:
    """Begin another chain in a federation all of whose keys are here: with the model of a file, or with the task's."""
    signed = read_roster(folder / ROSTER_FILE)
    require_organiser(folder, organiser_folder, signed)
    parties = [load_identity(folder / KEYS_FOLDER / name) for name in signed.roster.participants]
    config = FederationConfig.from_toml(folder / FILE_NAME, run_code=True)
    sent = state_first_models(folder, config, parties, init)
    change = _Change(signed.roster.identities, dict(signed.evicted), logins_of(folder, signed), sent)
    return _sign(folder, organiser_folder, signed, change, anchor_of_new_chain)


def go_back_to_chain(folder: Path, organiser_folder: Path, before: Path) -> None:
    """Sign the chain and the first model anew that stood in this folder's roster before another chain began."""
    signed, former = read_roster(folder / ROSTER_FILE), read_roster(before / ROSTER_FILE)
    if signed.roster.anchor == former.roster.anchor:
        return
    sent = kept_statements(before, former.roster.identities)
    for name, one in sent.items():
        write_first_model(folder / KEYS_FOLDER / name / FIRST_MODEL_FILE, one)
    if (before / MODEL_FILE).exists():
        replace_public_file(folder / MODEL_FILE, (before / MODEL_FILE).read_bytes())
    change = _Change(signed.roster.identities, dict(signed.evicted), logins_of(folder, signed), sent)
    _sign(folder, organiser_folder, signed, change, lambda _: former.roster.anchor)


def create_party(key_folder: Path, name: str, role: Role) -> tuple[Identity, str]:
    """New keys and a new login for one party; returns them with the login's line for the broker."""
    require_party_id(name)
    if (role is Role.SERVER) != (name == SERVER):
        raise ParameterError([f"the server is the party named {SERVER!r}, and no other: {name} is a {role}"])
    identity = create_identity(key_folder, name, role, with_rsa=role is Role.PEER)
    return identity, create_signed_login(key_folder, identity)


def add_party(
    folder: Path, organiser_folder: Path, public_file: Path, login_file: Path | None
) -> SignedRoster:
    """Enrol a party by its public files; a party of that name with other keys must be evicted first."""
    return add_newcomers(folder, organiser_folder, [newcomer_from_files(public_file, login_file)])


def add_newcomers(folder: Path, organiser_folder: Path, newcomers: Sequence[Newcomer]) -> SignedRoster:
    """Enrol several parties in one version of the roster, or none of them; each has the login that it brings."""
    signed = read_roster(folder / ROSTER_FILE)
    logins, evicted = logins_of(folder, signed), dict(signed.evicted)
    listed = {one.name for one in signed.roster.identities}
    for one in newcomers:
        name = one.identity.name
        if name in listed:
            raise RosterRefused(
                folder / ROSTER_FILE,
                AbortReason.WRONG_ROSTER,
                f"{name} is listed already: to replace its keys, first veilsum roster evict",
            )
        listed.add(name)
        evicted.pop(name, None)
        logins.pop(name, None)
        if one.login is not None:
            logins[name] = one.login
    identities = (*signed.roster.identities, *(one.identity for one in newcomers))
    sent = {one.identity.name: one.stated for one in newcomers if one.stated is not None}
    model = next((one.model for one in newcomers if one.model is not None), None)
    change = _Change(identities, evicted, logins, sent, model)
    return _sign(folder, organiser_folder, signed, change, anchor_after_change)


def evict_party(folder: Path, organiser_folder: Path, name: str) -> SignedRoster:
    """Take a party off the roster and off the broker; its name is remembered as evicted."""
    signed = read_roster(folder / ROSTER_FILE)
    after = _sign(folder, organiser_folder, signed, _without(folder, signed, name), anchor_after_change)
    forget_invitation(folder, name)
    return after


def sign_again(
    folder: Path, organiser_folder: Path, first_models: Sequence[Path] = (), *, new_chain: bool = False
) -> SignedRoster:
    """Sign the settings as federation.toml has them now, and the first model that all parties state.

    With `new_chain` another chain begins with it, even if the one before began with the same.
    """
    signed = read_roster(folder / ROSTER_FILE)
    if new_chain and signed.roster.anchor is None:
        raise ParameterError(
            ["there is no chain to leave: the scheme keeps none, or veilsum roster sign begins the first one"]
        )
    require_organiser(folder, organiser_folder, signed)
    sent = sent_statements(signed.roster.identities, first_models)
    model = sent_model(first_models)
    config = FederationConfig.from_toml(folder / FILE_NAME, run_code=True)
    config.require_workable()
    if anew := who_states_anew(folder, signed, config, tuple(sent)):
        sent = state_first_models(folder, config, anew, None)
    change = _Change(signed.roster.identities, dict(signed.evicted), logins_of(folder, signed), sent, model)
    choose = anchor_of_new_chain if new_chain else anchor_when_signing
    return _sign(folder, organiser_folder, signed, change, choose)


def sign_checkpoint(
    folder: Path, organiser_folder: Path, anchor: Anchor, evict: str | None = None
) -> SignedRoster:
    """Sign that the chain goes on from this anchor, perhaps without a party."""
    signed = read_roster(folder / ROSTER_FILE)
    change = _without(folder, signed, evict)
    return _sign(folder, organiser_folder, signed, change, lambda _: anchor)


def require_usable_folder(folder: Path, beside: Collection[str] = ()) -> None:
    """Refuse a folder with anything in it: a federation never overwrites keys."""
    if folder.is_dir() and any(one.name not in beside for one in folder.iterdir()):
        raise ParameterError(
            [
                f"{folder} is not empty, and a federation overwrites nothing: name a folder that does not exist yet"
            ]
        )
    if folder.exists() and not folder.is_dir():
        raise ParameterError([f"{folder} is a file: choose a new folder"])


def _require_nothing_to_load(config: FederationConfig, init: Path | None) -> None:
    """Refuse what only the task could tell, or only the parties: neither is here."""
    problems = []
    if init is not None:
        problems.append("--init needs keys: each party gives the file to veilsum keys first-model")
    weighs = config.weights != Weights.EQUAL.value and not config.task_is_numbers
    if config.max_weight is None and weighs:
        problems.append(
            "max_weight is not given, and without keys nothing of the task is loaded that would tell it: name the most "
            "samples that one party may hold with --max-weight, or let all count alike with --weights equal"
        )
    if problems:
        raise ParameterError(problems)


def _require_free_names(config: FederationConfig) -> None:
    taken = [name for name in config.parties if name == ORGANISER or is_observer(name)]
    if taken:
        raise ParameterError(
            [
                f"no party may be called {', '.join(taken)}: {ORGANISER}, {OBSERVER} and {OBSERVER}-... are "
                "the names of others"
            ]
        )


def _bring_code(folder: Path, config: FederationConfig) -> FederationConfig:
    """Copy the files with code that the settings name into the federation's folder, where machines look for them."""
    names = {file: Path(file).name for file in config.code_files}
    if len(set(names.values())) < len(names):
        raise ParameterError([f"files with code need names of their own: {', '.join(names)}"])
    for file, name in names.items():
        replace_public_file(folder / name, config.code.read(file))
        texts = {field: getattr(config, field) for field in NAMING_CODE}
        renamed = {field: text.replace(f"{file}:", f"./{name}:") for field, text in texts.items()}
        config = replace(config, **renamed)
    return replace(config, code=CodeAccess(folder)) if names else config


def _parties_with_roles(config: FederationConfig) -> list[tuple[str, Role]]:
    role = config.load_scheme().participant_role
    return [(SERVER, Role.SERVER), *((name, role) for name in config.parties)]


@dataclass(frozen=True)
class _Change:
    """Who is on the next version of a roster, whom the broker lets in, and first models that were stated anew."""

    identities: tuple[PublicIdentity, ...]
    evicted: dict[str, int]
    logins: dict[str, str]
    sent: dict[PartyId, FirstModel] = field(default_factory=dict)
    model: Model | None = field(default=None, repr=False)
    """The model that was sent with them, if its file was."""


def _without(folder: Path, signed: SignedRoster, name: str | None) -> _Change:
    """The roster as it is, once this party is gone."""
    evicted = dict(signed.evicted)
    if name is not None:
        _require_listed(folder, signed, name)
        evicted[name] = signed.version + 1
    identities = tuple(one for one in signed.roster.identities if one.name != name)
    logins = {user: line for user, line in logins_of(folder, signed).items() if user != name}
    return _Change(identities, evicted, logins)


def _require_listed(folder: Path, signed: SignedRoster, name: str) -> None:
    names = [one.name for one in signed.roster.identities]
    if name not in names:
        near = did_you_mean(name, names)
        raise RosterRefused(
            folder / ROSTER_FILE,
            AbortReason.UNKNOWN_PARTY,
            f"{name} is not listed in version {signed.version}{near}",
        )


def _sign(
    folder: Path,
    organiser_folder: Path,
    before: SignedRoster,
    change: _Change,
    choose_anchor: ChooseAnchor,
) -> SignedRoster:
    organiser = require_organiser(folder, organiser_folder, before)
    config = FederationConfig.from_toml(folder / FILE_NAME, run_code=True)
    config.require_workable()
    _require_free_names(config)
    problems = list(enrolment_problems(config, change.identities))
    if problems:
        raise ParameterError(problems)
    models = {**kept_statements(folder, change.identities), **change.sent}
    names = tuple(one.name for one in change.identities if one.role is not Role.SERVER)
    known = Stated(before.roster.anchor, names, models, config.parties)
    anchor = choose_anchor(known) if config.load_scheme().has_chain else None
    agreed = agreed_model(before, anchor, known, tuple(change.sent), settings_hash(config))
    signed = sign_roster(
        organiser, before.version + 1, change.identities, config.agreed(), change.evicted, anchor, agreed
    )
    for one in change.sent.values():
        keep_statement(folder, one)
    if change.model is not None and agreed is not None and is_stated(change.model, agreed):
        write_model(folder / MODEL_FILE, change.model)
    _publish(folder, signed, change.logins)
    return signed


def _publish(folder: Path, signed: SignedRoster, logins: dict[str, str]) -> None:
    """Logins first: a roster that names a party whom the broker does not let in yet would only confuse."""
    publish_logins(folder, signed, logins)
    write_roster(folder / ROSTER_FILE, signed)
