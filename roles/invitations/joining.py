"""What a party does with an invitation: a folder of its own, keys made there, a pin, and an enrolment file in answer.

    FOLDER/federation.toml, roster.json, code, broker/ca.pem     as the invitation brings them
    FOLDER/keys/NAME/                                            keys that never leave, the broker's password, the pin
    FOLDER/NAME.enrolment                                        what the organiser gets

Nothing is written before the words were compared, and nothing that the invitation names is run before the pin
(specs/decisions/0018-code-in-a-federation.md). The first thing written is for which invitation the folder is, so that
no other one takes it over; the pin is the last step of settling, and says that it was whole. What the invitation
brought is written once; from then on the pinned organiser's newest roster counts.

Implements specs/invitations.md, section 4.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.errors import ParameterError
from veilsum.roles.broker.logins import PASSWORD_FILE, read_login
from veilsum.roles.broker.signed_login import create_signed_login
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.config.values import CODE_DIGESTS
from veilsum.roles.federation.beginning import MODEL_FILE, first_model_of, write_model
from veilsum.roles.federation.first_models import FIRST_MODEL_FILE, state_first_model, write_first_model
from veilsum.roles.federation.folder import KEYS_FOLDER, LoadedFederation, require_agreement
from veilsum.roles.federation.keystore import PRIVATE_FILE, create_identity, load_identity
from veilsum.roles.federation.pins import PIN_FILE, accept_roster, acceptable_roster, pin_organiser
from veilsum.roles.federation.private_files import (
    PrivateFileError,
    make_private_folder,
    read_private_file,
    replace_private_file,
)
from veilsum.roles.federation.public_files import replace_public_file
from veilsum.roles.federation.signed_roster import (
    ROSTER_FILE,
    RosterRefused,
    SignedRoster,
    decode_roster,
    write_roster,
)
from veilsum.roles.invitations.invitation_file import InvitationFile, authority_path
from veilsum.roles.invitations.reply import MOST_MODEL_BYTES, SUFFIX, Reply
from veilsum.roles.process.clock import date
from veilsum.roles.process.context import state_folder
from veilsum.roles.process.disk.unbegun import note_unbegun
from veilsum.transport.printable import printable

INVITATION_ID = "invitation"
"""In the key folder: the id of the invitation that the keys were made for."""


@dataclass(frozen=True)
class Place:
    """Where a party settles: one folder for one invitation."""

    folder: Path
    invitation: InvitationFile

    @property
    def keys(self) -> Path:
        return self.folder / KEYS_FOLDER / self.invitation.name

    @property
    def waiting_login(self) -> Path:
        """The password of the invitation, which lets a party in until it is enrolled with one of its own."""
        return self.keys / "invited"

    @property
    def reply_file(self) -> Path:
        return self.folder / f"{self.invitation.name}{SUFFIX}"

    @property
    def is_settled(self) -> bool:
        """Whether the words were compared here before, for this invitation; another one's folder is refused."""
        if not (self.keys / PIN_FILE).exists():
            return False
        if self._noted_id != self.invitation.id.hex():
            raise ParameterError(
                [
                    f"{self.folder} belongs to another invitation: name a folder of its own with --folder, or run "
                    "veilsum join with that invitation"
                ]
            )
        return True

    def require_good(self) -> None:
        """Refuse an invitation that came too late, and a folder that holds something else."""
        invitation = self.invitation
        if invitation.until < date():
            raise ParameterError(
                [
                    f"the invitation of {invitation.name} was good until {invitation.last_day}: ask the organiser for "
                    "another (veilsum invite --again)"
                ]
            )
        if self._holds_something_else:
            raise ParameterError(
                [
                    f"{self.folder} is not empty, and not of this invitation: name a folder of its own with --folder"
                ]
            )

    @property
    def _holds_something_else(self) -> bool:
        """Whether there is more in the folder than what this invitation brought when settling broke off."""
        if not self.folder.exists() or self._noted_id == self.invitation.id.hex():
            return False
        ours = {self.folder / KEYS_FOLDER, self.keys}
        return any(path not in ours for level in (self.folder, *sorted(ours)) for path in _inside(level))

    @property
    def _noted_id(self) -> str:
        try:
            return read_private_file(self.keys / INVITATION_ID).decode("ascii")
        except (PrivateFileError, UnicodeDecodeError, OSError):
            return ""


