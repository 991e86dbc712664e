"""The organiser enrols who answers the newest invitation, once; whatever else comes back is refused."""

from __future__ import annotations

import base64
import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.invited import CONFIG, NAMES, TypingPerson, answer, contents, invited, place_of, rewritten
from tests.support.refusals import refusal
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import ParameterError
from veilsum.roles.broker.files import read_logins
from veilsum.roles.broker.logins import password_matches
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.enrolment import create_federation, create_party, evict_party, sign_again
from veilsum.roles.federation.folder import load_federation, require_complete
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.federation.signed_roster import RosterRefused, read_roster
from veilsum.roles.invitations.invitation_file import read_invitation
from veilsum.roles.invitations.inviting import enrol, invite, make_server_keys, revoke
from veilsum.roles.invitations.joining import is_enrolled, take_roster
from veilsum.roles.invitations.json_file import BadFile
from veilsum.roles.invitations.reply import read_reply
from veilsum.roles.invitations.words import words_of_identity
from veilsum.transport.mqtt.topics import Topics


def test_all_parties_are_invited_and_enrolled_and_the_federation_is_complete(
    fed: Path, tmp_path: Path
) -> None:
    assert make_server_keys(fed, fed / "organiser")
    assert not make_server_keys(fed, fed / "organiser")
    sent = invite(fed, fed / "organiser", [], days=30)
    assert [one.invitation.name for one in sent] == list(NAMES)
    assert all(stat.S_IMODE(one.path.stat().st_mode) == 0o600 for one in sent)
    assert invite(fed, fed / "organiser", [], days=30) == []
    enrol(fed, fed / "organiser", [answer(one.path, tmp_path / one.invitation.name) for one in sent], None)
    loaded = load_federation(fed)
    require_complete(loaded)
    assert loaded.signed.version == 3
    for name in NAMES:
        public = load_identity(tmp_path / name / "keys" / name).public
        assert loaded.roster.identity(name) == public
        assert not (fed / "invitations" / f"{name}.invite").exists()


def test_a_login_of_an_invitation_reads_the_roster_and_nothing_else_until_the_enrolment(
    fed: Path, tmp_path: Path
) -> None:
    path = invited(fed)
    loaded = load_federation(fed)
    password = read_invitation(path).password.reveal().decode()
    assert password_matches(read_logins(fed / "broker", loaded.federation_id)["alice"], password)
    login = Topics(loaded.federation_id).login("alice")

    def rules() -> list[str]:
        blocks = (fed / "broker" / "acl").read_text().split("\n\n")
        (block,) = (one for one in blocks if one.startswith(f"user {login}\n"))
        return block.splitlines()[1:]

    assert [line.split()[1] for line in rules()] == ["read"]
    assert rules()[0].endswith("/organiser/notice")
    enrol(fed, fed / "organiser", [answer(path, tmp_path / "alice")], None)
    assert len(rules()) > 1
    line = read_logins(fed / "broker", loaded.federation_id)["alice"]
    assert not password_matches(line, password), "whoever stole the invitation is shut out by the enrolment"
    own = (tmp_path / "alice" / "keys" / "alice" / "broker-password").read_text().strip()
    assert password_matches(line, own)


def test_an_invitation_enrols_once(fed: Path, tmp_path: Path) -> None:
    path = invited(fed)
    copied = shutil.copy(path, tmp_path / "stolen.invite")
    first, second = answer(path, tmp_path / "alice"), answer(Path(copied), tmp_path / "thief")
    enrol(fed, fed / "organiser", [first], None)
    with refusal(ParameterError, "alice", "evict", "enrolled"):
        enrol(fed, fed / "organiser", [second], None)
    with refusal(ParameterError, "alice", "evict"):
        invite(fed, fed / "organiser", ["alice"], days=30)
    assert read_roster(fed / "roster.json").version == 2
    public = load_identity(tmp_path / "alice" / "keys" / "alice").public
    assert load_federation(fed).roster.identity("alice") == public


def test_a_used_invitation_stays_used_when_its_record_is_all_that_is_left(fed: Path, tmp_path: Path) -> None:
    reply = answer(invited(fed), tmp_path / "alice")
    before = (fed / "roster.json").read_bytes()
    enrol(fed, fed / "organiser", [reply], None)
    (fed / "roster.json").write_bytes(before)
    with refusal(ParameterError, "used", "--again"):
        enrol(fed, fed / "organiser", [reply], None)


