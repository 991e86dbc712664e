"""Every vector of the numbers holds for our code and for a second implementation of the same sentence.

The second implementation is plain Python arithmetic for the encoding and the other crypto library for the
streams. Good files must give the stated values, files named `*_bad_<defect>` the stated error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from Crypto.Cipher import AES

from tests.support.make_vectors_numbers import FOLDER, build, encoding_of
from veilsum.protocol import errors
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.numbers.ring import Ring
from veilsum.protocol.numbers.stream import apply_masks

SUBJECTS = ("fixedpoint", "stream")
FILES = sorted(path for path in FOLDER.glob("*.json") if path.stem.split("_")[0] in SUBJECTS)

Case = dict[str, Any]


def encode(case: Case) -> Case:
    values = [float.fromhex(value) for value in case["values"]]
    encoding = encoding_of({**case, "clip": float(case["clip"])})
    words = encoding.encode(np.array(values, dtype=case["dtype"]), case["samples"])
    return {"words": words.tobytes().hex()}


def encode_in_plain_python(case: Case) -> Case:
    unit = case["samples"] / case["max_weight"] * 2.0 ** case["fractional_bits"]
    integers = [*(round(float.fromhex(value) * unit) for value in case["values"]), round(unit), 1]
    size = case["bits"] // 8
    return {"words": b"".join(i.to_bytes(size, "little", signed=True) for i in integers).hex()}


def decode_mean(case: Case) -> Case:
    words = np.frombuffer(bytes.fromhex(case["words"]), dtype=Ring(case["bits"]).dtype)
    mean, samples = encoding_of(case).decode_mean(words, case["parties"])
    return {"mean": [float(value).hex() for value in mean], "samples": samples.hex()}


def decode_mean_in_plain_python(case: Case) -> Case:
    size, raw = case["bits"] // 8, bytes.fromhex(case["words"])
    *payload, weight, check = (
        int.from_bytes(raw[i : i + size], "little", signed=True) for i in range(0, len(raw), size)
    )
    assert check == case["parties"]
    mean = [(float(word) / float(weight)).hex() for word in payload]
    return {"mean": mean, "samples": (weight / 2.0 ** case["fractional_bits"] * case["max_weight"]).hex()}


def mask(case: Case) -> Case:
    target = bytearray.fromhex(case["start"])
    add, subtract = ([Secret(bytes.fromhex(key)) for key in case[side]] for side in ("add", "subtract"))
    apply_masks(Ring(case["bits"]), target, add=add, subtract=subtract)
    return {"result": target.hex()}


def mask_with_the_other_library(case: Case) -> Case:
    words = np.frombuffer(bytes.fromhex(case["start"]), dtype=Ring(case["bits"]).dtype)
    for sign, side in ((1, "add"), (-1, "subtract")):
        for key in case[side]:
            cipher = AES.new(bytes.fromhex(key), AES.MODE_CTR, nonce=b"", initial_value=bytes(16))
            stream = np.frombuffer(cipher.encrypt(bytes(words.nbytes)), dtype=words.dtype)
            words = words + stream if sign > 0 else words - stream
    return {"result": words.tobytes().hex()}


OURS = {"encode": encode, "decode_mean": decode_mean, "apply_masks": mask}
SECOND = {
    "encode": encode_in_plain_python,
    "decode_mean": decode_mean_in_plain_python,
    "apply_masks": mask_with_the_other_library,
}


def cases_of(*, bad: bool) -> list[Any]:
    return [
        pytest.param(content["operation"], case, content.get("error"), id=f"{path.stem}-{position}")
        for path in FILES
        for content in [json.loads(path.read_text())]
        for position, case in enumerate(content["cases"])
        if ("error" in content) == bad
    ]


@pytest.mark.parametrize(("operation", "case", "_error"), cases_of(bad=False))
@pytest.mark.parametrize("implementations", [OURS, SECOND], ids=["ours", "second"])
def test_a_good_vector_gives_its_values(
    implementations: Any, operation: str, case: Case, _error: None
) -> None:
    result = implementations[operation](case)
    assert result == {key: case[key] for key in result}


@pytest.mark.parametrize(("operation", "case", "error"), cases_of(bad=True))
def test_a_bad_vector_gives_its_error(operation: str, case: Case, error: str) -> None:
    if error in errors.AbortReason.__members__:
        with pytest.raises(errors.Rejection) as refused:
            OURS[operation](case)
        assert refused.value.reason is errors.AbortReason[error]
    else:
        with pytest.raises(getattr(errors, error)):
            OURS[operation](case)


@pytest.mark.parametrize(("name", "content"), build().items())
def test_the_folder_holds_what_the_maker_writes(name: str, content: Case) -> None:
    assert json.loads(Path(FOLDER / f"{name}.json").read_text()) == content
