"""Rows, verdicts and the page: what a reader is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli import main as cli
from veilsum.simulations.attacks.attack import Attack, GradientInversion
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit
from veilsum.simulations.attacks.registry import ATTACKS, find_attack
from veilsum.simulations.audit import experiments, runner
from veilsum.simulations.audit.report.markdown import CURVES, figures, marks, replace_figures, require_marks
from veilsum.simulations.audit.report.pictures import png
from veilsum.simulations.audit.report.verdicts import judge, verdicts, warnings
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.asides import BrokerJob, asides
from veilsum.simulations.audit.rows.evaluators import classes_shown
from veilsum.simulations.audit.rows.row import Row, table
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.stage import attackable_task, pixels
from veilsum.simulations.audit.sweeps.everything import SCHEMES, all_requests, left_out
from veilsum.simulations.audit.sweeps.sweeps import sweep_requests

SMOKE = find_scale("smoke")


def row(kind: str = "attack", ssim: float | None = 0.1, **changes: object) -> Row:
    settings: dict[str, object] = {
        "scheme": "masked",
        "defence": "none",
        "adversary": "server",
        "attack": "idlg",
        "knowledge": "L0",
        "row": kind,
        "target": "one upload of 1 image",
        "n": 4,
        "cpu_s": 1.0,
        "ssim": ssim,
        **changes,
    }
    return Row(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("attack", "null", "oracle", "word"),
    [(0.95, 0.1, 1.0, "leaks"), (0.5, 0.1, 1.0, "partly"), (0.1, 0.1, 1.0, "holds"), (0.1, 0.1, 0.3, "open")],
)
def test_defended_and_not_converged_are_told_apart(
    attack: float, null: float, oracle: float, word: str
) -> None:
    rows = [row(ssim=attack), row("null", null), row("oracle", oracle)]
    assert judge(rows[0], rows)[0] == word


def test_the_worst_attack_decides_the_cell() -> None:
    rows = [row(ssim=0.1), row(ssim=0.99, target="aggregate of 4 parties, 4 images"), row("oracle", 1.0)]
    found = verdicts(rows)
    assert [(one.word, one.scheme, one.adversary) for one in found] == [("leaks", "masked", "server")]
    assert any("Aggregation of few is not privacy" in text for text in warnings(rows))


def test_of_two_attacks_with_the_same_word_the_nearer_one_is_named() -> None:
    rows = [row(ssim=0.4), row(ssim=0.6, attack="dlg"), row("null", 0.0), row("null", 0.0, attack="dlg")]
    assert verdicts(rows)[0].reason.startswith("dlg")


def test_small_samples_are_called_small() -> None:
    assert any("n is at most 4" in text for text in warnings([row()]))
    assert not any("n is at most" in text for text in warnings([row(n=60)]))


def test_a_row_has_the_promised_figures() -> None:
    wanted = "scheme defence adversary attack knowledge n rmse ssim success_rate ci_low ci_high cpu_s"
    assert set(wanted.split()) <= row().figures().keys()
    assert "masked" in table([row()], "t").render()


def test_a_png_has_its_size_and_signature() -> None:
    data = png(np.zeros((1, 5, 7), np.float32))
    assert data.startswith(b"\x89PNG")
    assert data[16:24] == (7).to_bytes(4, "big") + (5).to_bytes(4, "big")
    with pytest.raises(ValueError, match="channels"):
        png(np.zeros((2, 5, 7), np.float32))


def test_unknown_attacks_scales_and_sizes_are_refused_with_the_allowed_ones() -> None:
    with refusal(ParameterError, "attack", "'idgl'", "idlg"):
        find_attack("idgl")
    with pytest.raises(ParameterError, match="smoke, quick, full"):
        find_scale("huge")
    with pytest.raises(ParameterError, match="at least 2"):
        Request("plain", "server", "idlg", SMOKE, parties=1)


def test_every_attack_says_what_it_is_and_has_an_experiment_of_its_kind() -> None:
    for name, entry in ATTACKS.items():
        assert entry.name == name
        assert entry.summary
        measured = next(kind for kind in type(entry).__mro__ if kind in experiments.EXPERIMENTS)
        assert measured is not Attack, f"{name} has only the rows of an unknown kind"


def test_an_attack_that_does_not_fit_says_so_before_it_starts() -> None:
    request = Request("plain", "broker", "idlg", SMOKE)
    with pytest.raises(AttackDoesNotFit, match="envelopes only"):
        list(experiments.rows_of(request, runner.Steps()))


def test_a_task_without_images_is_refused() -> None:
    with pytest.raises(ParameterError, match="no images"):
        list(
            experiments.rows_of(Request("plain", "server", "idlg", SMOKE, task="vectors:10"), runner.Steps())
        )


def test_more_images_than_there_are_is_refused() -> None:
    with pytest.raises(ParameterError, match="digits has"):
        list(experiments.rows_of(Request("plain", "server", "idlg", SMOKE, images=1000), runner.Steps()))


def test_ctrl_c_keeps_the_rows_done_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> object:
        yield row()
        raise KeyboardInterrupt

    monkeypatch.setitem(experiments.EXPERIMENTS, GradientInversion, interrupted)
    outcome = runner.run_requests([Request("plain", "server", "idlg", SMOKE)] * 2)
    assert outcome.interrupted
    assert len(outcome.rows) == 1
    assert outcome.figures()["complete"] is False


def test_the_command_writes_table_json_and_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, page = tmp_path / "out.json", tmp_path / "out.html"
    arguments = ["audit", "run", "--attack", "analytic", "--json", str(target), "--html", str(page)]
    monkeypatch.setattr("sys.argv", ["veilsum", *arguments])
    assert cli.main(arguments) == 0
    written = json.loads(target.read_text())
    kinds = [one["row"] for one in written["rows"]]
    assert kinds == ["attack", "null", "oracle"] * 2
    assert [one["images_per_party"] for one in written["rows"]] == [1] * 3 + [16] * 3
    assert [one["case"] for one in written["verdicts"]] == ["worst case", "realistic batch"]
    assert len(written["summary"]) == 3
    assert written["rows"][0]["ssim"] > 0.99
    assert written["rows"][1]["ssim"] < 0.3
    assert "veilsum audit run --attack analytic" in page.read_text()
    assert "LEAKS" in capsys.readouterr().out


def test_the_list_names_every_attack(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ATTACKS)


def test_perturbation_hides_from_a_client_that_does_nothing_and_not_from_one_that_fits() -> None:
    """Raw predictions are near chance; after a fit on the client's own labels they are the true model's."""
    request = Request("perturbed", "client", "perturbation", SMOKE)
    rows = list(experiments.rows_of(request, runner.Steps()))
    agreement = {one.target: one.extra["agreement"] for one in rows}
    assert agreement["predictions: does nothing; ce, scale+offset, m = 10"] < 0.3
    assert agreement["predictions: fit on own labels; ce, scale+offset, m = 10"] > 0.95
    assert {one.row for one in rows} == {"attack", "undefended", "null", "oracle"}
    with pytest.raises(ParameterError, match="perturbed and bilateral"):
        list(experiments.rows_of(Request("plain", "client", "perturbation", SMOKE), runner.Steps()))


def test_a_view_is_saved_and_attacked_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["veilsum", "audit", "run"])
    saved, out = tmp_path / "run.view", tmp_path / "out.json"
    assert cli.main(["audit", "run", "--attack", "analytic", "--save-view", str(saved)]) == 0
    assert cli.main(["audit", "run", "--attack", "analytic", "--view", str(saved), "--json", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [one["row"] for one in rows] == ["attack"] * 4 + ["null"]
    assert "no truth is known" in capsys.readouterr().out
    saved.write_bytes(b"something else")
    assert cli.main(["audit", "run", "--view", str(saved)]) == 2
    require_mentions(capsys.readouterr().err, saved, "view")


def test_no_attack_fits_the_broker_under_any_scheme() -> None:
    jobs = [
        job
        for job in asides(Request("plain", "server", "analytic", SMOKE), SCHEMES)
        if isinstance(job, BrokerJob)
    ]
    rows = [one for job in jobs for one in job.items(runner.Steps())]
    assert [one.scheme for one in rows] == list(SCHEMES)
    assert {one.word for one in verdicts(rows)} == {"holds"}


def test_everything_covers_every_attack_but_the_heavy_ones_at_smoke_scale_and_says_so() -> None:
    named = {one.attack for one in all_requests(SMOKE, 7, "digits", None)}
    heavy = {name for name, entry in ATTACKS.items() if entry.heavy}
    assert named == set(ATTACKS) - heavy
    assert all(name in next(left_out(SMOKE)) for name in heavy)
    full = {one.attack for one in all_requests(find_scale("full"), 7, "digits", None)}
    assert full == set(ATTACKS)


def test_figures_go_between_the_marks_of_a_page_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = marks("figures")
    page.write_text(f"before\n{begin}\nstale\n{end}\nafter\n")
    require_marks(page)
    replace_figures(
        page, figures("veilsum audit all", [row()], [("plain", "server", "recovers", "recovers")], ["note"])
    )
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "stale" not in text
    assert "| masked | none | server | idlg |" in text
    with pytest.raises(ParameterError, match="ppc: begin"):
        require_marks(page, CURVES)
    bare = tmp_path / "bare.md"
    bare.write_text("nothing")
    with pytest.raises(ParameterError, match="figures: begin"):
        require_marks(bare)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_files_that_cannot_be_written_are_refused_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(*_: object) -> None:
        raise AssertionError("a federation was played")

    monkeypatch.setattr("veilsum.simulations.audit.request.play", played)
    for command in (["run"], ["ppc"], ["all"]):
        for option in ("--json", "--html"):
            assert cli.main(["audit", *command, option, "/proc/report"]) == 2
            assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "9999"])
def test_a_number_of_workers_out_of_range_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "run", "--workers", text]) == 2
    assert "from 1 to" in capsys.readouterr().err


def test_what_a_rebuilt_image_shows_is_judged_by_someone_who_took_no_part() -> None:
    """The evaluator tells true test images apart, and a grey image shows it next to nothing."""
    request = Request("plain", "server", "idlg", SMOKE)
    task = attackable_task(request.config())
    seen = classes_shown(request, pixels(task.train))
    assert np.mean(seen == task.train.targets) > 0.85
    assert (
        np.mean(classes_shown(request, np.full((50, 1, 8, 8), 0.5, np.float32)) == task.train.targets[:50])
        < 0.3
    )


def test_sweeps_go_over_images_parties_and_local_steps() -> None:
    quick, full = (list(sweep_requests(find_scale(name), 7, "digits", None)) for name in ("quick", "full"))
    assert {one.images for one in quick} == {1, 2, 4, 8}
    assert {one.parties for one in quick if one.scheme == "masked"} >= {2, 8, 16}
    assert {one.local_epochs for one in quick} >= {2, 5}
    assert all(one.parties * one.images * one.scale.draws >= 50 for one in full)
    assert len(list(sweep_requests(SMOKE, 7, "digits", None))) == 2