def test_a_party_that_was_evicted_needs_another_invitation_and_another_folder(
    fed: Path, tmp_path: Path
) -> None:
    path = invited(fed)
    kept = Path(shutil.copy(path, tmp_path / "alice.invite"))
    reply = answer(path, tmp_path / "alice")
    enrol(fed, fed / "organiser", [reply], None)
    evict_party(fed, fed / "organiser", "alice")
    with refusal(ParameterError, "alice", "evicted", "--again"):
        enrol(fed, fed / "organiser", [reply], None)
    place = place_of(kept, tmp_path / "alice")
    signed = take_roster(place, (fed / "roster.json").read_bytes(), Path("roster.json"))
    with refusal(ParameterError, "alice", "evicted", "invitation"):
        is_enrolled(place, signed)
    again = invited(fed)
    with refusal(ParameterError, "--folder"):
        place_of(again, tmp_path / "alice").is_settled  # noqa: B018 - it refuses
    enrol(fed, fed / "organiser", [answer(again, tmp_path / "alice-2")], None)
    assert load_federation(fed).roster.participants == ("alice",)


@pytest.mark.parametrize(
    ("typed", "more", "enrols"),
    [("yes\n", [], True), ("y\n", [], False), ("no\n", [], False), ("", [], False), ("", ["--yes"], True)],
)
def test_at_a_terminal_nobody_is_enrolled_before_the_words_were_compared(
    fed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    typed: str,
    more: list[str],
    enrols: bool,
) -> None:
    path = invited(fed)
    reply, before = answer(path, tmp_path / "alice"), contents(fed)
    monkeypatch.setattr("sys.stdin", TypingPerson(typed))
    assert cli.main(["roster", "add", str(fed), str(reply), *more]) == (0 if enrols else 2)
    assert words_of_identity(read_reply(reply).identity) in capsys.readouterr().out
    assert (contents(fed) != before) is enrols


def test_who_has_an_open_invitation_is_shown_its_words_again_and_nothing_changes(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["invite", str(fed)]) == 0
    path = fed / "invitations" / "alice.invite"
    words, before = read_invitation(path).words, contents(fed)
    assert words in capsys.readouterr().out
    assert cli.main(["invite", str(fed), "--name", "alice"]) == 0
    said = capsys.readouterr().out
    assert words in said and str(path) in said
    assert contents(fed) == before
    assert cli.main(["invite", str(fed), "--name", "alice", "--again"]) == 0
    assert words not in capsys.readouterr().out


def test_who_sends_the_invitation_back_is_asked_for_the_answer(fed: Path) -> None:
    path, before = invited(fed), contents(fed)
    with refusal(ParameterError, "alice", path, "alice.enrolment"):
        enrol(fed, fed / "organiser", [path], None)
    assert contents(fed) == before


def test_who_hosts_without_having_invited_is_told_to_invite(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["host", str(fed)]) == 2
    assert f"veilsum invite {fed}" in capsys.readouterr().err


def test_a_federation_that_waits_for_a_party_names_it_and_how_to_begin_without(tmp_path: Path) -> None:
    fed = tmp_path / "fed"
    parties = (*NAMES, "dora")
    create_federation(fed, replace(CONFIG, parties=parties, min_parties=3), with_keys=False)
    make_server_keys(fed, fed / "organiser")
    sent = invite(fed, fed / "organiser", NAMES, days=30)
    enrol(fed, fed / "organiser", [answer(one.path, tmp_path / one.invitation.name) for one in sent], None)

    with refusal(ParameterError, "dora", "enrolled", "sign", fed):
        require_complete(load_federation(fed))
    sign_again(fed, fed / "organiser")
    require_complete(load_federation(fed))


def test_a_replaced_invitation_and_a_revoked_one_enrol_nobody(fed: Path, tmp_path: Path) -> None:
    path = invited(fed)
    reply = answer(path, tmp_path / "alice")
    invite(fed, fed / "organiser", ["alice"], days=30, again=True)
    with refusal(ParameterError, "older", "alice"):
        enrol(fed, fed / "organiser", [reply], None)
    revoke(fed, "alice")
    assert "-alice" not in (fed / "broker" / "passwords").read_text() + (fed / "broker" / "acl").read_text()
    with refusal(ParameterError, "revoked", "alice"):
        enrol(fed, fed / "organiser", [reply], None)
    with refusal(ParameterError, "alice", "evict"):
        revoke(fed, "alice")
    assert read_roster(fed / "roster.json").version == 1


def test_an_answer_to_another_federation_is_refused(fed: Path, tmp_path: Path) -> None:
    create_federation(tmp_path / "other", CONFIG, with_keys=False)
    reply = answer(invited(tmp_path / "other"), tmp_path / "alice")
    invited(fed)
    before = contents(fed)
    with refusal(ParameterError, "another", reply):
        enrol(fed, fed / "organiser", [reply], None)
    assert contents(fed) == before


