"""What the tests of learning share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.task import Task, TaskOptions


@pytest.fixture(scope="session")
def digits() -> Task:
    task = load_task("digits", TaskOptions(seed=7))
    assert not isinstance(task, VectorsTask)
    return task


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets, for tests that need them."""
    folder = os.environ.get("VEILSUM_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("VEILSUM_DATA names no folder with the real data sets")
    return Path(folder)
