"""Views: exactly what an adversary saw, in words, on disk and back, and never more."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.refusals import refusal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets
from veilsum.protocol.schemes.ampc.messages import SeedsForNeighbour
from veilsum.protocol.schemes.plain import PlainUpdate
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import kind_of
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.views.file import BadViewFile, load_view, save_view
from veilsum.roles.views.view import View, pool
from veilsum.simulations.audit.stage import Played, play
from veilsum.simulations.run.adversaries import members_of

SCHEMES = ("plain", "masked", "mpc", "ampc")
ADVERSARIES = ("server", "client", "broker", "coalition", "others")
Stage = Callable[..., Played]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_party_sees_the_messages_it_sent_or_received_and_no_others(played: Stage, scheme: str) -> None:
    view = played(scheme).view("p2")
    assert view.messages
    assert all("p2" in (one.sender, one.receiver) for one in view.messages)
    assert set(view.own_data) == {"p2"}
    assert {one.party for one in (*view.results, *view.own_updates, *view.session_keys)} == {"p2"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_broker_sees_all_envelopes_and_opens_none(played: Stage, scheme: str) -> None:
    view = played(scheme).view("broker")
    assert len(view.messages) > len(played(scheme).view("p1").messages)
    assert all(one.message is None and one.size > 0 for one in view.messages)
    assert not (view.results or view.own_updates or view.own_data or view.session_keys)


def test_the_server_has_the_updates_under_plain_and_words_under_ampc(played: Stage) -> None:
    assert len(list(played("plain").view("server").received(PlainUpdate))) == 4
    view = played("ampc").view("server")
    assert len(list(view.received(MaskedInput))) == 4
    assert not list(view.received(PlainUpdate))
    assert all(one.model is None and one.total is None for one in view.results)
    assert not view.session_keys


def test_only_peers_of_ampc_hold_bias_seeds(played: Stage) -> None:
    keys = played("ampc").view("p1").session_keys
    assert len(keys) == 1
    assert set(keys[0].biases) == {"p1", "p2", "p3", "p4"}
    assert not played("mpc").view("p1").session_keys[0].biases


def test_a_coalition_has_what_its_members_have_and_each_message_once(played: Stage) -> None:
    stage = played("ampc")
    together = stage.view("coalition")
    assert together.adversary == "server+p1"
    ids = [id(one) for one in together.messages]
    assert len(ids) == len(set(ids))
    pooled = pool([stage.view("server"), stage.view("p1")])
    assert {id(one) for one in pooled.messages} == set(ids)
    assert pooled.session_keys == together.session_keys


@pytest.mark.parametrize("members", [("broker",), ("server", "server")])
def test_a_coalition_that_makes_no_sense_is_refused(played: Stage, members: tuple[str, ...]) -> None:
    with pytest.raises(LocalProtocolError):
        pool([played("plain").view(name) for name in members])


def test_views_of_two_runs_cannot_be_pooled(played: Stage) -> None:
    with pytest.raises(LocalProtocolError, match="of one run"):
        pool([played("plain").view("server"), played("masked").view("p1")])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_the_repr_is_the_threat_model_in_words_and_holds_no_secret(
    played: Stage, scheme: str, adversary: str
) -> None:
    view = played(scheme).view(adversary)
    text = repr(view)
    assert f"View of {view.adversary} under {scheme}" in text
    assert "By design a" in text
    for keys in view.session_keys:
        for seed in (*keys.biases.values(), *keys.taken.values()):
            assert seed.reveal().hex() not in text
            assert repr(seed.reveal()) not in text


@pytest.mark.parametrize("text", ["nobody", "server+p9", "p1+p1", ""])
def test_an_unknown_adversary_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(ParameterError, match="coalition, others"):
        members_of(text, ("p1", "p2"))


def same(a: View, b: View) -> bool:
    assert repr(a) == repr(b)
    assert (a.initial_model == b.initial_model).all()
    for one, other in zip(a.messages, b.messages, strict=True):
        assert (one.time_s, one.sender, one.receiver, one.kind, one.size) == (
            other.time_s,
            other.sender,
            other.receiver,
            other.kind,
            other.size,
        )
        assert repr(one.message) == repr(other.message)
    return True


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_a_view_survives_the_way_to_disk_and_back(
    played: Stage, scheme: str, adversary: str, tmp_path: Path
) -> None:
    view = played(scheme).view(adversary)
    path = tmp_path / "run.view"
    save_view(view, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    back = load_view(path)
    assert same(view, back)
    for name, samples in view.own_data.items():
        assert (samples.inputs == back.own_data[name].inputs).all()
    for mine, theirs in zip(view.session_keys, back.session_keys, strict=True):
        assert mine.biases.keys() == theirs.biases.keys()
        assert all(mine.biases[n].reveal() == theirs.biases[n].reveal() for n in mine.biases)


def test_seeds_of_whatever_kind_a_scheme_tells_are_in_the_view_and_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seed = Secret(b"\x07" * 32)
    monkeypatch.setattr(SessionSecrets, "tell_seeds", lambda self: {"pads": {PartyId("p3"): seed}})
    config = FederationConfig(scheme="ampc", parties=("p1", "p2", "p3"), rounds=1, model="mlp2:16")
    view = play(config, 1).view("p1")
    save_view(view, tmp_path / "v")
    back = load_view(tmp_path / "v")
    for (keys,) in (view.session_keys, back.session_keys):
        assert keys.seeds["pads"]["p3"].reveal() == seed.reveal()
        assert not (keys.taken or keys.biases)
    assert repr(view) == repr(back)


def test_message_contents_come_back_to_the_bit(played: Stage, tmp_path: Path) -> None:
    view = played("ampc").view("server")
    save_view(view, tmp_path / "v")
    for (_, mine), (_, theirs) in zip(
        view.received(MaskedInput), load_view(tmp_path / "v").received(MaskedInput), strict=True
    ):
        assert (mine.vector == theirs.vector).all()
        assert mine.stamp == theirs.stamp


def test_a_file_with_any_byte_altered_is_refused(played: Stage, tmp_path: Path) -> None:
    path = tmp_path / "run.view"
    save_view(played("plain").view("server"), path)
    content = path.read_bytes()
    for where in (*range(0, 200, 7), *range(200, len(content), len(content) // 50), len(content) - 1):
        altered = bytearray(content)
        altered[where] ^= 0x55
        path.write_bytes(bytes(altered))
        with pytest.raises(BadViewFile, match=r"run\.view"):
            load_view(path)


def test_a_truncated_file_is_refused(played: Stage, tmp_path: Path) -> None:
    path = tmp_path / "run.view"
    save_view(played("plain").view("server"), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadViewFile):
        load_view(path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 not a zip"])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.view"
    path.write_bytes(content)
    with refusal(BadViewFile, "x.view", "recorded"):
        load_view(path)


def test_a_foreign_archive_and_a_pickled_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, weights=np.ones(3))
    with pytest.raises(BadViewFile):
        load_view(path)
    np.savez(path, table=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadViewFile):
        load_view(path)


def test_the_peers_seeds_travel_sealed(played: Stage) -> None:
    """The bias seeds a peer holds appear in no message of any view, not even its own."""
    stage = played("ampc")
    secret = stage.view("p1").session_keys[0].biases["p2"].reveal()
    sent = [message for _, message in stage.view("p2").sent(SeedsForNeighbour)]
    assert sent
    assert all(kind_of(one) == "ampc.seeds-for-neighbour" for one in sent)
    assert all(secret not in one.sealed.ciphertext for one in sent)