def _inside(folder: Path) -> Sequence[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def settle(place: Place) -> Identity:
    """Write what the invitation brings, make keys, and pin the organiser: after the words were compared."""
    invitation, folder, keys = place.invitation, place.folder, place.keys
    _require_no_more_than_named(invitation)
    for one in (folder, folder / KEYS_FOLDER, keys):
        make_private_folder(one)
    replace_private_file(keys / INVITATION_ID, invitation.id.hex().encode())
    replace_public_file(folder / FILE_NAME, invitation.settings.encode())
    write_roster(folder / ROSTER_FILE, invitation.signed)
    for name, content in invitation.code.items():
        replace_public_file(folder / name, content)
    config = FederationConfig.from_toml(folder / FILE_NAME)
    require_agreement(folder, config, invitation.signed)
    if invitation.authority is not None and (path := authority_path(config)) is not None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        replace_public_file(folder / path, invitation.authority.encode("ascii"))
    if not (keys / PRIVATE_FILE).exists():
        made = create_identity(keys, invitation.name, invitation.role, with_rsa=invitation.role is Role.PEER)
        note_unbegun(state_folder(folder, invitation.name), made.public)
    if not (keys / PASSWORD_FILE).exists():
        create_signed_login(keys, load_identity(keys))
    replace_private_file(place.waiting_login / PASSWORD_FILE, invitation.password.reveal() + b"\n")
    pin_organiser(keys, invitation.signed.organiser)
    accept_roster(folder / ROSTER_FILE, keys)
    return load_identity(keys)


def _require_no_more_than_named(invitation: InvitationFile) -> None:
    """Refuse, before anything is written, files that would come to lie where only ours belong, as in the key folder.

    The organiser is trusted with settings and code, and not with the choice of a party's keys.
    """
    with tempfile.TemporaryDirectory() as aside:
        path = Path(aside) / FILE_NAME
        replace_public_file(path, invitation.settings.encode())
        config = FederationConfig.from_toml(path)
    authority_path(config)
    beyond = sorted({*invitation.code} - {Path(file).name for file in config.code_files})
    if beyond:
        raise ParameterError(
            [
                f"the invitation brings {', '.join(map(printable, beyond[:8]))}, which its settings do not name as "
                "code: nothing was written; ask the organiser why, and for another invitation"
            ]
        )


def write_reply(place: Place, data: Path | str | None, init: Path | None) -> Reply:
    """State the first model, which runs the code that the pinned organiser signed, and write the enrolment file."""
    loaded = entered(place)
    identity, config = load_identity(place.keys), loaded.config
    folder = loaded.data_folder(data, identity.name)
    model = first_model_of(config, place.folder / FILE_NAME, folder, init)
    stated = state_first_model(identity, model)
    write_first_model(place.keys / FIRST_MODEL_FILE, stated)
    gives = config.load_scheme().server_holds_model
    small = 4 * len(model) <= MOST_MODEL_BYTES
    if gives and not small:
        write_model(place.folder / MODEL_FILE, model)
    reply = Reply(
        loaded.federation_id,
        place.invitation.id,
        identity.public,
        read_login(place.keys)[1],
        stated,
        model if gives and small else None,
    ).signed_by(identity)
    replace_public_file(place.reply_file, reply.encode())
    return reply


def entered(place: Place) -> LoadedFederation:
    """The federation by this party's pin, whether or not the roster lists it yet."""
    signed = accept_roster(place.folder / ROSTER_FILE, place.keys)
    config = FederationConfig.from_toml(place.folder / FILE_NAME)
    require_agreement(place.folder, config, signed)
    config = config.trusting_code(signed.agreed.get(CODE_DIGESTS, {}))
    return LoadedFederation(config, signed, place.folder)


def take_roster(place: Place, content: bytes, name: Path) -> SignedRoster:
    """Put a newer roster of the pinned organiser in the place of ours; whoever else signed one changes nothing.

    It is there before the pin knows it: the other way round a power cut would leave a roster that its own pin refuses.
    """
    signed = decode_roster(content, name)
    waiting = place.folder / f".{ROSTER_FILE}.new"
    write_roster(waiting, signed)
    try:
        acceptable_roster(waiting, place.keys)
        waiting.replace(place.folder / ROSTER_FILE)
        accept_roster(place.folder / ROSTER_FILE, place.keys)
    finally:
        waiting.unlink(missing_ok=True)
    return signed


def is_enrolled(place: Place, signed: SignedRoster) -> bool:
    """Whether the roster lists the keys that are here; other keys under our name, or an eviction, are refused."""
    identity = load_identity(place.keys).public
    if identity.name not in signed.evicted and identity.name not in {
        one.name for one in signed.roster.identities
    }:
        return False
    try:
        signed.require_enrolled(place.folder / ROSTER_FILE, identity)
    except RosterRefused as refusal:
        raise ParameterError(
            [f"{refusal}: ask the organiser for a new invitation, and join with it in another folder"]
        ) from refusal
    return True
