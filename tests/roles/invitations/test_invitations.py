"""An invitation leads one party in, with the right words and in time; whatever else is tried with it is refused."""

from __future__ import annotations

import base64
import io
import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.invited import CONFIG, NAMES, TypingPerson, answer, contents, invited, place_of, rewritten
from tests.support.refusals import refusal
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli import main as cli
from veilsum.roles.commands.run import join as join_command
from veilsum.roles.federation.enrolment import add_party, create_federation, create_party
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.federation.signed_roster import (
    RosterRefused,
    encode_roster,
    read_roster,
    sign_roster,
    write_roster,
)
from veilsum.roles.invitations import inviting, joining, json_file
from veilsum.roles.invitations.invitation_file import InvitationFile, read_invitation
from veilsum.roles.invitations.inviting import enrol, invite
from veilsum.roles.invitations.joining import entered, is_enrolled, settle, take_roster
from veilsum.roles.invitations.json_file import BadFile
from veilsum.roles.invitations.reply import read_reply
from veilsum.roles.invitations.words import WrongWords, require_words, words_of_identity
from veilsum.roles.process.context import RoleOptions
from veilsum.roles.process.disk.unbegun import is_unbegun

DAY_S = 86_400


def join(path: Path, folder: Path, typed: str, monkeypatch: pytest.MonkeyPatch, *more: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return cli.main(["join", str(path), "--folder", str(folder), *more])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("settings", lambda old: old.replace("clip = 8.0", "clip = 9.0")),
        ("name", lambda _: "bob"),
        ("until", lambda old: old + DAY_S),
        ("password", lambda _: "another"),
        ("authority", lambda _: None),
        ("id", lambda _: "00" * 16),
        ("code", lambda _: {"task.py": base64.b64encode(b"print()").decode()}),
        ("signature", lambda _: base64.b64encode(bytes(64)).decode()),
        ("role", lambda _: "server"),
        ("role", lambda _: "peer"),
        ("code", lambda _: {"../task.py": ""}),
        ("roster", lambda old: old.replace('"version": 1', '"version": 2')),
        ("more", lambda _: 1),
    ],
)
def test_a_tampered_invitation_is_refused(
    fed: Path, tmp_path: Path, field: str, value: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = invited(fed)
    words = read_invitation(path).words
    other = rewritten(
        path, tmp_path / "alice.invite", lambda one: one.update({field: value(one.get(field, ""))})
    )
    with pytest.raises((BadFile, RosterRefused)) as refused:
        read_invitation(other)
    assert str(other) in str(refused.value)
    assert join(other, tmp_path / "alice", words, monkeypatch) != 0
    assert not (tmp_path / "alice").exists()


def test_an_invitation_of_a_man_in_the_middle_has_other_words(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He makes a federation of the same name and settings, whose organiser is himself."""
    create_federation(tmp_path / "middle" / "fed", CONFIG, with_keys=False)
    ours, theirs = read_invitation(invited(fed)), invited(tmp_path / "middle" / "fed")
    assert join(theirs, tmp_path / "alice", ours.words, monkeypatch) == 2
    assert not (tmp_path / "alice").exists()


@pytest.mark.parametrize("typed", ["", "\n", "abandon " * 11, "lava dust", "abandon " * 12, "veilsum " * 12])
def test_wrong_words_are_refused_before_anything_is_written(
    fed: Path, tmp_path: Path, typed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = invited(fed)
    assert join(path, tmp_path / "alice", typed, monkeypatch) == 2
    assert not (tmp_path / "alice").exists()


def test_at_a_terminal_a_slip_is_told_and_the_words_are_asked_for_again(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = invited(fed)
    words = read_invitation(path).words
    typed = TypingPerson(f"{words} more\nqwerty {words.partition(' ')[2]}\n{words}\n")
    monkeypatch.setattr("sys.stdin", typed)
    assert cli.main(["join", str(path), "--folder", str(tmp_path / "alice")]) == 0
    said = capsys.readouterr().err
    assert "13 were typed" in said and "qwerty" in said and said.count("once more") == 2


def test_who_types_wrong_words_again_and_again_is_refused_in_the_end(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = invited(fed)
    typed = TypingPerson("qwerty\n" * (join_command.TRIES + 1))
    monkeypatch.setattr("sys.stdin", typed)
    assert cli.main(["join", str(path), "--folder", str(tmp_path / "alice")]) == 2
    assert typed.read() == "qwerty\n" and not (tmp_path / "alice").exists()


def test_one_wrong_word_is_named_by_its_place_and_four_letters_are_enough(fed: Path) -> None:
    words = read_invitation(invited(fed)).words.split()
    require_words(" ".join(word[:4].upper() for word in words), " ".join(words), "it", "stop")
    other = "abandon" if words[6] != "abandon" else "ability"
    with refusal(WrongWords, "7"):
        require_words(" ".join([*words[:6], other, *words[7:]]), " ".join(words), "it", "stop")
    with refusal(WrongWords, "qwerty"):
        require_words(" ".join([*words[:6], "qwerty", *words[7:]]), " ".join(words), "it", "stop")


def test_join_makes_keys_that_stay_and_a_file_without_secrets(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = invited(fed), tmp_path / "alice"
    assert join(path, folder, read_invitation(path).words, monkeypatch) == 0
    printed = capsys.readouterr().out
    identity = load_identity(folder / "keys" / "alice")
    assert words_of_identity(identity.public) in printed
    sent = (folder / "alice.enrolment").read_text()
    assert (
        json.loads((folder / "keys" / "alice" / "identity.json").read_text())["signing_private"] not in sent
    )
    assert read_invitation(path).password.reveal().decode() not in sent
    assert stat.S_IMODE((folder / "keys" / "alice").stat().st_mode) == 0o700
    assert read_reply(folder / "alice.enrolment").identity == identity.public


def test_code_of_the_settings_runs_only_after_the_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "study.py").write_text(f"open({str(ran)!r}, 'w').close()\nraise SystemExit('no task')\n")
    monkeypatch.chdir(tmp_path)
    fed = tmp_path / "fed"
    create_federation(
        fed, replace(CONFIG, task="./study.py:task", max_weight=9, split="own"), with_keys=False
    )
    path, folder = invited(fed), tmp_path / "alice"
    assert not ran.exists()
    assert join(path, folder, "abandon " * 12, monkeypatch) == 2
    place = place_of(path, folder)
    settle(place)
    assert not ran.exists()
    assert join(path, folder, "", monkeypatch) == 2
    assert ran.exists()
    assert not place.reply_file.exists()


def test_an_invitation_that_came_too_late_is_refused_by_both_sides(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = invited(fed)
    reply = answer(path, tmp_path / "alice")
    late = read_invitation(path).until + 1.0
    with monkeypatch.context() as later:
        later.setattr(joining, "date", lambda: late)
        later.setattr(inviting, "date", lambda: late)
        assert join(path, tmp_path / "other", read_invitation(path).words, monkeypatch) == 2
        assert not (tmp_path / "other").exists()
        assert place_of(path, tmp_path / "alice").is_settled
        with refusal(ParameterError, "invite", "--again"):
            enrol(fed, fed / "organiser", [reply], None)
        assert [one.invitation.name for one in invite(fed, fed / "organiser", [], days=30)] == list(NAMES)
    assert read_roster(fed / "roster.json").version == 1


def test_an_invitation_of_another_federation_does_not_take_over_a_folder(fed: Path, tmp_path: Path) -> None:
    answer(invited(fed), tmp_path / "alice")
    create_federation(tmp_path / "other", CONFIG, with_keys=False)
    before = contents(tmp_path / "alice")
    with refusal(ParameterError, "--folder"):
        place_of(invited(tmp_path / "other"), tmp_path / "alice").is_settled  # noqa: B018 - it refuses
    assert contents(tmp_path / "alice") == before


@pytest.mark.parametrize("mine", [True, False])
def test_an_invitation_of_another_party_does_not_take_over_a_folder(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: bool
) -> None:
    """Be it of the same federation or another; before, its settings and its roster replaced those that were there."""
    answer(invited(fed), tmp_path / "alice")
    create_federation(tmp_path / "other", CONFIG, with_keys=False)
    path = invited(fed if mine else tmp_path / "other", "bob")
    before = contents(tmp_path / "alice")
    assert join(path, tmp_path / "alice", read_invitation(path).words, monkeypatch) == 2
    assert contents(tmp_path / "alice") == before


def test_an_invitation_does_not_take_over_an_offices_folder(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_federation(tmp_path / "other", CONFIG, with_keys=False)
    assert inviting.make_server_keys(tmp_path / "other", tmp_path / "other" / "organiser")
    (tmp_path / "other").chmod(0o700)
    path, before = invited(fed), contents(tmp_path / "other")
    assert join(path, tmp_path / "other", read_invitation(path).words, monkeypatch) == 2
    assert contents(tmp_path / "other") == before


def test_settling_that_broke_off_is_done_by_the_same_invitation(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = invited(fed), tmp_path / "alice"
    with monkeypatch.context() as power_cut:
        power_cut.setattr(joining, "pin_organiser", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            settle(place_of(path, folder))
    keys = (folder / "keys" / "alice" / "identity.json").read_bytes()
    assert not place_of(path, folder).is_settled
    assert join(path, folder, read_invitation(path).words, monkeypatch) == 0
    assert (folder / "keys" / "alice" / "identity.json").read_bytes() == keys


def test_what_nobody_vouches_for_steers_no_terminal(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who changes a file on its way is its organiser, and names the federation as he likes."""
    found, organiser = read_invitation(invited(fed)), load_identity(fed / "organiser")
    agreed = {**found.signed.agreed, "name": "x\x1b[2K\rthe words are right\n"}
    signed = sign_roster(organiser, 1, found.signed.roster.identities, agreed)
    path = tmp_path / "alice.invite"
    path.write_bytes(replace(found, signed=signed).signed_by(organiser).encode())
    assert join(path, tmp_path / "alice", "", monkeypatch) == 2
    said = capsys.readouterr().err
    assert "\\x1b[2K" in said
    assert not {"\x1b", "\r"} & set(said)


def test_an_invitation_that_nobody_could_read_is_not_written(
    fed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = invited(fed)
    before = path.read_bytes()
    monkeypatch.setattr(json_file, "LARGEST", 100)
    with refusal(ParameterError, "100"):
        json_file.encode_object("x", 1, {"code": "c" * 100})
    with refusal(ParameterError, "100"):
        invite(fed, fed / "organiser", ["alice"], days=1, again=True)
    assert path.read_bytes() == before


def test_a_folder_with_something_else_in_it_is_left_alone(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = invited(fed)
    (tmp_path / "alice").mkdir()
    (tmp_path / "alice" / "thesis.tex").write_text("years of work")
    assert join(path, tmp_path / "alice", read_invitation(path).words, monkeypatch) == 2
    assert [one.name for one in (tmp_path / "alice").iterdir()] == ["thesis.tex"]


def test_a_roster_from_the_broker_counts_only_with_the_pinned_organisers_signature(
    fed: Path, tmp_path: Path
) -> None:
    place = place_of(invited(fed), tmp_path / "alice")
    settle(place)
    assert not is_enrolled(place, entered(place).signed)
    create_federation(tmp_path / "other", CONFIG, with_keys=False)
    before = (place.folder / "roster.json").read_bytes()
    with refusal(RosterRefused, "pinned"):
        take_roster(place, (tmp_path / "other" / "roster.json").read_bytes(), Path("roster.json"))
    assert (place.folder / "roster.json").read_bytes() == before
    old = read_roster(fed / "roster.json")
    create_party(tmp_path / "bob", "bob", Role.CLIENT)
    add_party(fed, fed / "organiser", tmp_path / "bob", None)
    take_roster(place, (fed / "roster.json").read_bytes(), Path("roster.json"))
    write_roster(tmp_path / "old.json", old)
    with refusal(RosterRefused, "newest"):
        take_roster(place, (tmp_path / "old.json").read_bytes(), Path("roster.json"))
    assert entered(place).signed.version == 2


def test_a_power_cut_leaves_no_roster_that_its_own_pin_refuses(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(invited(fed), tmp_path / "alice")
    settle(place)
    create_party(tmp_path / "bob", "bob", Role.CLIENT)
    add_party(fed, fed / "organiser", tmp_path / "bob", None)
    with monkeypatch.context() as power_cut:
        power_cut.setattr(Path, "replace", lambda *_: 1 / 0)
        power_cut.setattr(joining, "write_roster", lambda path, _: path.write_bytes(encode_roster(new)))
        new = read_roster(fed / "roster.json")
        with pytest.raises(ZeroDivisionError):
            take_roster(place, encode_roster(new), Path("roster.json"))
    assert entered(place).signed.version == 1
    take_roster(place, encode_roster(new), Path("roster.json"))
    assert entered(place).signed.version == 2


def test_who_is_not_enrolled_yet_is_told_what_to_send(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = invited(fed)
    reply = answer(path, tmp_path / "alice")
    monkeypatch.setattr(join_command, "NEWER_WITHIN_S", 0.1)
    assert join(path, tmp_path / "alice", "", monkeypatch, "--wait", "nan") == 2
    assert "--wait" in capsys.readouterr().err
    assert (
        join(path, tmp_path / "alice", "", monkeypatch, "--wait", "0.1", "--roster", str(fed / "roster.json"))
        == 2
    )
    said = capsys.readouterr().err
    assert str(reply) in said and "--roster" in said


def test_who_finds_no_broker_is_told_its_address_and_not_that_nobody_enrolled_it(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = invited(fed)
    answer(path, tmp_path / "alice")
    assert join(path, tmp_path / "alice", "", monkeypatch, "--wait", "0.1") == 1
    said = capsys.readouterr().err
    assert f"{CONFIG.broker_host}:{CONFIG.broker_port}" in said.splitlines()[-1]
    assert "not enrolled" not in said


def test_who_hosts_before_anybody_is_enrolled_is_told_to_enrol_and_of_no_first_model(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["invite", str(fed)]) == 0
    assert cli.main(["host", str(fed)]) == 2
    said = capsys.readouterr().err
    assert "roster add" in said and "first model" not in said


@pytest.mark.parametrize("fresh", [True, False])
def test_a_party_goes_on_unless_it_is_told_that_its_state_was_lost(
    fed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    path, folder = Path(shutil.copy(invited(fed), tmp_path / "alice.invite")), tmp_path / "alice"
    enrol(fed, fed / "organiser", [answer(path, folder)], None)
    keys = load_identity(folder / "keys" / "alice")
    assert is_unbegun(folder / "state" / "alice", keys.public)
    asked = []

    def run_role(_: Role, options: RoleOptions) -> int:
        asked.append((options.resume, options.fresh))
        return 0

    monkeypatch.setattr("veilsum.roles.process.run.run_role", run_role)
    more = ["--roster", str(fed / "roster.json"), *(["--fresh"] if fresh else [])]
    assert join(path, folder, "", monkeypatch, *more) == 0
    assert asked == [(not fresh, fresh)]


def test_the_password_of_an_invitation_is_in_no_repr(fed: Path) -> None:
    invitation = read_invitation(invited(fed))
    assert invitation.password.reveal().decode() not in repr(invitation)
    assert isinstance(invitation.password, Secret)
    assert isinstance(invitation, InvitationFile)
