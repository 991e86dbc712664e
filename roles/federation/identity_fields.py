"""A public identity as fields of JSON, the same in a public identity file and in a roster: keys are base64 text."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import cast

from veilsum.protocol.crypto.identity import PublicIdentity, Role
from veilsum.protocol.identifiers import require_party_id

IDENTITY_FIELDS = ("name", "role", "verify_key", "rsa_public")


def identity_fields(identity: PublicIdentity) -> dict[str, str | None]:
    """The fields of a public identity."""
    return {
        "name": identity.name,
        "role": identity.role.value,
        "verify_key": to_base64(identity.verify_key),
        "rsa_public": None if identity.rsa_public is None else to_base64(identity.rsa_public),
    }


def identity_from_fields(fields: Mapping[str, object]) -> PublicIdentity:
    """The identity, which checks its name, role and keys itself; other fields are for the caller."""
    rsa_public = fields["rsa_public"]
    return PublicIdentity(
        require_party_id(fields["name"]),
        cast("Role", fields["role"]),
        from_base64(fields["verify_key"]),
        None if rsa_public is None else from_base64(rsa_public),
    )


def to_base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def from_base64(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"expected base64 text, not {type(text).__name__}")
    return base64.b64decode(text, validate=True)
