"""A federation's folder: where its files lie, and how a process enters it.

    FOLDER/federation.toml     the settings                       every machine
    FOLDER/roster.json         who takes part, signed             every machine
    FOLDER/broker/ca.pem       who vouches for the broker         every machine
    FOLDER/keys/NAME/          a party's private keys             that party's machine
    FOLDER/broker/             certificate, logins, access list   the broker's machine
    FOLDER/organiser/          the organiser's keys               the organiser's machine
    FOLDER/...                 code that the settings name        every machine but the broker's
    FOLDER/first-models/       what each party begins with        the organiser's machine

`load_federation` is for observers: it checks the signature, but believes the organiser that the file names, and so
loads none of the code that the settings name. A role process calls `enter_federation`, which goes by the party's own
pin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, PublicIdentity, Role
from veilsum.protocol.errors import AbortReason, ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.config.data_folders import DataFolders
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.file import FILE_NAME, settings_file
from veilsum.roles.config.values import CODE_DIGESTS
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.federation.pins import accept_roster
from veilsum.roles.federation.signed_roster import ROSTER_FILE, RosterRefused, SignedRoster, read_roster

if TYPE_CHECKING:
    from veilsum.protocol.machines.scheme import Scheme

KEYS_FOLDER = "keys"
BROKER_FOLDER = "broker"
ORGANISER_FOLDER = "organiser"


@dataclass(frozen=True)
class LoadedFederation:
    """A federation as its files describe it; `config` and `signed` agree with each other."""

    config: FederationConfig
    signed: SignedRoster
    folder: Path

    @property
    def roster(self) -> Roster:
        return self.signed.roster

    @property
    def federation_id(self) -> str:
        """What keeps this federation apart from others on one transport."""
        return self.signed.federation_id

    def key_folder(self, name: str) -> Path:
        """Where `veilsum init` puts a party's keys; parties may keep theirs elsewhere."""
        return self.folder / KEYS_FOLDER / name

    def data_folders(self, override: Path | str | None = None) -> DataFolders:
        """Where the data lie: as given, or as configured, relative to federation.toml."""
        if override is not None:
            return DataFolders.parse(override)
        return DataFolders.parse(self.config.data).below(self.folder)

    def data_folder(self, override: Path | str | None = None, party: str | None = None) -> Path | None:
        """The data folder of a party, or of nobody in particular."""
        return self.data_folders(override).of(None if party == SERVER else party)


def load_federation(path: Path | str) -> LoadedFederation:
    """The federation of a folder or of its federation.toml; refused if settings and roster disagree."""
    folder, config = _read_settings(Path(path))
    signed = read_roster(folder / ROSTER_FILE)
    require_agreement(folder, config, signed)
    return LoadedFederation(config, signed, folder)


def enter_federation(path: Path | str, key_folder: Path) -> tuple[LoadedFederation, Identity]:
    """The same, for a party: by its own pin, and only if the roster lists exactly its keys.

    The code that the settings name may then be loaded: its organiser signed it.
    """
    folder, config = _read_settings(Path(path))
    identity = load_identity(key_folder)
    signed = accept_roster(folder / ROSTER_FILE, key_folder)
    signed.require_enrolled(folder / ROSTER_FILE, identity.public)
    require_agreement(folder, config, signed)
    trusted = config.trusting_code(signed.agreed.get(CODE_DIGESTS, {}))
    _require_fitting_identities(folder, trusted, signed)
    return LoadedFederation(trusted, signed, folder), identity


def look_or_enter(path: Path | str, key_folder: Path | None) -> LoadedFederation:
    """The federation for a command that looks: as the party whose key folder is given, or as an observer."""
    return load_federation(path) if key_folder is None else enter_federation(path, key_folder)[0]


def require_organiser(folder: Path, organiser_folder: Path, signed: SignedRoster) -> Identity:
    """The organiser whose roster this is, by its own key; asked for before anything that the settings name is run."""
    organiser = load_identity(organiser_folder)
    if organiser.public != signed.organiser:
        raise RosterRefused(
            folder / ROSTER_FILE,
            AbortReason.WRONG_ROSTER,
            f"it belongs to {signed.organiser!r}, and {organiser_folder} holds {organiser.public!r}",
        )
    return organiser


def require_agreement(folder: Path, config: FederationConfig, signed: SignedRoster) -> None:
    """Refuse settings other than those the organiser signed, naming each difference."""
    differences = list(agreement_differences(config.agreed(), signed.agreed))
    if differences:
        raise RosterRefused(
            folder / FILE_NAME,
            AbortReason.WRONG_CONFIG,
            f"{'; '.join(differences)}; restore the signed values, or have them signed: veilsum roster sign {folder}",
        )
    _require_fitting_identities(folder, config, signed)


