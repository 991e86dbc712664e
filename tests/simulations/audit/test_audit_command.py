"""`veilsum audit` as a command: what it refuses, and what its exit code says in CI."""

from __future__ import annotations

import argparse
import json
from collections import OrderedDict
from pathlib import Path

import pytest

from tests.simulations.audit.test_report import row
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.cli import main as cli
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.gradient.analytic import Analytic
from veilsum.simulations.attacks.gradient.matching import Reconstruction
from veilsum.simulations.attacks.gradient.targets import Target
from veilsum.simulations.audit import runner
from veilsum.simulations.audit.runner import Outcome
from veilsum.simulations.commands.audit.gate import gate

LEAK, QUIET = row(1, 0.99), [row(1, 0.1), row(1, 0.0, "null"), row(1, 1.0, "oracle")]


def ended(outcome: Outcome, fail_on: str | None = "leaks", *accept: str) -> int:
    return gate(outcome, argparse.Namespace(fail_on=fail_on, accept=list(accept)))


def test_a_leak_ends_with_3_only_where_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(Outcome([LEAK]), None) == 0
    assert ended(Outcome(QUIET)) == 0
    assert ended(Outcome([LEAK])) == 3
    require_mentions(capsys.readouterr().err, "masked/none/server")


def test_a_leak_of_single_images_alone_passes_where_batches_are_asked_about() -> None:
    quiet_batch = [row(16, 0.1), row(16, 0.0, "null"), row(16, 1.0, "oracle")]
    assert ended(Outcome([LEAK, *quiet_batch]), "batch-leaks") == 0
    assert ended(Outcome([LEAK, *quiet_batch]), "leaks") == 3
    assert ended(Outcome([LEAK, row(16, 0.95)]), "batch-leaks") == 3
    assert ended(Outcome([row(None, None, attack="mia-loss", extra={"auc": 0.9})]), "batch-leaks") == 3


def test_a_check_of_batches_names_what_was_attacked_in_the_worst_case_only_and_is_not_green_by_that_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    defended = row(1, 0.99, scheme="plain", defence="dp:sigma=1")
    batch = [row(16, 0.1), row(16, 0.0, "null"), row(16, 1.0, "oracle")]
    assert ended(Outcome([LEAK, *batch, defended]), "batch-leaks") == 0
    told = capsys.readouterr().err
    require_mentions(told, "worst", "plain/dp:sigma=1/server")
    assert "masked/none/server" not in told
    assert ended(Outcome([LEAK, defended]), "batch-leaks") == 1
    assert "nothing was judged" in capsys.readouterr().err
    assert ended(Outcome([LEAK, *batch, defended]), "leaks", "*/*/*") == 0
    assert capsys.readouterr().err == ""


def test_members_that_are_told_leak_in_training_too_where_no_batch_was_attacked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told, hidden = (row(None, None, attack="mia-loss", extra={"auc": auc}) for auc in (0.9, 0.5))
    assert ended(Outcome([LEAK, told]), "batch-leaks") == 3
    require_mentions(capsys.readouterr().err, "masked/none/server", "mia-loss", "worst")
    assert ended(Outcome([LEAK, told]), "batch-leaks", "masked/*/*") == 0
    assert ended(Outcome([LEAK, hidden]), "batch-leaks") == 0


def test_an_accepted_leak_passes_and_a_name_that_was_not_needed_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ended(Outcome([LEAK]), "leaks", "masked/none/server") == 0
    assert ended(Outcome([LEAK]), "leaks", "masked/*/*") == 0
    assert capsys.readouterr().err == ""
    assert ended(Outcome([LEAK]), "leaks", "plain/*/*") == 3
    require_mentions(capsys.readouterr().err, "plain/*/*", "masked/none/server")


def test_what_could_not_be_judged_is_no_success() -> None:
    assert ended(Outcome([row(1, float("nan")), *QUIET])) == 1
    assert ended(Outcome(QUIET, failed=["16 images of each party could not be attacked"])) == 1
    assert ended(Outcome()) == 1
    assert ended(Outcome([LEAK], failed=["something"])) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--accept", "plain/none/server"], "--fail-on"),
        (["--fail-on", "leaks", "--accept", "masked"], "scheme/defence/adversary"),
        (["--fail-on", "leaks", "--accept", "masked//server"], "scheme/defence/adversary"),
        (["--fail-on", "something"], "batch-leaks"),
    ],
)
@pytest.mark.parametrize("command", ["run", "all"])
def test_a_check_that_would_let_pass_by_mistake_is_refused_before_the_work(
    command: str,
    options: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forbid_playing(monkeypatch)
    assert cli.main(["audit", command, *options]) == 2
    require_mentions(capsys.readouterr().err, said)


@pytest.mark.parametrize(
    "option",
    [
        ["--adversary", "server"],
        ["--defence", "dp:sigma=0.1"],
        ["--task", "digits"],
        ["--data", "folder"],
        ["--model", "mlp2:64"],
        ["--parties", "4"],
        ["--rounds", "1"],
        ["--local-epochs", "2"],
        ["--save-view", "again.view"],
        ["--images", "1,16"],
    ],
)
def test_what_a_recorded_view_fixes_itself_cannot_be_named_beside_it(
    option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "run", "--view", "server.view", *option]) == 2
    require_mentions(capsys.readouterr().err, option[0], "view")


