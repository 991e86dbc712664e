"""The enrolment file that a party sends back: its public keys, and what it begins with. Nothing in it is secret.

The party signs it with the key that it brings, which shows that it has that key; whether the key is the party's is for
the words that it reads to the organiser. The first model itself is in it where the server gives models to the parties
and it is small; a large one lies beside it, and one party's is enough.

Implements specs/invitations.md, section 2.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity, PublicIdentity
from veilsum.protocol.crypto.signing import verify_signature
from veilsum.protocol.errors import ProtocolError, Rejection
from veilsum.protocol.numbers.model import Model
from veilsum.roles.broker.logins import require_login_line
from veilsum.roles.federation.first_models import FirstModel, first_model_fields, first_model_from_fields
from veilsum.roles.federation.identity_fields import (
    from_base64,
    identity_fields,
    identity_from_fields,
    to_base64,
)
from veilsum.roles.invitations.json_file import BadFile, encode_object, read_object

SUFFIX = ".enrolment"
FORMAT = "veilsum enrolment"
MOST_MODEL_BYTES = 16 * 1024 * 1024
"""A larger first model travels in a file of its own."""
_VERSION = 1
_DOMAIN = "enrolment"
_FIELDS = ("federation", "invitation", "identity", "login", "first_model", "model", "signature")
_ASK_AGAIN = "ask the party to run veilsum join again and send the file that it names"


@dataclass(frozen=True)
class Reply:
    """`federation` is the identifier of the federation, `invitation` the id of the invitation file that it answers.

    `login` is the party's line for the broker, with a password of its own in place of the one in the invitation.
    """

    federation: str
    invitation: bytes
    identity: PublicIdentity
    login: str
    first_model: FirstModel
    model: Model | None = field(default=None, repr=False)
    signature: bytes = b""

    @property
    def digest(self) -> bytes:
        texts = self.federation.encode(), self.login.encode()
        parts = (*texts, self.invitation, self.identity.digest, self.first_model.digest)
        return hashlib.sha256(length_prefixed(domain_tag(_DOMAIN), *parts)).digest()

    def signed_by(self, identity: Identity) -> Reply:
        signature = identity.signing.sign(_DOMAIN, self.digest)
        return replace(self, signature=signature)

    def encode(self) -> bytes:
        model = None if self.model is None else base64.b64encode(self.model.astype("<f4").tobytes()).decode()
        return encode_object(
            FORMAT,
            _VERSION,
            {
                "federation": self.federation,
                "invitation": self.invitation.hex(),
                "identity": identity_fields(self.identity),
                "login": self.login,
                "first_model": first_model_fields(self.first_model),
                "model": model,
                "signature": to_base64(self.signature),
            },
        )


def read_reply(path: Path) -> Reply:
    """What a party sent, if it is whole and the party's own key signed it."""
    import numpy as np

    fields = read_object(path, FORMAT, _VERSION, _FIELDS, _ASK_AGAIN)
    try:
        text = fields["model"]
        model = None if text is None else np.frombuffer(from_base64(text), dtype="<f4").astype(np.float32)
        found = Reply(
            str(fields["federation"]),
            bytes.fromhex(fields["invitation"]),
            identity_from_fields(fields["identity"]),
            fields["login"],
            first_model_from_fields(fields["first_model"]),
            model,
            from_base64(fields["signature"]),
        )
        found.identity.require_real()
        verify_signature(found.identity.verify_key, _DOMAIN, found.digest, found.signature)
        found.first_model.require_stated_by(found.identity)
        _require_stated(found)
    except Rejection as refusal:
        raise BadFile(path, f"is not what the party signed ({refusal.reason.value})", _ASK_AGAIN) from None
    except (ProtocolError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadFile(path, f"is damaged ({error})", _ASK_AGAIN) from None
    return found


def _require_stated(reply: Reply) -> None:
    if require_login_line(reply.login) != (reply.identity.name, reply.login):
        raise ValueError("its login is that of another party")
    from veilsum.protocol.chain.state import hash_model

    stated, model = reply.first_model, reply.model
    if model is not None and (len(model) != stated.length or hash_model(model) != stated.model_hash):
        raise ValueError("its model is not the one that it states")
