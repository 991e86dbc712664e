"""What an organiser does: write invitation files, and enrol by what comes back.

An open invitation is FOLDER/invitations/NAME.invite, a copy of the file that went out; when its party is enrolled,
NAME.used is left with its id. So whoever enrols by an invitation is held against the one that was sent last: one that
was used, replaced, revoked or has expired enrols nobody.

Implements specs/invitations.md, sections 1 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.roles.broker.logins import PASSWORD_FILE, create_login, new_login
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.federation.admission import (
    INVITATIONS_FOLDER,
    NOTICES_FOLDER,
    OPEN,
    USED,
    forget_invitation,
    logins_of,
    publish_logins,
)
from veilsum.roles.federation.enrolment import ORGANISER, add_newcomers, add_party, create_party
from veilsum.roles.federation.folder import BROKER_FOLDER, KEYS_FOLDER, require_agreement, require_organiser
from veilsum.roles.federation.keystore import PRIVATE_FILE
from veilsum.roles.federation.newcomers import Newcomer, newcomer_from_files
from veilsum.roles.federation.pins import pin_organiser
from veilsum.roles.federation.private_files import make_private_folder, replace_private_file
from veilsum.roles.federation.signed_roster import ROSTER_FILE, SignedRoster, read_roster
from veilsum.roles.invitations.invitation_file import FORMAT as INVITATION_FORMAT
from veilsum.roles.invitations.invitation_file import (
    ID_BYTES,
    InvitationFile,
    authority_path,
    read_invitation,
)
from veilsum.roles.invitations.json_file import format_of
from veilsum.roles.invitations.reply import FORMAT as REPLY_FORMAT
from veilsum.roles.invitations.reply import SUFFIX as REPLY_SUFFIX
from veilsum.roles.invitations.reply import Reply, read_reply
from veilsum.roles.process.clock import date
from veilsum.roles.process.entropy import system_entropy

_DAY_S = 86_400


@dataclass(frozen=True)
class Sent:
    """An invitation, and where its file lies; one that was open already is not `new`, and stays as it was sent."""

    path: Path
    invitation: InvitationFile
    new: bool = True


def make_server_keys(folder: Path, organiser_folder: Path) -> bool:
    """Enrol a server whose keys are here, where none is enrolled; whether that was needed."""
    signed = read_roster(folder / ROSTER_FILE)
    if any(one.role is Role.SERVER for one in signed.roster.identities):
        return False
    key_folder = folder / KEYS_FOLDER / SERVER
    if not (key_folder / PRIVATE_FILE).exists():
        create_party(key_folder, SERVER, Role.SERVER)
    add_party(folder, organiser_folder, key_folder, None)
    pin_organiser(key_folder, signed.organiser)
    return True


def invite(
    folder: Path, organiser_folder: Path, names: Sequence[str], *, days: int, again: bool = False
) -> list[Sent]:
    """Write an invitation for each of these parties; without names for all that lack one.

    For a party that is named and has one that is still good, it is that one, unless it is to have another.
    """
    signed = read_roster(folder / ROSTER_FILE)
    organiser = require_organiser(folder, organiser_folder, signed)
    config = FederationConfig.from_toml(folder / FILE_NAME, run_code=True)
    require_agreement(folder, config, signed)
    if days < 1:
        raise ParameterError([f"--days {days}: an invitation is good for a day at least"])
    lacking = [name for name in config.parties if _lacks_one(folder, signed, name)]
    chosen = list(dict.fromkeys(names)) or lacking
    problems = [problem for name in chosen for problem in _problems(folder, config, signed, name)]
    if problems:
        raise ParameterError(problems)
    kept = [] if again else [_records(folder, name)[0] for name in chosen if name not in lacking]
    sent = [Sent(path, read_invitation(path), new=False) for path in kept]
    wanted = [name for name in chosen if again or name in lacking]
    if not wanted:
        return sent
    authority = _authority(folder, config)
    logins = logins_of(folder, signed)
    make_private_folder(folder / INVITATIONS_FOLDER)
    for name in wanted:
        password, logins[name] = new_login(name)
        invitation = _invitation(folder, config, signed, organiser, PartyId(name), password, authority, days)
        path, content = _records(folder, name)[0], invitation.encode()
        forget_invitation(folder, name)
        replace_private_file(path, content)
        sent.append(Sent(path, invitation))
    if ORGANISER not in logins:
        logins[ORGANISER] = _notices_login(folder)
    publish_logins(folder, signed, logins)
    return sent


def revoke(folder: Path, name: str) -> None:
    """Close an open invitation: its login is gone, and it enrols nobody."""
    if not _records(folder, name)[0].exists():
        raise ParameterError(
            [
                f"{name} has no open invitation to revoke; a party that is enrolled goes with veilsum roster evict"
            ]
        )
    forget_invitation(folder, name)
    signed = read_roster(folder / ROSTER_FILE)
    logins = logins_of(folder, signed)
    publish_logins(folder, signed, {user: line for user, line in logins.items() if user != name})


def enrol(
    folder: Path,
    organiser_folder: Path,
    files: Sequence[Path],
    login: Path | None,
    compare: Callable[[Sequence[PublicIdentity]], None] | None = None,
) -> SignedRoster:
    """Enrol parties by enrolment files, public files or folders with these; all of them in one version, or none.

    `compare` gets their keys before anything is changed, and raises if these are not the parties'.
    """
    if login is not None and len(files) != 1:
        raise ParameterError(["--login goes with the file of one party"])
    signed = read_roster(folder / ROSTER_FILE)
    newcomers, answered = [], []
    for path in files:
        found = format_of(path)
        if found == INVITATION_FORMAT:
            raise ParameterError([_is_the_invitation(path)])
        if found == REPLY_FORMAT:
            reply = read_reply(path)
            newcomers.append(_admitted(folder, signed, path, reply))
            answered.append(reply)
        else:
            newcomers.append(_uninvited(folder, path, newcomer_from_files(path, login)))
    if compare is not None:
        compare([one.identity for one in newcomers])
    after = add_newcomers(folder, organiser_folder, newcomers)
    for reply in answered:
        opened, used = _records(folder, reply.identity.name)
        replace_private_file(used, reply.invitation.hex().encode())
        opened.unlink()
    return after


def _is_the_invitation(path: Path) -> str:
    name = read_invitation(path).name
    return (
        f"{path} is the invitation that was sent to {name}, not the answer: ask {name} for {name}{REPLY_SUFFIX}, which "
        "veilsum join writes there and names"
    )


def _uninvited(folder: Path, path: Path, newcomer: Newcomer) -> Newcomer:
    """The party of public files, if no invitation of it is open.

    A thief of the invitation could make public files of an enrolment file: the words are the party's, its login is not
    in them, and the one that he has would stay.
    """
    name = newcomer.identity.name
    if _records(folder, name)[0].exists():
        raise ParameterError(
            [
                f"{path}: {name} was invited, and these are public files: ask {name} for {name}{REPLY_SUFFIX}, which "
                f"veilsum join writes, or withdraw the invitation first: veilsum invite {folder} --revoke {name}"
            ]
        )
    return newcomer


def _records(folder: Path, name: str) -> tuple[Path, Path]:
    """Where an open invitation lies, and where it is noted that one was used."""
    return folder / INVITATIONS_FOLDER / f"{name}{OPEN}", folder / INVITATIONS_FOLDER / f"{name}{USED}"


def _admitted(folder: Path, signed: SignedRoster, path: Path, reply: Reply) -> Newcomer:
    """The party of an enrolment file, if it answers the invitation that was sent to it last."""
    name = reply.identity.name
    anew = f"veilsum invite {folder} --name {name} --again"
    opened, used = _records(folder, name)
    problem = ""
    if reply.federation != signed.federation_id:
        problem = (
            "it answers an invitation of another federation: give it to that one, or send this party ours"
        )
    elif name in {one.name for one in signed.roster.identities}:
        problem = (
            f"{name} is enrolled already: for new keys, veilsum roster evict {folder} {name}, then {anew}"
        )
    elif not opened.exists() and used.exists() and used.read_bytes() == reply.invitation.hex().encode():
        problem = f"its invitation was used already: {anew}"
    elif not opened.exists():
        problem = f"no invitation of {name} is open, it was evicted or its invitation revoked: {anew}"
    else:
        invitation = read_invitation(opened)
        if invitation.id != reply.invitation:
            problem = f"it answers an older invitation: send {name} the file {opened}, or {anew}"
        elif invitation.until < date():
            problem = f"its invitation was good until {invitation.last_day}: {anew}"
        elif invitation.role is not reply.identity.role:
            problem = (
                f"{name} comes as a {reply.identity.role} and was invited as a {invitation.role}: {anew}"
            )
    if problem:
        raise ParameterError([f"{path}: {problem}"])
    return Newcomer(reply.identity, reply.login, reply.first_model, reply.model)


def _lacks_one(folder: Path, signed: SignedRoster, name: str) -> bool:
    """Whether a party is neither enrolled nor holds an invitation that is still good."""
    if name in {one.name for one in signed.roster.identities}:
        return False
    opened, _ = _records(folder, name)
    return not opened.exists() or read_invitation(opened).until < date()


def _problems(folder: Path, config: FederationConfig, signed: SignedRoster, name: str) -> list[str]:
    if name in {one.name for one in signed.roster.identities}:
        return [f"{name} is enrolled already: for new keys, first veilsum roster evict {folder} {name}"]
    if name not in config.parties:
        return [
            f"{name} is not among the parties of {FILE_NAME}: add it there, then veilsum roster sign {folder}"
        ]
    return []


def _authority(folder: Path, config: FederationConfig) -> str | None:
    path = authority_path(config)
    return None if path is None else (folder / path).read_text(encoding="ascii")


def _invitation(
    folder: Path,
    config: FederationConfig,
    signed: SignedRoster,
    organiser: Identity,
    name: PartyId,
    password: bytes,
    authority: str | None,
    days: int,
) -> InvitationFile:
    return InvitationFile(
        system_entropy(ID_BYTES),
        name,
        config.load_scheme().participant_role,
        int(date()) + days * _DAY_S,
        (folder / FILE_NAME).read_text(encoding="utf-8"),
        {Path(file).name: config.code.read(file) for file in config.code_files},
        signed,
        authority,
        Secret(password),
    ).signed_by(organiser)


def _notices_login(folder: Path) -> str:
    """The login that hands out the roster, which lies with the broker's files."""
    place = folder / BROKER_FOLDER / NOTICES_FOLDER
    (place / PASSWORD_FILE).unlink(missing_ok=True)
    for left in place.glob("*"):
        left.unlink()
    return create_login(place, ORGANISER)
