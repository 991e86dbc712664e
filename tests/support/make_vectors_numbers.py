"""Write the test vectors of the fixed-point encoding, of the mask streams and of the tags of sums.

    python tests/support/make_vectors_numbers.py

Deterministic: every input stands here or is SHAKE-256 of its own description. A test compares what `build()`
returns with what stands in the folder. `stream_gcm.json` is copied from a published specification by hand and
is not touched.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from veilsum.protocol.crypto.linear_tag import group_key_id
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.fixedpoint import FixedPoint
from veilsum.protocol.numbers.ring import Ring, add_into
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.secure_sum.verification import AttemptTags, attempt_tags
from veilsum.protocol.wire.messages import Stamp

FOLDER = Path(__file__).parents[2] / "specs" / "vectors" / "v8"
OURS = (
    "Made by tests/support/make_vectors_numbers.py; keys and words are SHAKE-256 of 'veilsum vector: <name>'."
)
DEFECT = OURS + " Each case is a good one with the one defect that the file is named after."

Json = dict[str, Any]

WIDE: Json = {"bits": 64, "fractional_bits": 40, "clip": 8.0, "max_parties": 100, "max_weight": 1000}
NARROW: Json = {"bits": 32, "fractional_bits": 21, "clip": 8.0, "max_parties": 100, "max_weight": 1000}
TIES: Json = {"bits": 32, "fractional_bits": 1, "clip": 8.0, "max_parties": 3, "max_weight": 1}
MEMBERS = ["alice", "bob", "carol", "dora"]
SURVIVORS = (["carol"], ["alice", "dora"], ["alice", "bob", "dora"], MEMBERS)
VALUES = (0.0, 1.0, -1.0, 0.1, -0.1, 8.0, -8.0, 2.0**-41, 3 * 2.0**-42, 1 / 3)


def build() -> dict[str, Json]:
    """Every generated file by name, without its suffix."""
    return {**_encoding(), **_encoding_refused(), **_decoding(), **_streams(), **_tags(), **_sums()}


def encoding_of(numbers: Json) -> FixedPoint:
    return FixedPoint(
        Ring(numbers["bits"]),
        numbers["fractional_bits"],
        numbers["clip"],
        numbers["max_parties"],
        numbers["max_weight"],
    )


def fixed_bytes(name: str, size: int = 32) -> bytes:
    return hashlib.shake_256(f"veilsum vector: {name}".encode()).digest(size)


def _file(operation: str, cases: list[Json]) -> Json:
    return {"version": 8, "operation": operation, "provenance": OURS, "cases": cases}


def _bad(operation: str, error: str, cases: list[Json]) -> Json:
    return {"version": 8, "operation": operation, "provenance": DEFECT, "error": error, "cases": cases}


def _encoding() -> dict[str, Json]:
    ties = (0.25, 0.75, 1.25, -0.25, -0.75, -1.25)
    cases = [
        _encode_case(numbers, dtype, VALUES, samples)
        for numbers in (WIDE, NARROW)
        for dtype in ("float32", "float64")
        for samples in (1, 333, 1000)
    ]
    return {"fixedpoint": _file("encode", [*cases, _encode_case(TIES, "float64", ties, 1)])}


def _encode_case(numbers: Json, dtype: str, values: tuple[float, ...], samples: int) -> Json:
    held = np.array(values, dtype=dtype)
    words = encoding_of(numbers).encode(held, samples)
    return {
        **numbers,
        "dtype": dtype,
        "values": [float(value).hex() for value in held],
        "samples": samples,
        "words": words.tobytes().hex(),
    }


def _encoding_refused() -> dict[str, Json]:
    good = {**WIDE, "dtype": "float64", "values": ["0x1p+0"], "samples": 1}
    beyond = np.nextafter(8.0, np.inf)
    return {
        "fixedpoint_bad_value": _bad(
            "encode",
            "EncodingError",
            [
                {**good, "values": [value]}
                for value in ("nan", "inf", "-inf", float(beyond).hex(), "-0x1.2p+3")
            ],
        ),
        "fixedpoint_bad_dtype": _bad(
            "encode", "EncodingError", [{**good, "dtype": dtype} for dtype in ("float16", "int64", ">f8")]
        ),
        "fixedpoint_bad_samples": _bad(
            "encode", "EncodingError", [{**good, "samples": samples} for samples in (0, -1, 1001)]
        ),
        "fixedpoint_bad_budget": _bad(
            "encode",
            "ParameterError",
            [
                {**good, "fractional_bits": 54},
                {**good, "bits": 32, "fractional_bits": 22},
                {**good, "clip": 2.0**17},
                {**good, "fractional_bits": 9},
                {**good, "clip": "nan"},
            ],
        ),
    }


def _decoding() -> dict[str, Json]:
    cases = [_decode_case(numbers, count) for numbers in (WIDE, NARROW) for count in (1, 2, 5)]
    last = {key: value for key, value in cases[-1].items() if key not in ("mean", "samples")}
    units = 2 ** last["fractional_bits"]
    return {
        "fixedpoint_mean": _file("decode_mean", cases),
        "fixedpoint_mean_bad_check": _bad(
            "decode_mean",
            "CHECK_FAILED",
            [{**last, "parties": 4}, _with_word(last, -1, 6), _with_word(last, -1, -5)],
        ),
        "fixedpoint_mean_bad_weight": _bad(
            "decode_mean",
            "CHECK_FAILED",
            [_with_word(last, -2, word) for word in (0, -1, 5 * round(units / 1000) - 1, 5 * units + 1)],
        ),
        "fixedpoint_mean_bad_value": _bad(
            "decode_mean",
            "CHECK_FAILED",
            [_with_word(last, place, sign * 41 * units // 2) for place in (0, 9) for sign in (1, -1)],
        ),
    }


def _with_word(case: Json, place: int, word: int) -> Json:
    """The same sum with another word at one place."""
    words = np.frombuffer(bytes.fromhex(case["words"]), dtype=Ring(case["bits"]).signed_dtype).copy()
    words[place] = word
    return {**case, "words": words.tobytes().hex()}


def _decode_case(numbers: Json, count: int) -> Json:
    encoding = encoding_of(numbers)
    total = encoding.ring.zeros(encoding.vector_length(len(VALUES)))
    for i in range(count):
        add_into(total, encoding.encode(np.array(VALUES) / (i + 1), 100 * (i + 1)))
    mean, samples = encoding.decode_mean(total, count)
    return {
        **numbers,
        "words": total.tobytes().hex(),
        "parties": count,
        "mean": [float(value).hex() for value in mean],
        "samples": samples.hex(),
    }


def _streams() -> dict[str, Json]:
    cases = [
        _stream_case(bits, length, added, subtracted)
        for bits in (32, 64)
        for length in (0, 1, 3, 8, 33)
        for added, subtracted in ((1, 0), (0, 1), (2, 3))
    ]
    good = {key: value for key, value in _stream_case(64, 3, 1, 0).items() if key != "result"}
    return {
        "stream": _file("apply_masks", cases),
        "stream_bad_key_length": _bad(
            "apply_masks",
            "LocalProtocolError",
            [{**good, "add": [fixed_bytes("stream key", size).hex()]} for size in (0, 16, 31, 33)],
        ),
        "stream_bad_buffer_length": _bad(
            "apply_masks", "LocalProtocolError", [{**good, "start": fixed_bytes("odd", 15).hex()}]
        ),
    }


def _stream_case(bits: int, length: int, added: int, subtracted: int) -> Json:
    start = fixed_bytes("stream start", length * bits // 8)
    add = [fixed_bytes(f"stream add {i}") for i in range(added)]
    subtract = [fixed_bytes(f"stream subtract {i}") for i in range(subtracted)]
    result = bytearray(start)
    apply_masks(
        Ring(bits), result, add=[Secret(key) for key in add], subtract=[Secret(key) for key in subtract]
    )
    return {
        "bits": bits,
        "add": [key.hex() for key in add],
        "subtract": [key.hex() for key in subtract],
        "start": start.hex(),
        "result": result.hex(),
    }


def stamp_of(numbers: Json) -> Stamp:
    session, model_hash = (bytes.fromhex(numbers[name]) for name in ("session", "model_hash"))
    return Stamp(session, numbers["round"], numbers["attempt"], model_hash)


def _tags() -> dict[str, Json]:
    cases = [
        _tag_case(numbers, dimension, attempt, party)
        for numbers in (WIDE, NARROW)
        for dimension in (1, 2, 3, 6, 10)
        for attempt, party in ((1, "alice"), (2, "alice"), (2, "bob"))
    ]
    stranger = {**cases[0], "party": "mallory"}
    short = {**cases[0], "group_key": fixed_bytes("group key", 31).hex()}
    return {
        "tag": _file("tag", cases),
        "tag_bad_member": _bad("tag", "SURVIVOR_LIST", [stranger]),
        "tag_bad_key_length": _bad("tag", "LocalProtocolError", [short]),
    }


def _tag_case(numbers: Json, dimension: int, attempt: int, party: str) -> Json:
    encoding, group_key = encoding_of(numbers), Secret(fixed_bytes("group key"))
    words = encoding.encode(np.resize(np.array(VALUES[3:]), dimension), 333)
    case: Json = {
        **numbers,
        "group_key": group_key.reveal().hex(),
        "group_key_id": group_key_id(group_key).hex(),
        "session": fixed_bytes("session").hex(),
        "round": 7,
        "attempt": attempt,
        "model_hash": fixed_bytes("model").hex(),
        "members": MEMBERS,
        "party": party,
        "words": words.tobytes().hex(),
    }
    tags = attempt_tags(encoding, group_key, stamp_of(case), [PartyId(name) for name in MEMBERS])
    limbs = tags.limbs_for(PartyId(party), words)
    return {**case, "attempt_key": tags.key.reveal().hex(), "limbs": limbs.tobytes().hex()}


def _sums() -> dict[str, Json]:
    good = [_sum_case(numbers, names, names) for numbers in (WIDE, NARROW) for names in SURVIVORS]
    refused = [{key: value for key, value in case.items() if key != "accepted"} for case in good]
    all_of_them = [case for case in refused if len(case["survivors"]) == len(MEMBERS)]
    other_sums = [(["bob", "carol"], ["bob", "dora"]), (["bob", "bob"], ["bob", "dora"]), (["bob"], MEMBERS)]
    return {
        "tag_sum": _file("require_sum", good),
        "tag_sum_bad_words": _bad(
            "require_sum",
            "SUM_FALSIFIED",
            [
                {**case, "words": changed.hex()}
                for case in all_of_them
                for words in [bytes.fromhex(case["words"])]
                for changed in (
                    bytes([words[0] ^ 1]) + words[1:],
                    words[8:16] + words[:8] + words[16:],
                    words[:-8],
                )
            ],
        ),
        "tag_sum_bad_tags": _bad(
            "require_sum",
            "SUM_FALSIFIED",
            [
                {**case, "limbs": _one_more(case["limbs"], by)}
                for case in refused
                for by in (1, 5 * len(MEMBERS) * 2)
            ],
        ),
        "tag_sum_bad_survivors": _bad(
            "require_sum",
            "SUM_FALSIFIED",
            [
                {key: value for key, value in _sum_case(numbers, summed, said).items() if key != "accepted"}
                for numbers in (WIDE, NARROW)
                for summed, said in other_sums
            ],
        ),
        "tag_sum_bad_attempt": _bad(
            "require_sum",
            "SUM_FALSIFIED",
            [{**case, "attempt_key": fixed_bytes("other attempt key").hex()} for case in refused],
        ),
    }


def _one_more(limbs: str, by: int) -> str:
    """The sum of tags raised by more than the check allows, or by no multiple of five."""
    words = bytes.fromhex(limbs)
    size = len(words) // 8
    return ((int.from_bytes(words[:size], "little") + by).to_bytes(size, "little") + words[size:]).hex()


def _sum_case(numbers: Json, summed: list[str], said: list[str]) -> Json:
    encoding, key = encoding_of(numbers), Secret(fixed_bytes("attempt key"))
    total, limbs = encoding.ring.zeros(encoding.vector_length(5)), encoding.ring.zeros(8)
    for name in summed:
        i = MEMBERS.index(name)
        words = encoding.encode(np.array(VALUES[i : i + 5]), 250 * (i + 1))
        add_into(total, words)
        tags = AttemptTags(encoding, key, [PartyId(member) for member in MEMBERS])
        add_into(limbs, tags.limbs_for(PartyId(name), words))
    return {
        **numbers,
        "attempt_key": key.reveal().hex(),
        "members": MEMBERS,
        "survivors": said,
        "words": total.tobytes().hex(),
        "limbs": limbs.tobytes().hex(),
        "accepted": True,
    }


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in build().items():
        (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
