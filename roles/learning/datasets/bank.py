"""`bank`: UCI Bank Marketing (S. Moro, P. Cortez, P. Rita, 2014): will a client subscribe to a term deposit?

The rows of the official file are ordered by date, so the split `by-order` gives parties that differ. A
fifth of the rows is for testing. `duration`, the length of the call, is known only when the outcome is: it
is left out unless the task is written `bank:with-duration`.

Columns are one-hot over the categories of the official description, and numbers are standardised by the
mean and standard deviation of the official file, written down here. So a party that holds only some of the
rows makes the same columns as all others, which statistics of its own rows would not give. With loss mse
(the papers' regression task, and the default) the model has one output; with ce it has two.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from veilsum.roles.learning.datasets.common import held_out
from veilsum.roles.learning.datasets.files import find_file, missing, open_maybe_gzip, require_folder
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.task import Samples, TaskOptions

DEFAULT_MODEL = "mlp3"
NAMES = tuple(
    f"{folder}bank-additional-full.csv{ending}"
    for folder in ("", "bank-additional/")
    for ending in ("", ".gz")
)
ACCEPTED = (
    "the official bank-additional-full.csv (';' between columns, a header, target y), with or without .gz"
)
WITH_DURATION = "with-duration"

CATEGORIES = {
    "job": "admin. blue-collar entrepreneur housemaid management retired self-employed services student "
    "technician unemployed unknown",
    "marital": "divorced married single unknown",
    "education": "basic.4y basic.6y basic.9y high.school illiterate professional.course "
    "university.degree unknown",
    "default": "no yes unknown",
    "housing": "no yes unknown",
    "loan": "no yes unknown",
    "contact": "cellular telephone",
    "month": "jan feb mar apr may jun jul aug sep oct nov dec",
    "day_of_week": "mon tue wed thu fri",
    "poutcome": "failure nonexistent success",
}
MEAN_AND_DEVIATION = {
    "age": (40.0241, 10.4211),
    "duration": (258.285, 259.276),
    "campaign": (2.56759, 2.76998),
    "pdays": (962.475, 186.909),
    "previous": (0.172963, 0.494895),
    "emp.var.rate": (0.0818855, 1.57094),
    "cons.price.idx": (93.5757, 0.578833),
    "cons.conf.idx": (-40.5026, 4.62814),
    "euribor3m": (3.62129, 1.73443),
    "nr.employed": (5167.04, 72.2507),
}
TARGET = {"no": 0, "yes": 1}


def bank(options: TaskOptions) -> SupervisedTask:
    if options.argument not in (None, WITH_DURATION):
        raise TaskError(f"task bank:{options.argument}: write bank or bank:{WITH_DURATION}")
    folder = require_folder("bank", options, ACCEPTED)
    path = find_file(folder, NAMES)
    if path is None:
        raise missing("bank", folder, NAMES[:2], ACCEPTED)
    everything = read_bank(path, with_duration=options.argument == WITH_DURATION)
    for_test = held_out(len(everything))
    train = everything.take(np.flatnonzero(~for_test))
    test = everything.take(np.flatnonzero(for_test))
    loss = options.loss or "mse"
    outputs = 1 if loss == "mse" else len(TARGET)
    network = partial(build_model, options.model or DEFAULT_MODEL, train.input_shape, outputs)
    return SupervisedTask(train, test, network, loss)


def read_bank(path: Path, with_duration: bool) -> Samples:
    """All rows as standardised numbers, then one-hot categories; labels 0 and 1."""
    numeric = [name for name in MEAN_AND_DEVIATION if with_duration or name != "duration"]
    rows, labels = [], []
    with open_maybe_gzip(path) as handle:
        reader = csv.DictReader(io.TextIOWrapper(handle, encoding="utf-8"), delimiter=";")
        _require_columns(path, reader.fieldnames or (), [*numeric, *CATEGORIES, "y"])
        for row in reader:
            try:
                rows.append([_standardised(name, row[name]) for name in numeric] + _one_hot(row))
                labels.append(_position("y", row["y"], list(TARGET)))
            except ValueError as error:
                raise TaskError(f"{path}, line {reader.line_num}: {error}") from error
    if len(rows) < 2:
        raise TaskError(f"{path} has {len(rows)} rows of data")
    return Samples(np.array(rows, dtype=np.float32), np.array(labels, dtype=np.int64))


def _require_columns(path: Path, header: Iterable[str], wanted: list[str]) -> None:
    absent = sorted(set(wanted) - set(header))
    if absent:
        raise TaskError(f"{path} has no column {', '.join(absent)}; needed: {ACCEPTED}")


def _standardised(name: str, text: str | None) -> float:
    mean, deviation = MEAN_AND_DEVIATION[name]
    try:
        return (float(text or "") - mean) / deviation
    except ValueError:
        raise ValueError(f"{name} is {text!r}, not a number") from None


def _one_hot(row: dict[str, str]) -> list[float]:
    columns: list[float] = []
    for name, text in CATEGORIES.items():
        categories = text.split()
        position = _position(name, row[name], categories)
        columns += [float(index == position) for index in range(len(categories))]
    return columns


def _position(name: str, text: str | None, categories: list[str]) -> int:
    if text not in categories:
        raise ValueError(f"{name} is {text!r}, not one of {', '.join(categories)}")
    return categories.index(text)
