"""Samples from a CSV file: the named columns and nothing guessed, or a typed error with the line and the column."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.reading import csv_file
from veilsum.roles.learning.task import Samples

TEXT = "age,smoker,pulse,ill\n50,no,70,yes\n\n35,former,62.5,no\n"
SMOKER = {"smoker": ("no", "former", "yes")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text(TEXT)
    return path


def test_numbers_categories_and_classes_become_columns_in_the_order_asked_for(file: Path) -> None:
    samples = Samples.from_csv(
        file,
        target="ill",
        columns=("smoker", "age"),
        categories=SMOKER,
        classes=("no", "yes"),
        scale={"age": (40, 10)},
    )
    assert samples.inputs.tolist() == [[1, 0, 0, 1], [0, 1, 0, -0.5]]
    assert samples.targets.dtype == np.int64
    assert samples.targets.tolist() == [1, 0]


def test_all_columns_but_the_target_are_inputs_by_default_and_a_target_without_classes_is_a_value(
    file: Path,
) -> None:
    samples = Samples.from_csv(str(file), target="pulse", categories={**SMOKER, "ill": ("no", "yes")})
    assert samples.inputs.tolist() == [[50, 1, 0, 0, 0, 1], [35, 0, 1, 0, 1, 0]]
    assert samples.targets.dtype == np.float32
    assert samples.targets.tolist() == [70, 62.5]


@pytest.mark.parametrize("empty", ["", "NA", " nan ", "?"])
def test_a_missing_value_is_what_the_user_says_or_refused_with_line_and_column(
    file: Path, empty: str
) -> None:
    file.write_text(f"a,b,y\n1,2,3\n1,{empty},3\n")
    filled = Samples.from_csv(file, target="y", missing={"b": 9})
    assert filled.inputs.tolist() == [[1, 2], [1, 9]]
    with refusal(TaskError, file.name, 3, "'b'", "missing={'b':"):
        Samples.from_csv(file, target="y")


def test_a_word_for_missing_that_is_a_category_is_one(file: Path) -> None:
    file.write_text("a,y\nNA,1\nx,2\n")
    samples = Samples.from_csv(file, target="y", categories={"a": ("x", "NA")})
    assert samples.inputs.tolist() == [[0, 1], [1, 0]]


def test_a_mark_of_spreadsheets_quotes_and_other_delimiters_are_understood(file: Path) -> None:
    file.write_bytes('﻿"a";"y, z"\r\n"1";2\r\n'.encode())
    assert Samples.from_csv(file, target="y, z", delimiter=";").targets.tolist() == [2]


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("a,y\n1,2\nten,3\n", {}, "3 'a' 'ten' categories"),
        ("a,y\n1_000,3\n", {}, "2 'a' '1_000' number"),
        ("a,y\n1,ill\n", {}, "2 'y' 'ill' classes"),
        ("a,y\n1,ill\n", {"classes": ("no", "yes")}, "2 'y' 'ill' no yes classes"),
        ("a,y\nz,1\n", {"categories": {"a": ("x",)}}, "2 'a' 'z' x categories"),
        ("a,y\n1\n", {}, "2 1 2"),
        ("a,y\n1,2,3\n", {}, "2 3"),
        ("a,y\n1e99,2\n", {}, "2 'a' float32"),
        ("a,y\n1e9,2\n", {"scale": {"a": (0, 1e-30)}}, "2 'a' float32"),
        ("a,y\ninf,2\n", {}, "2 'a' float32"),
        ("a,a,y\n1,1,2\n", {}, "'a' two"),
        ("a,b\n1,2\n", {}, "'y' 'a' 'b'"),
        ("a,y\n1,2\n", {"columns": ("a", "c")}, "'c'"),
        ("a,y\n1,2\n", {"scale": {"d": (0, 1)}}, "'d'"),
        ("a,y\n1,2\n", {"scale": {"a": (0, 0)}}, "'a' deviation"),
        ("a,y\n1,2\n", {"columns": ("a", "y")}, "'y' target"),
        ("y\n1\n", {}, "'y' besides"),
        ("a,y\n", {}, "row"),
        ("", {}, "'y' empty"),
        ("\n\n", {}, "'y' empty"),
        ("a;y\n1;2\n", {}, "'y' 'a;y' delimiter=';'"),
        ('"a, b";"c";"y"\n1;2;3\n', {}, "delimiter=';'"),
        ("a\ty\n1\t2\n", {"delimiter": ";"}, "delimiter='\\t'"),
        ('a,y\n"1,2\n', {}, "CSV"),
        ("a,y\n1,2\n", {"delimiter": "ab"}, "'ab'"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_makes_no_samples_is_refused_with_where_it_stands(
    file: Path, text: str, options: dict[str, Any], says: str
) -> None:
    file.write_text(text)
    with refusal(TaskError, *says.split()):
        Samples.from_csv(file, target="y", **options)


def test_no_other_separator_is_suggested_where_the_header_has_the_named_one(file: Path) -> None:
    file.write_text("a,b;c\n1,2\n")
    with refusal(TaskError, "'y'") as caught:
        Samples.from_csv(file, target="y")
    assert "delimiter" not in str(caught.value)


def test_a_packed_file_is_read_as_what_is_in_it(file: Path) -> None:
    packed = file.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(TEXT.encode("utf-8-sig")))
    options: dict[str, Any] = {"target": "pulse", "categories": {**SMOKER, "ill": ("no", "yes")}}
    assert (
        Samples.from_csv(packed, **options).inputs.tolist()
        == Samples.from_csv(file, **options).inputs.tolist()
    )


@pytest.mark.parametrize(
    "content",
    [b"a,y\n1,2\n", gzip.compress(b"a,y\n" + b"1,2\n" * 999)[:40], b"\x1f\x8b\x08"],
    ids=["not packed", "cut off", "a head alone"],
)
def test_a_packed_file_that_is_none_or_is_cut_off_is_named(file: Path, content: bytes) -> None:
    packed = file.with_suffix(".csv.gz")
    packed.write_bytes(content)
    with refusal(TaskError, packed.name):
        Samples.from_csv(packed, target="y")


@pytest.mark.parametrize("bound", ["MOST_UNPACKED", "LONGEST_LINE"])
def test_a_packed_file_unpacks_to_so_much_and_no_more(
    file: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = file.with_suffix(".csv.gz")
    packed.write_bytes(gzip.compress(b"a,y\n" + b"1,2\n" * 30))
    assert len(Samples.from_csv(packed, target="y")) == 30
    monkeypatch.setattr(csv_file, bound, 100 if bound == "MOST_UNPACKED" else 3)
    with refusal(TaskError, packed.name, "characters", getattr(csv_file, bound)):
        Samples.from_csv(packed, target="y")


def test_a_file_that_cannot_be_read_is_named(file: Path, tmp_path: Path) -> None:
    with refusal(TaskError, "absent.csv"):
        Samples.from_csv(tmp_path / "absent.csv", target="y")
    file.write_bytes(b"a,y\n\xff,1\n")
    with refusal(TaskError, file.name, "UTF-8"):
        Samples.from_csv(file, target="y")
