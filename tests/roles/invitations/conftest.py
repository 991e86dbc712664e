"""A federation at an office, to which parties are invited."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.invited import CONFIG
from veilsum.roles.federation.enrolment import create_federation


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    create_federation(tmp_path / "office" / "fed", CONFIG, with_keys=False)
    return tmp_path / "office" / "fed"
