"""Opening an RSA seal is a pure function and most of the cost of a small table: remember what was opened."""

from __future__ import annotations

import functools

import pytest

from veilsum.protocol.crypto.sealing import RsaPrivateKey, open_sealed
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.schemes.ampc import setup


@functools.cache
def _opened(private: RsaPrivateKey, ciphertext: bytes, label: bytes) -> Secret:
    return open_sealed(private, ciphertext, label)


@pytest.fixture(autouse=True)
def remember_opened_seals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "open_sealed", _opened)
