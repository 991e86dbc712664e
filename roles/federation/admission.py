"""Whom the broker of a federation lets in: the enrolled identities and a few observers, each with a login of its own.

A party that is invited has its login before it is enrolled, and may read the roster with it, nothing else. Open
invitations are files in FOLDER/invitations; roles/invitations/ writes them.

Implements specs/broker.md, section 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import require_party_id
from veilsum.roles.broker.files import read_logins, write_certificates, write_configuration, write_logins
from veilsum.roles.broker.logins import OBSERVER, create_login, is_observer
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.federation.folder import BROKER_FOLDER, require_organiser
from veilsum.roles.federation.signed_roster import ROSTER_FILE, SignedRoster, read_roster

INVITATIONS_FOLDER = "invitations"
OPEN = ".invite"
USED = ".used"
NOTICES_FOLDER = "notices"
"""In the broker's folder: the login under which the roster is handed out."""


def logins_of(folder: Path, signed: SignedRoster) -> dict[str, str]:
    """Name -> line of its login, of all who have one."""
    return read_logins(folder / BROKER_FOLDER, signed.federation_id)


def publish_logins(folder: Path, signed: SignedRoster, logins: Mapping[str, str]) -> None:
    """Let in the enrolled identities that have a login, and the observers; who is invited reads the roster."""
    names = [identity.name for identity in signed.roster.identities]
    write_logins(folder / BROKER_FOLDER, logins, signed.federation_id, names, invited_names(folder))


def invited_names(folder: Path) -> list[str]:
    """Who has an open invitation."""
    return sorted(path.stem for path in (folder / INVITATIONS_FOLDER).glob(f"*{OPEN}"))


def forget_invitation(folder: Path, name: str) -> None:
    """Nobody can enrol under this name any more but by a new invitation, or by public files."""
    for suffix in (OPEN, USED):
        (folder / INVITATIONS_FOLDER / f"{name}{suffix}").unlink(missing_ok=True)


def configure_broker(folder: Path, organiser_folder: Path) -> None:
    """Write the broker's configuration, certificate and access list anew, for federation.toml as it is now."""
    config = FederationConfig.from_toml(folder / FILE_NAME)
    signed = read_roster(folder / ROSTER_FILE)
    require_organiser(folder, organiser_folder, signed)
    broker = folder / BROKER_FOLDER
    write_configuration(broker, config)
    if config.broker_tls:
        write_certificates(broker, organiser_folder, config)
    publish_logins(folder, signed, logins_of(folder, signed))


def add_observer(folder: Path, name: str, key_folder: Path) -> None:
    """A login for one more observer, in a folder of its own and at the broker."""
    if not is_observer(require_party_id(name)):
        raise ParameterError([f"an observer is called {OBSERVER}-NAME, not {name!r}"])
    signed = read_roster(folder / ROSTER_FILE)
    logins = logins_of(folder, signed)
    if name in logins:
        raise ParameterError(
            [f"{name} has a login already: take another name, or revoke it first with --revoke"]
        )
    logins[name] = create_login(key_folder, name)
    publish_logins(folder, signed, logins)


def revoke_observer(folder: Path, name: str) -> None:
    """Shut an observer out; who is on the roster is evicted instead."""
    signed = read_roster(folder / ROSTER_FILE)
    logins = logins_of(folder, signed)
    if name not in logins or not is_observer(name):
        raise ParameterError(
            [
                f"{name} is no observer with a login: there are {', '.join(filter(is_observer, logins)) or 'none'}; "
                "a party is shut out by veilsum roster evict"
            ]
        )
    publish_logins(folder, signed, {user: line for user, line in logins.items() if user != name})
