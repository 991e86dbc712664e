"""Files of a stranger: what is nested, long or large beyond measure is a typed refusal like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.pins import PIN_FILE, read_pin
from veilsum.roles.federation.private_files import PrivateFileError, replace_private_file
from veilsum.roles.learning.model_files import ORDER, load_model

DEEP = "[" * 100_000
LONG_NUMBER = "9" * 5000
HEX_NUMBER = "0x" + "f" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        f"x = {DEEP}",
        f"x = {'[' * 300}{']' * 300}",
        f"[federation]\nparties = {'[' * 300}{']' * 300}",
        f"[federation]\nrounds = {LONG_NUMBER}",
        f"[federation]\nrounds = {HEX_NUMBER}",
        f"[federation]\nseed = {HEX_NUMBER}",
        f"[federation]\nparties = {HEX_NUMBER}",
        f"[federation]\nparties = [{HEX_NUMBER}]",
        f"[federation]\nname = {HEX_NUMBER}",
        f"[options]\nx = {HEX_NUMBER}",
        f"[numbers]\nclip = 1{'0' * 400}",
        f"[numbers]\nclip = {HEX_NUMBER}",
        f"{'a.' * 5000}b = 1",
    ],
)
def test_nesting_and_numbers_beyond_measure_are_refused_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(text)
    with pytest.raises(ParameterError) as refused:
        FederationConfig.from_toml(path)
    assert refused.value.problems
    for problem in refused.value.problems:
        assert str(path) in problem and len(problem) < 2000


@pytest.mark.parametrize("order", ["[" * 100_000, "5", '{"a": 1}', "null"])
def test_an_order_of_tensors_that_is_none_is_refused_by_name(order: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"weight": np.zeros(3, dtype=np.float32)}, metadata={ORDER: order}))
    with refusal(LocalProtocolError, path, "order"):
        load_model(path)


def test_a_pin_that_is_nested_beyond_measure_is_refused_by_name(tmp_path: Path) -> None:
    replace_private_file(tmp_path / "keys" / PIN_FILE, b"[" * 60_000)
    with refusal(PrivateFileError, tmp_path / "keys" / PIN_FILE):
        read_pin(tmp_path / "keys")
