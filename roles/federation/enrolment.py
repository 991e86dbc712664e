"""Making a federation and changing who belongs to it: what `veilsum init`, `keys` and `roster` do.

The organiser's machine holds the whole folder (roles/federation/folder.py). Every change of membership or of agreed
settings is a new roster version, and brings the broker's logins and access list along.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER, require_party_id
from veilsum.roles.broker.files import (
    AUTHORITY,
    read_logins,
    write_certificates,
    write_configuration,
    write_logins,
)
from veilsum.roles.broker.logins import (
    LOGIN_FILE,
    OBSERVER,
    OBSERVERS,
    create_login,
    is_observer,
    require_login_line,
)
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.config.user_code import CodeAccess
from veilsum.roles.config.values import NAMING_CODE
from veilsum.roles.federation.folder import BROKER_FOLDER, KEYS_FOLDER, ORGANISER_FOLDER, enrolment_problems
from veilsum.roles.federation.keystore import (
    PUBLIC_FILE,
    create_identity,
    load_identity,
    read_public_identity,
)
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

ORGANISER = "organiser"


def create_federation(folder: Path, config: FederationConfig, *, with_keys: bool = True) -> SignedRoster:
    """Write a complete federation into a new or empty folder; without keys, its parties enrol later."""
    require_usable_folder(folder)
    config.require_workable()
    config = replace(config.with_weight_limit(), min_parties=config.cohort_floor)
    if config.broker_tls and config.broker_ca is None:
        config = replace(config, broker_ca=f"{BROKER_FOLDER}/{AUTHORITY}")
    config.require_workable()
    _require_free_names(config)
    folder.mkdir(parents=True, exist_ok=True)
    config = _bring_code(folder, config)
    make_private_folder(folder / KEYS_FOLDER)
    replace_public_file(folder / FILE_NAME, config.to_toml().encode("utf-8"))
    organiser = create_identity(folder / ORGANISER_FOLDER, ORGANISER, Role.ORGANISER, with_rsa=False)
    broker = folder / BROKER_FOLDER
    write_configuration(broker, config)
    if config.broker_tls:
        write_certificates(broker, folder / ORGANISER_FOLDER, config)
    logins = {name: create_login(folder / KEYS_FOLDER / name, name) for name in OBSERVERS}
    identities: list[PublicIdentity] = []
    for name, role in _parties_with_roles(config) if with_keys else ():
        identity, logins[name] = create_party(folder / KEYS_FOLDER / name, name, role)
        identities.append(identity.public)
    signed = sign_roster(organiser, 1, tuple(identities), config.agreed())
    _publish(folder, signed, logins)
    for identity_public in identities:
        key_folder = folder / KEYS_FOLDER / identity_public.name
        pin_organiser(key_folder, organiser.public)
        accept_roster(folder / ROSTER_FILE, key_folder)
    return signed


def create_party(key_folder: Path, name: str, role: Role) -> tuple[Identity, str]:
    """New keys and a new login for one party; returns them with the login's line for the broker."""
    require_party_id(name)
    if (role is Role.SERVER) != (name == SERVER):
        raise ParameterError([f"the server is the party named {SERVER!r}, and no other: {name} is a {role}"])
    identity = create_identity(key_folder, name, role, with_rsa=role is Role.PEER)
    return identity, create_login(key_folder, name)


def add_party(
    folder: Path, organiser_folder: Path, public_file: Path, login_file: Path | None
) -> SignedRoster:
    """Enrol a party by its public files; a party of that name with other keys must be evicted first."""
    if public_file.is_dir():
        public_file = public_file / PUBLIC_FILE
    identity = read_public_identity(public_file)
    signed = read_roster(folder / ROSTER_FILE)
    for listed in signed.roster.identities:
        if listed.name == identity.name:
            raise RosterRefused(
                folder / ROSTER_FILE,
                AbortReason.WRONG_ROSTER,
                f"{listed.name} is listed already: to replace its keys, first veilsum roster evict",
            )
    logins = _logins(folder, signed)
    login_file = login_file or public_file.with_name(LOGIN_FILE)
    if login_file.exists():
        name, line = require_login_line(login_file.read_text(encoding="ascii"))
        if name != identity.name:
            raise LocalProtocolError(f"{login_file} is the login of {name}, not of {identity.name}")
        logins[name] = line
    identities = (*signed.roster.identities, identity)
    evicted = {name: version for name, version in signed.evicted.items() if name != identity.name}
    return _sign(folder, organiser_folder, signed, identities, evicted, logins)


