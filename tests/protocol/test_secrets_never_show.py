"""Secrets never appear in repr, str, formatting, logs, or formatted tracebacks of anything that holds one.

A leak is searched for in every eight-byte window of a secret, in the forms that programs print bytes in. The
search itself is tested first: a test that could not find a leak would prove nothing.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import io
import json
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from Crypto.PublicKey import RSA
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.kdf import KeyContext, Purpose, derive_key
from veilsum.protocol.crypto.linear_tag import LinearTags, group_key_id
from veilsum.protocol.crypto.lines import LineKeys
from veilsum.protocol.crypto.sealing import RsaPrivateKey, open_sealed, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.signing import SigningKey, verify_signature
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.fixedpoint import plan
from veilsum.protocol.randomness import require_random
from veilsum.protocol.secure_sum.verification import AttemptTags
from veilsum.roles.federation.keystore import PRIVATE_FILE, create_identity, load_identity
from veilsum.roles.process.entropy import SeededEntropy, require_real_entropy

VECTORS = Path(__file__).parents[2] / "specs" / "vectors" / "v8"
WINDOW = 8
CONTEXT = KeyContext(session=bytes(32), round=0, attempt=0, sender="alice")

secrets = st.binary(max_size=8).map(lambda seed: hashlib.sha256(seed).digest())


def printed_forms(piece: bytes) -> Iterator[str]:
    """How a piece of a byte string looks inside a printed one."""
    yield piece.hex()
    yield repr(piece)[2:-1]
    yield str(list(piece))[1:-1]
    for offset in range(3):
        # Base64 has three alignments; a character at an edge may mix in bits of the neighbouring byte.
        first, end = -(-8 * offset // 6), 8 * (offset + len(piece)) // 6
        yield base64.b64encode(bytes(offset) + piece).decode()[first:end]


def assert_hidden(secret: bytes, text: str) -> None:
    lowered = text.lower()
    for start in range(len(secret) - WINDOW + 1):
        for form in printed_forms(secret[start : start + WINDOW]):
            assert form.lower() not in lowered
    for number in (int.from_bytes(secret, "big"), int.from_bytes(secret, "little")):
        assert str(number) not in text


def everything_printed(thing: object) -> str:
    """All ways to turn an object into text that a program or a logger may take."""
    log = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(logging.StreamHandler(log))
    logger.warning("%s %r", thing, thing)
    holder = dataclasses.make_dataclass("Holder", ["inside"])(thing)
    try:
        raise RuntimeError(thing)
    except RuntimeError as error:
        logger.exception("failed with %s", thing)
        raised = "".join(traceback.format_exception(error))
    formatted = f"{thing} {thing!r} {thing!s} {[thing]} {(thing,)} {holder}"
    return "\n".join([repr(thing), str(thing), formatted, raised, log.getvalue()])


@given(secrets, st.sampled_from(["raw", "hex", "base64", "list", "integer"]))
def test_the_search_finds_a_leak(secret: bytes, form: str) -> None:
    """A secret printed in any usual form, even a third of it, is found."""
    part = secret[10:26]
    leaked = {
        "raw": repr(secret),
        "hex": part.hex().upper(),
        "base64": base64.b64encode(secret).decode(),
        "list": str(list(part)),
        "integer": str(int.from_bytes(secret, "big")),
    }[form]
    with pytest.raises(AssertionError):
        assert_hidden(secret, f"state: {leaked} end")


@functools.cache
def rsa_key() -> RsaPrivateKey:
    keys = json.loads((VECTORS / "sealing_keys.json").read_text())["cases"]
    return RsaPrivateKey.from_der(Secret(bytes.fromhex(keys[0]["der"])))


HOLDERS: dict[str, Callable[[bytes], object]] = {
    "secret": Secret,
    "derived key": lambda secret: derive_key(Secret(secret), Purpose.SEAL, CONTEXT),
    "signing key": lambda secret: SigningKey.from_private(Secret(secret)),
    "agreement key": lambda secret: AgreementKey.from_private(Secret(secret)),
    "line": lambda secret: LineKeys(Secret(secret), bytes(32), PartyId("alice"), PartyId("bob")),
    "identity": lambda secret: Identity(
        PartyId("alice"), Role.CLIENT, SigningKey.from_private(Secret(secret))
    ),
    "linear tags": lambda secret: LinearTags(Secret(secret)),
    "tags of an attempt": lambda secret: AttemptTags(
        plan(3, 9, 8.0, 64).encoding, Secret(secret), [PartyId("alice")]
    ),
    "seeded entropy": SeededEntropy,
    "party entropy": lambda secret: SeededEntropy(secret).for_party("alice"),
}


@settings(max_examples=20, deadline=None)
@given(secrets)
@pytest.mark.parametrize("holder", HOLDERS)
def test_no_object_shows_the_secret_it_holds(holder: str, secret: bytes) -> None:
    assert_hidden(secret, everything_printed(HOLDERS[holder](secret)))


def test_derived_and_agreed_keys_do_not_show_themselves() -> None:
    """What comes out of derivation, agreement and opening is hidden as well as what went in."""
    ours, theirs = (AgreementKey.from_private(Secret(bytes([fill]) * 32)) for fill in (1, 2))
    sealed = seal(rsa_key().public, bytes(range(32)), bytes(32), bytes)
    for made in (
        derive_key(Secret(bytes(32)), Purpose.SEAL, CONTEXT),
        ours.agree(theirs.public),
        open_sealed(rsa_key(), sealed, bytes(32)),
    ):
        assert_hidden(made.reveal(), everything_printed(made))


@pytest.mark.parametrize("wrapped", [False, True])
def test_rsa_key_shows_none_of_its_numbers(wrapped: bool) -> None:
    """The library's own key object prints its primes; ours shows none of them, alone or in an identity."""
    key = rsa_key()
    library_key = RSA.import_key(key.der.reveal())
    signing = SigningKey.from_private(Secret(bytes(range(32))))
    thing = Identity(PartyId("alice"), Role.PEER, signing, key) if wrapped else key
    text = everything_printed(thing)
    assert str(library_key.p) in repr(library_key)
    for number in (library_key.p, library_key.q, library_key.d, library_key.u):
        assert_hidden(int(number).to_bytes(384, "big").lstrip(b"\0"), text)