def _require_fitting_identities(folder: Path, config: FederationConfig, signed: SignedRoster) -> None:
    problems = list(enrolment_problems(config, signed.roster.identities))
    if problems:
        raise RosterRefused(folder / ROSTER_FILE, AbortReason.WRONG_ROSTER, "; ".join(problems))


def agreement_differences(here: Mapping[str, Any], signed: Mapping[str, Any]) -> Iterator[str]:
    """Every setting whose value here is not the signed one."""
    for name in sorted({*here, *signed} - {CODE_DIGESTS}):
        if here.get(name) != signed.get(name):
            yield f"{name} is {here.get(name)!r} here and {signed.get(name)!r} in the signed roster"
    own_code, signed_code = here.get(CODE_DIGESTS, {}), signed.get(CODE_DIGESTS, {})
    for file in sorted(own_code):
        if file not in signed_code:
            yield f"{file} was not signed"
        elif own_code[file] != signed_code[file]:
            yield f"{file} has changed since it was signed"


def enrolment_problems(config: FederationConfig, identities: tuple[PublicIdentity, ...]) -> Iterator[str]:
    """What keeps these identities from being the parties of this configuration.

    Which roles a user's own scheme wants is not asked by who may not load it.
    """
    scheme = _scheme_if_allowed(config)
    for identity in identities:
        if identity.role is Role.SERVER:
            continue
        if identity.name not in config.parties:
            yield f"{identity.name} is not among the parties of {FILE_NAME}: add it there first"
        if scheme is None:
            continue
        if identity.role is not scheme.participant_role:
            yield (
                f"{identity.name} is a {identity.role}, and scheme {scheme.name} wants a "
                f"{scheme.participant_role}: veilsum keys new {identity.name} --role {scheme.participant_role}"
            )
        elif scheme.needs_rsa and identity.rsa_public is None:
            yield (
                f"{identity.name} has no RSA key, which scheme {scheme.name} needs: "
                f"veilsum keys new {identity.name} --role peer"
            )


def require_complete(loaded: LoadedFederation) -> None:
    """Refuse to start a federation whose server, or too many of whose parties, are not enrolled."""
    listed = {identity.name for identity in loaded.roster.identities}
    problems = []
    if SERVER not in listed:
        problems.append(
            "no server is enrolled: veilsum keys new server --role server, then veilsum roster add"
        )
    present = len(loaded.roster.participants)
    if present < loaded.config.cohort_floor:
        problems.append(
            f"{present} parties are enrolled, min_parties is {loaded.config.cohort_floor}: enrol the others with what "
            "they send, NAME.enrolment or their public files: veilsum roster add"
        )
    scheme = _scheme_if_allowed(loaded.config)
    if not problems and scheme is not None and scheme.has_chain and loaded.roster.anchor is None:
        problems.append(no_first_model(loaded.folder, loaded.config, loaded.roster.identities))
    if problems:
        raise ParameterError(f"{loaded.folder / ROSTER_FILE}: {problem}" for problem in problems)


def no_first_model(folder: Path, config: FederationConfig, enrolled: Iterable[PublicIdentity]) -> str:
    """Why a roster names none: it is signed by itself when the last party of the settings is enrolled, not before."""
    listed = {identity.name for identity in enrolled}
    missing = [name for name in config.parties if name not in listed]
    if not missing:
        return "it names no first model: veilsum keys first-model at every party, then veilsum roster sign"
    return (
        f"it names no first model yet, and not enrolled are {', '.join(missing[:8])}"
        f"{f' and {len(missing) - 8} more' if len(missing) > 8 else ''}: enrol them with veilsum roster add; to begin "
        f"without them: veilsum roster sign {folder} (who sent no first model: veilsum keys first-model there, before)"
    )


def name_from(folder: Path) -> str:
    """The folder's own name, as far as a federation may be called that."""
    kept = "".join(
        one if one.isascii() and (one.isalnum() or one in "._-") else "-" for one in folder.resolve().name
    )
    return kept.lstrip("._-")[:64] or "federation"


def _scheme_if_allowed(config: FederationConfig) -> Scheme | None:
    return None if config.names_own_scheme and config.code.refusal else config.load_scheme()


def _read_settings(path: Path) -> tuple[Path, FederationConfig]:
    file = settings_file(path)
    return file.parent, FederationConfig.from_toml(file)