def evict_party(folder: Path, organiser_folder: Path, name: str) -> SignedRoster:
    """Take a party off the roster and off the broker; its name is remembered as evicted."""
    signed = read_roster(folder / ROSTER_FILE)
    signed.roster.identity(name)
    identities = tuple(one for one in signed.roster.identities if one.name != name)
    evicted = {**signed.evicted, name: signed.version + 1}
    logins = {user: line for user, line in _logins(folder, signed).items() if user != name}
    return _sign(folder, organiser_folder, signed, identities, evicted, logins)


def sign_again(folder: Path, organiser_folder: Path) -> SignedRoster:
    """Sign the settings as federation.toml has them now."""
    signed = read_roster(folder / ROSTER_FILE)
    logins = _logins(folder, signed)
    return _sign(folder, organiser_folder, signed, signed.roster.identities, dict(signed.evicted), logins)


def configure_broker(folder: Path, organiser_folder: Path) -> None:
    """Write the broker's configuration, certificate and access list anew, for federation.toml as it is now."""
    config = FederationConfig.from_toml(folder / FILE_NAME)
    broker = folder / BROKER_FOLDER
    write_configuration(broker, config)
    if config.broker_tls:
        write_certificates(broker, organiser_folder, config)
    signed = read_roster(folder / ROSTER_FILE)
    _publish_logins(folder, signed, _logins(folder, signed))


def add_observer(folder: Path, name: str, key_folder: Path) -> None:
    """A login for one more observer, in a folder of its own and at the broker."""
    if not is_observer(require_party_id(name)):
        raise ParameterError([f"an observer is called {OBSERVER}-NAME, not {name!r}"])
    signed = read_roster(folder / ROSTER_FILE)
    logins = _logins(folder, signed)
    if name in logins:
        raise ParameterError(
            [f"{name} has a login already: take another name, or revoke it first with --revoke"]
        )
    logins[name] = create_login(key_folder, name)
    _publish_logins(folder, signed, logins)


def revoke_observer(folder: Path, name: str) -> None:
    """Shut an observer out; who is on the roster is evicted instead."""
    signed = read_roster(folder / ROSTER_FILE)
    logins = _logins(folder, signed)
    if name not in logins or not is_observer(name):
        raise ParameterError(
            [
                f"{name} is no observer with a login: there are {', '.join(filter(is_observer, logins)) or 'none'}; "
                "a party is shut out by veilsum roster evict"
            ]
        )
    _publish_logins(folder, signed, {user: line for user, line in logins.items() if user != name})


def require_usable_folder(folder: Path) -> None:
    """Refuse a folder with anything in it: a federation never overwrites keys."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ParameterError(
            [f"{folder} is not empty: choose a new folder, or remove it: rm -r {shlex.quote(str(folder))}"]
        )
    if folder.exists() and not folder.is_dir():
        raise ParameterError([f"{folder} is a file: choose a new folder"])


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


def _sign(
    folder: Path,
    organiser_folder: Path,
    before: SignedRoster,
    identities: tuple[PublicIdentity, ...],
    evicted: dict[str, int],
    logins: dict[str, str],
) -> SignedRoster:
    organiser = load_identity(organiser_folder)
    if organiser.public != before.organiser:
        raise RosterRefused(
            folder / ROSTER_FILE,
            AbortReason.WRONG_ROSTER,
            f"it belongs to {before.organiser!r}, and {organiser_folder} holds {organiser.public!r}",
        )
    config = FederationConfig.from_toml(folder / FILE_NAME, run_code=True)
    config.require_workable()
    _require_free_names(config)
    problems = list(enrolment_problems(config, identities))
    if problems:
        raise ParameterError(problems)
    signed = sign_roster(organiser, before.version + 1, identities, config.agreed(), evicted)
    _publish(folder, signed, logins)
    return signed


def _publish(folder: Path, signed: SignedRoster, logins: dict[str, str]) -> None:
    """Logins first: a roster that names a party whom the broker does not let in yet would only confuse."""
    _publish_logins(folder, signed, logins)
    write_roster(folder / ROSTER_FILE, signed)


def _logins(folder: Path, signed: SignedRoster) -> dict[str, str]:
    return read_logins(folder / BROKER_FOLDER, signed.federation_id)


def _publish_logins(folder: Path, signed: SignedRoster, logins: dict[str, str]) -> None:
    names = [identity.name for identity in signed.roster.identities]
    write_logins(folder / BROKER_FOLDER, logins, signed.federation_id, names)
