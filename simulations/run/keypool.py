"""A few RSA keys for many simulated parties.

Making an RSA-3072 key takes a large part of a second; a simulation of a thousand parties cannot make a
thousand. It takes them from a pool of eight that parties share cyclically, kept in memory and in the user's
cache folder. What a simulation computes and counts does not depend on which key sealed a seed: sizes and
work are those of real keys.

Every key of the pool has the public exponent 65539, the mark that real roles refuse (see
`veilsum.protocol.crypto.sealing`). The cache is a convenience: if it is damaged, unreadable or cannot be written,
keys are made again and stay in memory, and nothing fails.
"""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path

from Crypto.PublicKey import RSA
from cryptography.hazmat.primitives.asymmetric import rsa

from veilsum.protocol.crypto.sealing import MODULUS_BITS, REAL_EXPONENT, SIMULATION_EXPONENT, RsaPrivateKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError, ProtocolError
from veilsum.roles.federation.private_files import read_private_file, replace_private_file

POOL_SIZE = 8


def simulation_rsa_key(index: int) -> RsaPrivateKey:
    """The simulation-only key of party number `index`."""
    if index < 0:
        raise LocalProtocolError(f"parties are numbered from 0, not {index}")
    return _pooled_key(index % POOL_SIZE)


@functools.cache
def _pooled_key(slot: int) -> RsaPrivateKey:
    path = _cache_path(slot)
    if path is None:
        return _make_key()
    stored = _read_cached(path)
    if stored is not None:
        return stored
    key = _make_key()
    _write_cached(path, key)
    return key


def _cache_path(slot: int) -> Path | None:
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        # The XDG specification has relative paths ignored.
        base = configured if configured.is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "veilsum" / f"simulation-rsa-{MODULUS_BITS}-{slot}.der"


def _read_cached(path: Path) -> RsaPrivateKey | None:
    try:
        key = RsaPrivateKey.from_der(Secret(read_private_file(path)))
    except (OSError, ProtocolError):
        return None
    return key if key.public.simulation_only else None


def _write_cached(path: Path, key: RsaPrivateKey) -> None:
    try:
        replace_private_file(path, key.der.reveal())
    except (OSError, ProtocolError):
        return


def _make_key() -> RsaPrivateKey:
    while True:
        primes = rsa.generate_private_key(REAL_EXPONENT, MODULUS_BITS).private_numbers()
        order = math.lcm(primes.p - 1, primes.q - 1)
        if math.gcd(SIMULATION_EXPONENT, order) == 1:
            break
    private_exponent = pow(SIMULATION_EXPONENT, -1, order)
    key = RSA.construct((primes.p * primes.q, SIMULATION_EXPONENT, private_exponent, primes.p, primes.q))
    return RsaPrivateKey.from_der(Secret(key.export_key("DER", pkcs=8)))