def test_requests_that_cannot_work_end_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid_playing(monkeypatch)
    missing = tmp_path / "missing.view"
    assert cli.main(["audit", "run", "--view", str(missing)]) == 2
    require_mentions(capsys.readouterr().err, missing)
    assert cli.main(["audit", "run", "--view", str(tmp_path)]) == 2
    require_mentions(capsys.readouterr().err, tmp_path)
    no_view = tmp_path / "notes.txt"
    no_view.write_text("no view")
    assert cli.main(["audit", "run", "--view", str(no_view)]) == 2
    require_mentions(capsys.readouterr().err, no_view)
    assert cli.main(["audit", "run", "--adversary", "broker"]) == 2
    require_mentions(capsys.readouterr().err, "broker")
    for images in ("0", "two", "1,", "-1"):
        assert cli.main(["audit", "run", "--images", images]) == 2
        require_mentions(capsys.readouterr().err, images)


def test_a_batch_that_nobody_asked_for_and_that_fails_keeps_the_rows_there_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def single(self: Analytic, target: Target, budget: Budget, seed: int) -> Reconstruction:
        if target.batch > 1:
            raise LocalProtocolError("single images only")
        return whole(self, target, budget, seed)

    whole = Analytic.invert
    monkeypatch.setattr(Analytic, "invert", single)
    monkeypatch.setattr("veilsum.simulations.audit.rows.memory._made", OrderedDict())
    asked = ["audit", "run", "--attack", "analytic"]
    assert cli.main(asked) == 0
    shown = capsys.readouterr().out
    assert "LEAKS" in shown
    assert "could not be attacked: single images only" in shown
    assert cli.main([*asked, "--fail-on", "batch-leaks"]) == 1
    assert "not judged" in capsys.readouterr().err
    assert cli.main([*asked, "--images", "1,16"]) == 1


def test_commands_end_with_3_on_a_leak_and_write_their_report_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    asked = ["--fail-on", "leaks", "--html", str(page)]
    assert cli.main(["audit", "run", "--scheme", "plain", "--attack", "analytic", *asked]) == 3
    require_mentions(capsys.readouterr().err, "plain/none/server")
    assert page.read_text().startswith("<!doctype html>")
    page.unlink()
    monkeypatch.setattr(runner, "run_requests", lambda *_, **__: Outcome([LEAK]))
    assert cli.main(["audit", "all", "--scale", "smoke", *asked]) == 3
    require_mentions(capsys.readouterr().err, "masked/none/server")
    assert page.read_text().startswith("<!doctype html>")


def test_what_no_truth_is_known_of_is_no_success_however_it_is_asked() -> None:
    formed = row(None, None, recorded=True, extra={"model_sha256": "00"})
    found = row(None, None, recorded=True, extra={"match_loss": 0.3})
    exact = row(None, None, recorded=True, extra={"match_loss": 1e-9})
    for asked in ("leaks", "batch-leaks"):
        assert ended(Outcome([formed]), asked) == 1
        assert ended(Outcome([found]), asked) == 1
        assert ended(Outcome([found, exact]), asked) == 3
    assert ended(Outcome([formed]), None) == 0


@pytest.mark.parametrize(
    ("played", "attack"),
    [
        (["--scheme", "plain", "--images", "4"], "analytic"),
        (["--scheme", "ampc", "--adversary", "coalition"], "ampc-coalition"),
    ],
)
def test_a_recorded_view_is_told_without_a_batch_and_without_a_verdict_on_the_attack(
    played: list[str], attack: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, out = tmp_path / "run.view", tmp_path / "out.json"
    assert cli.main(["audit", "run", *played, "--attack", attack, "--save-view", str(saved)]) == 0
    capsys.readouterr()
    again = ["audit", "run", "--view", str(saved), "--attack", attack, "--json", str(out)]
    assert cli.main([*again, "--scheme", played[1]]) == 0
    shown = capsys.readouterr().out
    for untrue in ("the attack failed", "without protection", "worst case", "upload of", "Small federations"):
        assert untrue not in shown
    require_mentions(shown, "recorded", "OPEN", "truth")
    (verdict,) = json.loads(out.read_text())["verdicts"]
    assert (verdict["case"], verdict["word"]) == ("recorded view", "open")
    assert not [one for one in json.loads(out.read_text())["rows"] if "images_per_party" in one]
    assert cli.main([*again, "--fail-on", "leaks"]) == 1
    require_mentions(capsys.readouterr().err, "judged", "recorded")


@pytest.mark.parametrize(("images", "leaks"), [("1", True), ("4", False)])
def test_how_well_images_explain_a_recorded_gradient_is_measured_for_attacks_that_never_look(
    images: str, leaks: bool, tmp_path: Path
) -> None:
    """Division gives images of a mixture and of a null target, too; those explain nothing."""
    saved, out = tmp_path / "run.view", tmp_path / "out.json"
    command = ["audit", "run", "--attack", "analytic"]
    assert cli.main([*command, "--images", images, "--save-view", str(saved)]) == 0
    asked = [*command, "--view", str(saved), "--json", str(out), "--fail-on", "leaks"]
    assert cli.main(asked) == (3 if leaks else 1)
    *found, null = json.loads(out.read_text())["rows"]
    assert all((row["match_loss"] < 1e-6) == leaks for row in found)
    assert null["match_loss"] > 0.1


def forbid_playing(monkeypatch: pytest.MonkeyPatch) -> None:
    def played(*_: object) -> None:
        raise AssertionError("a federation was played")

    monkeypatch.setattr("veilsum.simulations.audit.request.play", played)
