"""An organiser is trusted with settings and code, and can put nothing where only a party's own files belong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.invited import contents, invited
from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.invitations.invitation_file import InvitationFile, read_invitation
from veilsum.roles.invitations.inviting import invite
from veilsum.roles.invitations.joining import Place, settle

OUR_FILES = [
    "alice.enrolment",
    "federation.toml",
    "roster.json",
    "first-model.safetensors",
    "keys",
    "unheard-of.py",
]


def of_organiser(fed: Path, **values: object) -> InvitationFile:
    """An invitation that the organiser changed before it was signed."""
    changed = replace(read_invitation(invited(fed)), **values)  # type: ignore[arg-type]  # of any field
    return changed.signed_by(load_identity(fed / "organiser"))


@pytest.mark.parametrize(
    "target",
    [
        "keys/alice/identity.json",
        "roster.json",
        "broker",
        "broker/../keys/alice/pin",
        "/etc/ca.pem",
        "state/x",
    ],
)
def test_the_authority_of_the_broker_lands_among_the_brokers_files_only(
    fed: Path, tmp_path: Path, target: str
) -> None:
    settings = read_invitation(invited(fed)).settings.replace("broker/ca.pem", target)
    (fed / "invitations" / "alice.invite").unlink()
    evil = of_organiser(fed, settings=settings, authority="{}")
    with refusal(ParameterError, "broker/ca.pem"):
        settle(Place(tmp_path / "alice", evil))
    assert not (tmp_path / "alice").exists()


@pytest.mark.parametrize("name", OUR_FILES)
def test_no_file_comes_with_an_invitation_that_its_settings_do_not_name_as_code(
    fed: Path, tmp_path: Path, name: str
) -> None:
    evil = of_organiser(fed, code={name: b"{}"})
    with refusal(ParameterError, name):
        settle(Place(tmp_path / "alice", evil))
    assert not (tmp_path / "alice").exists()


def test_an_organiser_hears_before_it_invites_that_an_authority_elsewhere_is_not_taken(fed: Path) -> None:
    file = fed / "federation.toml"
    file.write_text(file.read_text().replace("broker/ca.pem", "ca.pem"))
    (fed / "ca.pem").write_bytes((fed / "broker" / "ca.pem").read_bytes())
    before = contents(fed)
    with refusal(ParameterError, "broker/ca.pem"):
        invite(fed, fed / "organiser", ["alice"], days=30)
    assert contents(fed) == before
