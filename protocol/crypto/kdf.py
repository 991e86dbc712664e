"""One secret in, one key for one purpose out: HKDF-SHA256 (RFC 5869) with the session id as salt.

The info string names the purpose, the protocol version, and everything that tells this key from every
other: session, round, attempt, sender, receiver, term, group, and the hash of the model the round starts
from. The encoding is injective, so equal keys mean equal purpose and equal context. Two consequences carry
the protocol:

* One derived key covers one vector or one box, ever. A repeated attempt has another attempt number, hence
  other masks, and nothing cancels between the two.
* Parties that start from different models derive different masks, so their sum fails the check coordinate
  instead of telling the server how one party answers to a model made for it alone.

Rejected: a counter instead of a context (two implementations that count differently would reuse keys), and
one key stretched over several purposes (a mask published for one purpose would open another).

This runs once per neighbour, term and attempt, so it is kept to one packing call and one library call; the
library's HKDF is no slower than two HMACs of the standard library.

Implements specs/keys.md, section 3.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veilsum.protocol.crypto.domains import DIGEST_BYTES, domain_tag, length_prefixed
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import SESSION_ID_BYTES

KEY_BYTES = 32

_SHA256 = hashes.SHA256()
_COUNTERS = struct.Struct(">QQQ")
_LARGEST_COUNTER = 2**64 - 1
_LONGEST_NAME = 255


class Purpose(enum.Enum):
    """What a key is for; the value is the label inside its info string."""

    SEAL = "seal"
    PAIR_MASK = "pair-mask"
    SELF_MASK = "self-mask"
    SHARE = "share"
    BIAS = "bias"
    SHARE_BOX = "share-box"
    EPOCH_SHARE = "epoch-share"
    EPOCH_BIAS = "epoch-bias"
    MODEL_HASH = "model-hash"
    SUM_TAG = "sum-tag"
    GROUP_KEY = "group-key"


_LABELS = {purpose: length_prefixed(domain_tag(f"kdf/{purpose.value}")) for purpose in Purpose}


@dataclass(frozen=True, slots=True)
class KeyContext:
    """Everything that tells one key from every other key of the same purpose."""

    session: bytes
    round: int
    attempt: int
    sender: str
    receiver: str = ""
    term: str = ""
    group: int = 0
    model_hash: bytes = b""

    def __post_init__(self) -> None:
        if len(self.session) != SESSION_ID_BYTES:
            raise LocalProtocolError(f"a session id is {SESSION_ID_BYTES} bytes, not {len(self.session)}")
        if len(self.model_hash) not in (0, DIGEST_BYTES):
            raise LocalProtocolError(f"a model hash is {DIGEST_BYTES} bytes, not {len(self.model_hash)}")
        counters = (self.round, self.attempt, self.group)
        if min(counters) < 0 or max(counters) > _LARGEST_COUNTER:
            raise LocalProtocolError(f"round, attempt and group are 64-bit counters, not {counters}")

    def encode(self) -> bytes:
        """The canonical bytes: three counters, then the parts of variable length behind their lengths."""
        return _COUNTERS.pack(self.round, self.attempt, self.group) + length_prefixed(
            self.session,
            _encode_name(self.sender),
            _encode_name(self.receiver),
            _encode_name(self.term),
            self.model_hash,
        )


def derive_key(secret: Secret, purpose: Purpose, context: KeyContext) -> Secret:
    """The 32-byte key of `purpose` in `context`; the secret must be a full-strength 32-byte one."""
    if len(secret) != KEY_BYTES:
        raise LocalProtocolError(f"keys are derived from {KEY_BYTES}-byte secrets, not {len(secret)} bytes")
    info = _LABELS[purpose] + context.encode()
    return Secret(hkdf_sha256(secret.reveal(), salt=context.session, info=info))


def hkdf_sha256(key_material: bytes, *, salt: bytes, info: bytes) -> bytes:
    """RFC 5869 extract and expand, 32 bytes of output."""
    return HKDF(_SHA256, KEY_BYTES, salt, info).derive(key_material)


def _encode_name(name: str) -> bytes:
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"{name!r} has no UTF-8 encoding and cannot name a key") from error
    if len(encoded) > _LONGEST_NAME:
        raise LocalProtocolError(
            f"a name inside a key context has at most {_LONGEST_NAME} bytes: {name[:32]!r}..."
        )
    return encoded
