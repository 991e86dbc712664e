"""Every vector of the numbers holds for our code and for a second implementation of the same sentence.

The second implementation is plain Python arithmetic for the encoding, the other crypto library for the streams, and
whole numbers of any size for the tags of sums, with keys from that library. Good files must give the
stated values, files named `*_bad_<defect>` the stated error.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF

from tests.support.make_vectors_numbers import FOLDER, build, encoding_of, stamp_of
from veilsum.protocol import errors
from veilsum.protocol.crypto.linear_tag import group_key_id
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.ring import Ring
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.secure_sum.verification import AttemptTags, attempt_tags

SUBJECTS = ("fixedpoint", "stream", "tag")
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
    parties, unit, clip = case["parties"], 2 ** case["fractional_bits"], Fraction(case["clip"])
    most = clip * (weight + Fraction(parties, 2)) * (1 + Fraction(1, 2**53)) + Fraction(parties, 2)
    possible = parties * round(unit / case["max_weight"]) <= weight <= parties * unit
    if check != parties or not possible or max(map(abs, payload)) > most:
        return {"mean": None, "samples": None}
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


def tag(case: Case) -> Case:
    group_key, members = Secret(bytes.fromhex(case["group_key"])), [PartyId(name) for name in case["members"]]
    tags = attempt_tags(encoding_of(case), group_key, stamp_of(case), members)
    words = np.frombuffer(bytes.fromhex(case["words"]), dtype=Ring(case["bits"]).dtype)
    limbs = tags.limbs_for(PartyId(case["party"]), words)
    return {
        "group_key_id": group_key_id(group_key).hex(),
        "attempt_key": tags.key.reveal().hex(),
        "limbs": limbs.tobytes().hex(),
    }


def require_sum(case: Case) -> Case:
    key, members = Secret(bytes.fromhex(case["attempt_key"])), [PartyId(name) for name in case["members"]]
    words, limbs = (
        np.frombuffer(bytes.fromhex(case[name]), dtype=Ring(case["bits"]).dtype)
        for name in ("words", "limbs")
    )
    survivors = [PartyId(name) for name in case["survivors"]]
    AttemptTags(encoding_of(case), key, members).require_sum(words, limbs, survivors)
    return {"accepted": True}


def tag_in_integers(case: Case) -> Case:
    group_key, session = bytes.fromhex(case["group_key"]), bytes.fromhex(case["session"])
    framed = (session, b"", b"", b"", bytes.fromhex(case["model_hash"]))
    counters = b"".join(case[name].to_bytes(8, "big") for name in ("round", "attempt")) + bytes(8)
    info = framed_parts(b"veilsum/v8/kdf/sum-tag") + counters + framed_parts(*framed)
    key = HKDF(group_key, 32, session, SHA256, context=info)
    total = value_in_integers(key, lifted_words(case, 1)) + pad_of(key, case["members"].index(case["party"]))
    size = case["bits"] // 8
    limbs = [(total >> (16 * i) & 0xFFFF).to_bytes(size, "little") for i in range(8)]
    identity = HKDF(group_key, 32, b"veilsum/v8/sum-tag", SHA256, context=b"id")
    return {"group_key_id": identity.hex(), "attempt_key": key.hex(), "limbs": b"".join(limbs).hex()}


def require_sum_in_integers(case: Case) -> Case:
    """The check, read the other way: is the sum of tags one of those that K honest parties can have?"""
    key, size, parties = bytes.fromhex(case["attempt_key"]), case["bits"] // 8, len(case["survivors"])
    words, limbs = lifted_words(case, parties), bytes.fromhex(case["limbs"])
    tags = sum(int.from_bytes(limbs[size * i : size * (i + 1)], "little") << (16 * i) for i in range(8))
    pads = sum(pad_of(key, case["members"].index(name)) for name in case["survivors"])
    expected = value_in_integers(key, words) + (parties - 1) * value_in_integers(key, bytes(len(words)))
    allowed = ((expected - m * (2**130 - 5) + pads) % 2**128 for m in range(1 - parties, parties))
    return {"accepted": tags % 2**128 in allowed}


def framed_parts(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def lifted_words(case: Case, parties: int) -> bytes:
    """Every word plus `parties` times the largest one, which for the clips of the vectors is a whole number."""
    largest = int(case["clip"]) * 2 ** case["fractional_bits"] + 1
    size, raw = case["bits"] // 8, bytes.fromhex(case["words"])
    words = (int.from_bytes(raw[i : i + size], "little") for i in range(0, len(raw), size))
    return b"".join(
        ((word + parties * largest) % 2 ** case["bits"]).to_bytes(size, "little") for word in words
    )


def value_in_integers(key: bytes, message: bytes) -> int:
    r = int.from_bytes(HKDF(key, 32, b"veilsum/v8/sum-tag", SHA256, context=b"r")[:16], "little")
    r &= 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    blocks = [int.from_bytes(message[i : i + 16] + b"\1", "little") for i in range(0, len(message), 16)]
    return sum(block * r ** (len(blocks) - i) for i, block in enumerate(blocks)) % (2**130 - 5)


def pad_of(key: bytes, place: int) -> int:
    pad_key = HKDF(key, 32, b"veilsum/v8/sum-tag", SHA256, context=b"s")
    cipher = AES.new(pad_key, AES.MODE_ECB)
    return int.from_bytes(cipher.encrypt(place.to_bytes(16, "big")), "little")


OURS = {
    "encode": encode,
    "decode_mean": decode_mean,
    "apply_masks": mask,
    "tag": tag,
    "require_sum": require_sum,
}
SECOND = {
    "encode": encode_in_plain_python,
    "decode_mean": decode_mean_in_plain_python,
    "apply_masks": mask_with_the_other_library,
    "tag": tag_in_integers,
    "require_sum": require_sum_in_integers,
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


REFUSED = {"require_sum": {"accepted": False}, "decode_mean": {"mean": None, "samples": None}}
"""What the second implementation of a check says of a sum that it does not accept."""


@pytest.mark.parametrize(
    ("operation", "case", "_error"), [one for one in cases_of(bad=True) if one.values[0] in REFUSED]
)
def test_the_second_implementation_accepts_no_bad_sum(operation: str, case: Case, _error: str) -> None:
    assert SECOND[operation](case) == REFUSED[operation]


@pytest.mark.parametrize(("name", "content"), build().items())
def test_the_folder_holds_what_the_maker_writes(name: str, content: Case) -> None:
    assert json.loads(Path(FOLDER / f"{name}.json").read_text()) == content
