"""AMPC's two decompositions of a peer's vector, as mask keys (specs/protocol.md, section 4).

First decomposition: peer i cuts a share PRG(s_ij) off its encoded vector q_i for every neighbour j and
keeps the rest; the shares of one vector add up to it, so the sum over all peers does not change when every
peer adds the shares it got. Second decomposition: i splits what it then holds into a public part, uploaded,
and a private one, its bias PRG(a_i):

    p_i = q_i - sum_j PRG(s_ij) + sum_j PRG(s_ji) - PRG(a_i) (+ PRG(b_i), the self mask)

The server's sum is sum q_i - sum PRG(a_i): uniform words for every set of survivors, since every survivor's
bias is in it once and no bias of anyone else. Every peer knows all a_i and adds them back.

With the paper's common bias each peer subtracts B = sum_j PRG(a_j) instead. The sum is then sum q_i - m B,
and m B is even for even m, so the low bit of the sum would show; for even m the peer with the lowest name
therefore leaves B out, and the peers add (m - 1) B. Rejected for good: a companion bias tensor and a split
by principal components, which the paper mentions; one doubles the traffic, the other leaks the directions
it splits along.

The secrets of a session are sealed once, at its start; what enters a round are keys derived from them with
round, attempt, names and the hash of the model, so that nothing is ever used twice.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from veilsum.protocol.agreed.parameters import Bias
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.kdf import Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.ring import Ring, RingVector
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.secure_sum.group_key import GroupKey
from veilsum.protocol.wire.messages import Stamp


@dataclass(frozen=True)
class SessionSecrets:
    """What a peer holds of one session; `group` is the key that all peers have. `biases` is empty under `mpc`."""

    graph: Graph
    group: GroupKey
    given: Mapping[PartyId, Secret] = field(repr=False)
    taken: Mapping[PartyId, Secret] = field(repr=False)
    biases: Mapping[PartyId, Secret] = field(repr=False)

    def tell_seeds(self) -> Mapping[str, Mapping[PartyId, Secret]]:
        """What the view of the peer that holds them has of these secrets."""
        return {"given": self.given, "taken": self.taken, "biases": self.biases}


def share_key(secret: Secret, stamp: Stamp, giver: PartyId, taker: PartyId) -> Secret:
    """The mask key of the share that `giver` cuts off for `taker` in this attempt."""
    return derive_key(secret, Purpose.SHARE, stamp.key_context(giver, taker))


def bias_key(secret: Secret, stamp: Stamp, owner: PartyId) -> Secret:
    return derive_key(secret, Purpose.BIAS, stamp.key_context(owner))


def bias_keys(secrets: SessionSecrets, stamp: Stamp, owners: Iterable[PartyId]) -> list[Secret]:
    return [bias_key(secrets.biases[owner], stamp, owner) for owner in owners] if secrets.biases else []


def subtracted_biases(
    secrets: SessionSecrets, stamp: Stamp, me: PartyId, members: tuple[PartyId, ...], bias: Bias
) -> list[Secret]:
    """The bias streams that `me` subtracts from its upload."""
    if bias is Bias.OWN:
        return bias_keys(secrets, stamp, [me])
    leaves_out = len(members) % 2 == 0 and me == min(members)
    return [] if leaves_out else bias_keys(secrets, stamp, members)


def add_biases_back(
    ring: Ring,
    total: RingVector,
    secrets: SessionSecrets,
    stamp: Stamp,
    survivors: tuple[PartyId, ...],
    bias: Bias,
) -> None:
    """Turn the server's sum into the sum of the encoded vectors, in place."""
    keys = bias_keys(secrets, stamp, survivors)
    if bias is Bias.OWN or not keys:
        apply_masks(ring, total, add=keys)
        return
    common = ring.zeros(len(total))
    apply_masks(ring, common, add=keys)
    odd_multiple = len(survivors) - (len(survivors) % 2 == 0)
    common *= ring.dtype.type(odd_multiple)
    total += common


def group_key_of(secrets: Mapping[PartyId, Secret]) -> GroupKey:
    """The key that all peers of a session have: it comes from a secret of each, which all others were sent."""
    joined = length_prefixed(*(secrets[owner].reveal() for owner in sorted(secrets)))
    return GroupKey.of(Secret(hashlib.sha256(domain_tag("group-secrets") + joined).digest()))


def keyed_state_hash(group: GroupKey, stamp: Stamp, state_hash: bytes, use: str) -> bytes:
    """A hash of a state that peers can compare and the server cannot test guesses against.

    `use` keeps the states before and after a round apart: the server must not even see that they are equal.
    """
    key = derive_key(group.key, Purpose.MODEL_HASH, stamp.without_model().key_context("", term=use))
    return hmac.new(key.reveal(), state_hash, "sha256").digest()


def peers_box_key(group: GroupKey, stamp: Stamp, sender: PartyId, use: str) -> Secret:
    """The key of one box of a peer's for all others."""
    return derive_key(group.key, Purpose.SEAL, stamp.without_model().key_context(sender, term=use))
