"""What a checkpoint says of the chain: numbers, votes, certificates, entered attempts; states are parts of their own.

Implements specs/guide.md, section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.statements import EnteredAttempt
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.model import Model

_CERTIFICATES = ("certificate", "sealed_certificate")
_VOTES = ("vote", "sealed_vote")


def chain_parts(chain: ChainRecord | None) -> dict[str, object | None]:
    """The large parts of a record besides the model, each as long as it is there."""
    state, after = (None, None) if chain is None else (chain.state, chain.next_state)
    return {
        "step": state.memory if state is not None else None,
        "next-model": after.model if after is not None else None,
        "next-step": after.memory if after is not None else None,
    }


def pack_chain(chain: ChainRecord | None) -> dict[str, Any] | None:
    if chain is None:
        return None
    return {
        "position": chain.position,
        "votes_here": chain.votes_here,
        "forgetful": chain.forgetful,
        "anchor": chain.anchor.hex(),
        "chain": chain.chain.hex(),
        "state": _packed_state(chain.state),
        "next_state": _packed_state(chain.next_state),
        **{name: _packed_certificate(getattr(chain, name)) for name in _CERTIFICATES},
        **{name: _packed_vote(getattr(chain, name)) for name in _VOTES},
    }


def unpack_chain(
    fields: Mapping[str, Any] | None, model: Model | None, parts: Mapping[str, Any]
) -> ChainRecord | None:
    if fields is None:
        return None
    following = np.frombuffer(parts["next-model"], dtype="<f4").copy() if "next-model" in parts else None
    return ChainRecord(
        int(fields["position"]),
        _state(fields["state"], model, parts.get("step", b"")),
        next_state=_state(fields["next_state"], following, parts.get("next-step", b"")),
        votes_here=bool(fields["votes_here"]),
        forgetful=bool(fields["forgetful"]),
        anchor=bytes.fromhex(fields["anchor"]),
        chain=bytes.fromhex(fields["chain"]),
        certificate=_certificate(fields["certificate"]),
        sealed_certificate=_certificate(fields["sealed_certificate"]),
        vote=_vote(fields["vote"]),
        sealed_vote=_vote(fields["sealed_vote"]),
    )


def pack_attempts(entered: tuple[int, tuple[EnteredAttempt, ...]]) -> list[Any]:
    """The attempts at one position that a party entered; hellos state them."""
    position, attempts = entered
    return [
        position,
        [
            {
                "session": one.session.hex(),
                "attempt": one.attempt,
                "members": list(one.members),
                "uploaded": one.uploaded,
                "released": list(one.released),
                "voucher": one.voucher.hex(),
            }
            for one in attempts
        ],
    ]


def unpack_attempts(fields: list[Any]) -> tuple[int, tuple[EnteredAttempt, ...]]:
    position, attempts = fields
    return int(position), tuple(
        EnteredAttempt(
            bytes.fromhex(one["session"]),
            int(one["attempt"]),
            _names(one["members"]),
            bool(one["uploaded"]),
            _names(one["released"]),
            bytes.fromhex(one["voucher"]),
        )
        for one in attempts
    )


def _names(names: list[str]) -> tuple[PartyId, ...]:
    return tuple(PartyId(name) for name in names)


def _packed_state(state: ChainState | None) -> list[Any] | None:
    return (
        None
        if state is None
        else [state.position, state.before.hex(), state.model_hash.hex(), state.hash.hex()]
    )


def _state(fields: list[Any] | None, model: Model | None, memory: bytes) -> ChainState | None:
    if fields is None or model is None:
        return None
    position, *hashes = fields
    return ChainState(int(position), model, memory, *(bytes.fromhex(one) for one in hashes))


def _packed_ballot(ballot: Ballot) -> dict[str, Any]:
    return {
        "position": ballot.position,
        "before": ballot.before.hex(),
        "after": ballot.after.hex(),
        "electorate": list(ballot.electorate),
        "survivors": list(ballot.survivors),
    }


def _ballot(fields: Mapping[str, Any]) -> Ballot:
    return Ballot(
        int(fields["position"]),
        bytes.fromhex(fields["before"]),
        bytes.fromhex(fields["after"]),
        _names(fields["electorate"]),
        _names(fields["survivors"]),
    )


def _packed_certificate(certificate: Certificate | None) -> list[Any] | None:
    if certificate is None:
        return None
    signatures = {name: signature.hex() for name, signature in certificate.signatures.items()}
    return [_packed_ballot(certificate.ballot), signatures]


def _certificate(fields: list[Any] | None) -> Certificate | None:
    if fields is None:
        return None
    signatures = {PartyId(name): bytes.fromhex(signature) for name, signature in fields[1].items()}
    return Certificate(_ballot(fields[0]), signatures)


def _packed_vote(vote: Vote | None) -> list[Any] | None:
    return None if vote is None else [_packed_ballot(vote.ballot), vote.signature.hex()]


def _vote(fields: list[Any] | None) -> Vote | None:
    return None if fields is None else Vote(_ballot(fields[0]), bytes.fromhex(fields[1]))