@pytest.mark.parametrize(
    "field", ["federation", "invitation", "identity", "login", "first_model", "model", "signature"]
)
def test_an_enrolment_file_that_was_changed_is_refused(fed: Path, tmp_path: Path, field: str) -> None:
    reply = answer(invited(fed), tmp_path / "alice")
    other = answer(invited(fed, "bob"), tmp_path / "bob")
    theirs = json.loads(other.read_text())
    theirs["model"] = base64.b64encode(bytes(range(28))).decode()
    theirs["federation"] = "another"
    rewritten(reply, reply, lambda one: one.update({field: theirs[field]}))
    before = contents(fed)
    with pytest.raises(BadFile) as refused:
        enrol(fed, fed / "organiser", [reply], None)
    assert str(reply) in str(refused.value)
    assert contents(fed) == before


def test_a_thiefs_keys_have_other_words_than_the_partys(fed: Path, tmp_path: Path) -> None:
    """What a stolen invitation is worth: keys of one's own, which the organiser notices when the words are compared."""
    path = invited(fed)
    mine, theirs = answer(path, tmp_path / "alice"), answer(path, tmp_path / "thief")
    assert words_of_identity(read_reply(mine).identity) != words_of_identity(read_reply(theirs).identity)


def public_file_of(reply: Path, target: Path) -> Path:
    """What a thief makes of an enrolment file: the party's own keys, as a public identity file without a login."""
    fields = json.loads(reply.read_text())["identity"]
    fingerprint = read_reply(reply).identity.fingerprint
    public = {"format": "veilsum public identity", "version": 1, **fields, "fingerprint": fingerprint}
    target.write_text(json.dumps(public))
    return target


def test_public_files_of_an_invited_party_are_refused_so_that_no_thief_keeps_the_invitations_login(
    fed: Path, tmp_path: Path
) -> None:
    reply = answer(invited(fed), tmp_path / "alice")
    altered = public_file_of(reply, tmp_path / "alice.enrolment")
    before = contents(fed)
    with refusal(ParameterError, altered, "alice.enrolment", "invite", "--revoke"):
        enrol(fed, fed / "organiser", [altered], None)
    with refusal(ParameterError, "--revoke"):
        enrol(fed, fed / "organiser", [tmp_path / "alice" / "keys" / "alice"], None)
    assert contents(fed) == before
    enrol(fed, fed / "organiser", [reply], None)


def test_who_is_enrolled_by_public_files_after_an_invitation_was_withdrawn_has_nothing_of_its_login(
    fed: Path, tmp_path: Path
) -> None:
    altered = public_file_of(answer(invited(fed), tmp_path / "alice"), tmp_path / "alice.enrolment")
    revoke(fed, "alice")
    enrol(fed, fed / "organiser", [altered], None)
    loaded = load_federation(fed)
    assert loaded.roster.participants == ("alice",)
    assert "alice" not in read_logins(fed / "broker", loaded.federation_id)


def test_a_login_that_is_at_the_broker_already_is_not_that_of_a_newcomer(fed: Path, tmp_path: Path) -> None:
    path = invited(fed)
    altered = public_file_of(answer(path, tmp_path / "alice"), tmp_path / "alice.enrolment")
    path.unlink()
    enrol(fed, fed / "organiser", [altered], None)
    assert "alice" not in read_logins(fed / "broker", load_federation(fed).federation_id)


def test_parties_are_enrolled_together_or_not_at_all(fed: Path, tmp_path: Path) -> None:
    good = answer(invited(fed), tmp_path / "alice")
    create_party(tmp_path / "dora", "dora", Role.CLIENT)
    before = contents(fed)
    with refusal(ParameterError, "dora"):
        enrol(fed, fed / "organiser", [good, tmp_path / "dora"], None)
    assert contents(fed) == before
    create_party(tmp_path / "bob", "bob", Role.CLIENT)
    assert enrol(fed, fed / "organiser", [good, tmp_path / "bob"], None).version == 2


def test_only_a_party_of_the_settings_is_invited(fed: Path) -> None:
    before = contents(fed)
    with refusal(ParameterError, "zoe", "federation.toml"):
        invite(fed, fed / "organiser", ["zoe"], days=30)
    with refusal(ParameterError, "--days"):
        invite(fed, fed / "organiser", ["alice"], days=0)
    with refusal(RosterRefused, "organiser"):
        create_party(fed.parent / "usurper", "server", Role.SERVER)
        invite(fed, fed.parent / "usurper", ["alice"], days=30)
    assert contents(fed) == before
