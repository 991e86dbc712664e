"""`veilsum bench perturbed` prints and writes what it measured, and refuses what cannot be measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.refusals import require_mentions
from veilsum.roles.cli.main import main

RATIOS = ("client_over_plain", "client_over_plain_same_layout", "server_over_plain", "upload_over_plain")


def test_the_command_prints_ratios_and_phases_and_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "bench.json"
    words = "bench perturbed --model mlp3 --batch 4 --loss ce --groups 2 --turns 1 --json"
    assert main([*words.split(), str(target)]) == 0
    printed, figures = capsys.readouterr().out, json.loads(target.read_text())
    assert all(name in printed and figures[name] > 0 for name in RATIOS)
    assert set(figures["phases_s"]) == {"plain_client", "plain_server", "client", "server"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--batch 0", "batch 1"),
        ("--turns 0", "turns 1"),
        ("--model mlp3 --groups 11", "11 groups 10"),
        ("--model mpl3", "mpl3"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_name(
    words: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "perturbed", *words.split()]) != 0
    require_mentions(capsys.readouterr().err, *says.split())
