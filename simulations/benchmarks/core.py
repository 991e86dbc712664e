"""The protocol core against its limits: the cipher, the memory bus, and a few milliseconds of patience."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from veilsum.protocol.crypto import shamir
from veilsum.protocol.crypto.sealing import open_sealed, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey, verify_signature
from veilsum.protocol.numbers.fixedpoint import plan
from veilsum.protocol.numbers.ring import Ring
from veilsum.protocol.numbers.stream import BLOCK_BYTES, apply_masks
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.envelope import Body, join
from veilsum.protocol.wire.messages import Message, Stamp, Tensor, message
from veilsum.roles.federation.keystore import generate_rsa_key
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.benchmarks.measuring import Figure, best_cpu_seconds, peak_extra_bytes

WORDS = 10_000_000
SHARINGS = ((7, 10), (34, 50), (67, 100))
TURNS = 7

VECTOR_BYTES = 40 << 20

_RING = Ring(64)
_KEY = Secret(bytes(range(32)))


@message("bench.vector")
@dataclass(frozen=True, slots=True)
class BenchVector(Message):
    """One vector, as every upload is."""

    stamp: Stamp
    vector: Tensor


def measure_core() -> list[Figure]:
    return [
        *_stream_figures(),
        _memory_figure(),
        _encode_figure(),
        *_shamir_figures(),
        *_seal_figures(),
        *_sign_figures(),
        *_wire_figures(),
    ]


def as_json(figures: list[Figure]) -> dict[str, Any]:
    """`shamir_ms.split_67_100` becomes `{"shamir_ms": {"split_67_100": ...}}`; limits stand beside."""
    document: dict[str, Any] = {}
    for figure in figures:
        name, _, part = figure.name.partition(".")
        if part:
            document.setdefault(name, {})[part] = figure.value
        else:
            document[name] = figure.value
    document["limits"] = {f.name: {"limit": f.limit, "met": f.met} for f in figures if f.limit}
    return document


def _stream_figures() -> Iterator[Figure]:
    vector = _RING.zeros(WORDS)
    best = best_cpu_seconds(
        {
            "fused": lambda: apply_masks(_RING, vector, add=[_KEY]),
            "keystream": lambda: _bare_keystream(vector.nbytes),
            "randomstate": lambda: _draw_and_add(vector),
        },
        TURNS,
    )
    yield Figure(
        "stream_add_over_keystream",
        best["keystream"] / best["fused"],
        "throughput of expand+add over the bare AES-256-CTR keystream, 10 M uint64",
        at_least=0.6,
    )
    yield Figure(
        "stream_add_over_randomstate",
        best["randomstate"] / best["fused"],
        "the same over a draw from numpy RandomState and an add",
    )
    yield Figure(
        "stream_add_gb_per_s", vector.nbytes / best["fused"] / 1e9, "GB per CPU second of expand+add"
    )


def _bare_keystream(nbytes: int) -> None:
    stream = Cipher(AES(_KEY.reveal()), CTR(bytes(16))).encryptor()
    zeros = memoryview(bytes(BLOCK_BYTES))
    buffer = bytearray(BLOCK_BYTES + 15)
    for start in range(0, nbytes, BLOCK_BYTES):
        stream.update_into(zeros[: min(BLOCK_BYTES, nbytes - start)], buffer)


def _draw_and_add(vector: np.ndarray[Any, np.dtype[Any]]) -> None:
    drawn = np.random.RandomState(7).randint(0, 2**64, size=len(vector), dtype=np.uint64)
    np.add(vector, drawn, out=vector)


def _memory_figure() -> Figure:
    vector = _RING.zeros(WORDS)
    keys = [Secret(bytes([i]) * 32) for i in range(10)]
    extra = peak_extra_bytes(lambda: apply_masks(_RING, vector, add=keys[:5], subtract=keys[5:]))
    return Figure(
        "peak_extra_over_vector",
        extra / vector.nbytes,
        "extra memory while ten masks are applied to 10 M uint64, over the vector itself",
        at_most=0.1,
    )


def _encode_figure() -> Figure:
    encoding = plan(parties=100, max_weight=1000, clip=8.0, bits=64).encoding
    values = np.clip(np.random.default_rng(7).standard_normal(WORDS, dtype=np.float32), -8, 8)
    words = encoding.encode(values, 500)
    target = np.empty_like(words)
    best = best_cpu_seconds(
        {
            "encode": lambda: encoding.encode(values, 500),
            "memcpy": lambda: np.copyto(target, words),
        },
        TURNS,
    )
    return Figure(
        "encode_over_memcpy",
        best["memcpy"] / best["encode"],
        "throughput of encoding 10 M float32 over a copy of the encoded words",
    )


def _shamir_figures() -> Iterator[Figure]:
    for threshold, holders in SHARINGS:
        for verb, seconds in _sharing_seconds(threshold, holders).items():
            meaning = f"{verb} a 32-byte secret, {threshold} of {holders}"
            yield Figure(f"shamir_ms.{verb}_{threshold}_{holders}", seconds * 1e3, meaning)


def _sharing_seconds(threshold: int, holders: int) -> dict[str, float]:
    random = SeededEntropy(7)
    shares = shamir.split(_KEY, threshold, holders, random)
    enough = {i + 1: share for i, share in enumerate(shares[:threshold])}
    return best_cpu_seconds(
        {
            "split": lambda: shamir.split(_KEY, threshold, holders, random),
            "combine": lambda: shamir.combine(enough, threshold),
        },
        TURNS,
        calls=3,
    )


def _seal_figures() -> Iterator[Figure]:
    random = SeededEntropy(7)
    private = generate_rsa_key()
    label = bytes(32)
    sealed = seal(private.public, bytes(64), label, random)
    best = best_cpu_seconds(
        {
            "seal": lambda: seal(private.public, bytes(64), label, random),
            "open": lambda: open_sealed(private, sealed, label),
        },
        TURNS,
        calls=3,
    )
    yield Figure("seal_ms", best["seal"] * 1e3, "RSA-3072 OAEP, seal 64 bytes")
    yield Figure("open_ms", best["open"] * 1e3, "RSA-3072 OAEP, open 64 bytes")


def _sign_figures() -> Iterator[Figure]:
    key = SigningKey.generate(SeededEntropy(7))
    digest = hashlib.sha256(b"veilsum bench").digest()
    signature = key.sign("bench", digest)
    best = best_cpu_seconds(
        {
            "sign": lambda: key.sign("bench", digest),
            "verify": lambda: verify_signature(key.public, "bench", digest, signature),
        },
        TURNS,
        calls=50,
    )
    yield Figure("sign_ms", best["sign"] * 1e3, "Ed25519 over a digest")
    yield Figure("verify_ms", best["verify"] * 1e3, "Ed25519 over a digest")


def _wire_figures() -> Iterator[Figure]:
    upload = BenchVector(Stamp(round=0, attempt=0), _RING.zeros(VECTOR_BYTES // _RING.word_bytes))
    data = join(encode_message(upload))
    best = best_cpu_seconds(
        {
            "encode": lambda: join(encode_message(upload)),
            "decode": lambda: decode_message("bench.vector", upload.stamp, data),
            "digest": lambda: Body.of(upload).digest,
        },
        TURNS,
    )
    yield Figure("wire_40mib_ms.encode", best["encode"] * 1e3, "a 40 MiB vector to one byte string: one copy")
    yield Figure("wire_40mib_ms.decode", best["decode"] * 1e3, "and back: a view on the bytes, no copy")
    yield Figure("wire_40mib_ms.digest", best["digest"] * 1e3, "SHA-256 of it, for the signature")