def failures(secret: bytes) -> dict[str, Callable[[], object]]:
    """Operations that fail while they hold the secret."""
    hidden = Secret(secret)
    box = seal_box(hidden, b"content", b"header")
    line = LineKeys(hidden, bytes(32), PartyId("alice"), PartyId("bob"))
    line.seal(0, b"content", b"")
    signing, agreement = SigningKey.from_private(hidden), AgreementKey.from_private(hidden)
    return {
        "open a box": lambda: open_box(hidden, box, b"other header"),
        "open a box of a line": lambda: line.open(0, box, b""),
        "seal a spent number": lambda: line.seal(0, b"", b""),
        "open a seal": lambda: open_sealed(rsa_key(), bytes(384), bytes(32)),
        "agree with oneself": lambda: agreement.agree(agreement.public),
        "agree on a low order": lambda: agreement.agree(bytes(32)),
        "sign no digest": lambda: signing.sign("roster", b""),
        "verify": lambda: verify_signature(signing.public, "roster", bytes(32), bytes(64)),
        "derive from a long secret": lambda: derive_key(Secret(secret * 2), Purpose.SEAL, CONTEXT),
        "load a long signing key": lambda: SigningKey.from_private(Secret(secret * 2)),
        "load a long agreement key": lambda: AgreementKey.from_private(Secret(secret * 2)),
        "tag under a long key": lambda: LinearTags(Secret(secret * 2)),
        "show the id of a long key": lambda: group_key_id(Secret(secret * 2)),
        "check a sum that is none": lambda: LinearTags(hidden).require_sum(0, [b"sum"], 3, [0]),
        "load no RSA key": lambda: RsaPrivateKey.from_der(hidden),
        "short randomness": lambda: require_random(lambda _: secret, 33),
        "seeded randomness": lambda: require_real_entropy(SeededEntropy(secret)),
        "hash a secret": lambda: hash(hidden),
    }


@pytest.mark.parametrize("failure", sorted(failures(bytes(32))))
@settings(max_examples=10, deadline=None)
@given(secrets)
def test_no_failure_shows_the_secret_at_hand(failure: str, secret: bytes) -> None:
    """Error texts and formatted tracebacks, chained ones included, are free of the secret."""
    action = failures(secret)[failure]
    with pytest.raises((Exception,)) as caught:
        action()
    assert_hidden(secret, "".join(traceback.format_exception(caught.value)) + repr(caught.value))


@pytest.mark.parametrize(
    "failure", ["open a box", "open a box of a line", "open a seal", "agree on a low order", "verify"]
)
def test_refusing_remote_input_leaves_no_secret_in_local_variables(failure: str) -> None:
    """When a stranger's bytes are refused, even a traceback that prints local variables is clean."""
    secret = hashlib.sha256(b"local variables").digest()
    action = failures(secret)[failure]
    with pytest.raises((Exception,)) as caught:
        action()
    frames = [
        (frame, line)
        for frame, line in traceback.walk_tb(caught.value.__traceback__)
        if frame.f_globals["__name__"].startswith("veilsum.")
    ]
    assert frames
    text = "".join(traceback.StackSummary.extract(iter(frames), capture_locals=True).format())
    assert_hidden(secret, text)


def test_damaged_key_file_is_reported_without_its_content(tmp_path: Path) -> None:
    """Loading a cut key file names the file; neither the text nor the chained errors carry the key."""
    identity = create_identity(tmp_path / "keys", "alice", "client", with_rsa=False)
    path = tmp_path / "keys" / PRIVATE_FILE
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(Exception, match="corrupt") as caught:
        load_identity(tmp_path / "keys")
    assert caught.value.__context__ is None and caught.value.__cause__ is None
    assert_hidden(identity.signing.private.reveal(), "".join(traceback.format_exception(caught.value)))
