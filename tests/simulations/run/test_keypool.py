"""The simulation key pool: marked keys, shared cyclically, with a cache that can only help."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.refusals import refusal
from veilsum.protocol.crypto.sealing import RsaPrivateKey, open_sealed, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.roles.federation.keystore import generate_rsa_key
from veilsum.simulations.run import keypool
from veilsum.simulations.run.keypool import POOL_SIZE, simulation_rsa_key

LABEL = bytes(32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache folder, and a pool that has forgotten its keys before and after."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keypool._pooled_key.cache_clear()
    yield tmp_path / "veilsum"
    keypool._pooled_key.cache_clear()


def forget_memory() -> None:
    keypool._pooled_key.cache_clear()


def test_pool_keys_work_and_are_marked(cache: Path) -> None:
    key = simulation_rsa_key(0)
    assert open_sealed(key, seal(key.public, b"seed", LABEL, bytes), LABEL).reveal() == b"seed"
    assert key.public.ciphertext_bytes == 384
    with refusal(Rejection, "simulation-only", reason=AbortReason.BAD_KEY):
        key.public.require_real()


def test_parties_share_keys_cyclically(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties i and i + 8 have the same key, neighbours different ones, and each is made once."""
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    monkeypatch.setattr(keypool, "_make_key", make)
    monkeypatch.setattr(keypool, "_write_cached", lambda _path, _key: None)
    keys = [simulation_rsa_key(index) for index in range(3 * POOL_SIZE)]
    assert keys[:POOL_SIZE] == keys[POOL_SIZE : 2 * POOL_SIZE] == keys[2 * POOL_SIZE :]
    assert len(set(map(id, keys))) == len(made) == POOL_SIZE


def test_negative_index_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="-1"):
        simulation_rsa_key(-1)


def test_second_process_finds_the_key_on_disk(cache: Path) -> None:
    """The cache file has mode 0600 and gives the same key after the memory is gone."""
    first = simulation_rsa_key(0)
    (path,) = cache.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    forget_memory()
    again = simulation_rsa_key(0)
    assert again is not first and again.der == first.der


def spoil(path: Path, content: bytes) -> None:
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "empty": lambda path: spoil(path, b""),
    "cut": lambda path: spoil(path, path.read_bytes()[:-1]),
    "noise": lambda path: spoil(path, bytes(2000)),
    "unmarked key": lambda path: spoil(path, generate_rsa_key().der.reveal()),
    "open to others": lambda path: path.chmod(0o666),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_unusable_cache_file_is_replaced(cache: Path, damage: str) -> None:
    """Damage, a foreign key or a file that others may write leads to a new key, stored in its place."""
    first = simulation_rsa_key(0)
    (path,) = cache.iterdir()
    DAMAGE[damage](path)
    forget_memory()
    second = simulation_rsa_key(0)
    assert second.der != first.der and second.public.simulation_only
    assert RsaPrivateKey.from_der(Secret(path.read_bytes())).public == second.public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_cache_that_cannot_be_written_is_no_error(cache: Path) -> None:
    """With a file where the cache folder should be, keys stay in memory."""
    cache.write_text("not a folder")
    key = simulation_rsa_key(0)
    assert simulation_rsa_key(POOL_SIZE) is key
    assert cache.read_text() == "not a folder"


def test_machine_without_a_home_is_no_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative cache path is ignored, and a user without a home folder gets keys in memory."""

    def homeless() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative/path")
    monkeypatch.setattr(Path, "home", homeless)
    assert simulation_rsa_key(0).public.simulation_only
    assert not cache.exists()
