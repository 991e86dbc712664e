"""Which state of the chain a session starts from, and who holds it: a peer's side, without phases.

The session's position is proved by a certificate that the server sees too; it names no hash. Which state that is, peers
tell each other under the group key of the session: each sends the certificate that names the hash, or, if it stopped
before that was complete, its vote for the state that it computed. t(|E|) such votes are a certificate that nobody had
seen before; more votes than may lie are enough for others of the electorate to take the state and add theirs. A peer
that is behind takes the state from another and accepts it only if its hash is the certified one: so neither the server
nor a few peers can put a state of their own in its place.

Implements specs/chain.md, sections 3 and 8, and specs/protocol.md, section 4.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import OTHER_MODEL, ChainState, shown_hash
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote, VoteCount, require_certificate
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import Purpose
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import ParticipantContext
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import DecisionMade, Event
from veilsum.protocol.machines.session import require_model_shape
from veilsum.protocol.schemes.ampc.decomposition import keyed_state_hash, peers_box_key
from veilsum.protocol.schemes.ampc.messages import ChainProof, ModelGiven, ModelHeld, StateContent
from veilsum.protocol.secure_sum.group_key import GroupKey
from veilsum.protocol.secure_sum.passing import require_true_of_us
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.envelope import join
from veilsum.protocol.wire.messages import kind_of


class CommonState:
    """What the peers of a session say they hold, until all hold the certified state."""

    def __init__(self, context: ParticipantContext, group: GroupKey) -> None:
        self._context = context
        self.group = group
        self._stamp = context.stamp.without_model()
        self._record = context.point.record
        self._position = context.stamp.round
        self._votes: dict[bytes, VoteCount] = {}
        self._held: dict[PartyId, ModelHeld] = {}
        self._hashes: dict[PartyId, bytes] = {}
        anchored = context.roster.anchor is not None and context.roster.anchor.position == self._position
        self._certified = self._record.sealed_certificate if self.up_to_date and not anchored else None
        self._voted = self._own_vote()
        if self._voted is not None:
            self._count(context.name, self._voted)
            self._settle_own()

    @property
    def record(self) -> ChainRecord:
        """What we keep of the chain, at the session's position once we got there."""
        return self._record

    @property
    def up_to_date(self) -> bool:
        return self._record.position == self._position

    def _own_vote(self) -> Vote | None:
        """Our vote for the state of this position, if that is where it stands."""
        vote, public = self._record.sealed_vote, self._context.session.certificate
        if self.up_to_date or vote is None or public is None:
            return None
        return vote if vote.ballot.without_hashes() == public.ballot else None

    @property
    def _certified_hash(self) -> bytes | None:
        anchor = self._context.roster.anchor
        if anchor is not None and self._position == anchor.position:
            return anchor.state_hash
        return self._certified.ballot.after if self._certified is not None else None

    # What we say.

    @property
    def held(self) -> ChainState | None:
        """The state that we hold at this position; None as long as we are behind."""
        return self._record.state if self.up_to_date else self._voted_state

    def statement(self) -> ModelHeld:
        """What we hold and what proves it; made once, since one key seals one box."""
        state = self.held
        assert state is not None
        proof = ChainProof(self._stamp, self._certified, None if self.up_to_date else self._voted)
        key = peers_box_key(self.group, self._stamp, self._context.name, "proof")
        box = seal_box(key, join(encode_message(proof)), b"")
        return ModelHeld(self._stamp, self._keyed(state.hash), box)

    @property
    def _voted_state(self) -> ChainState | None:
        return self._record.next_state if self._voted is not None else None

    def _keyed(self, state_hash: bytes) -> bytes:
        return keyed_state_hash(self.group, self._stamp, state_hash, "held")

    # What others say.

    def note(self, sender: PartyId, held: ModelHeld) -> None:
        """Take in what another peer holds, or raise and change nothing."""
        if sender == self._context.name:
            self._held[sender] = held
            self._hashes[sender] = self.held.hash if self.held is not None else b""
            return
        plain = open_box(peers_box_key(self.group, self._stamp, sender, "proof"), held.proof, b"")
        proof = decode_message(kind_of(ChainProof), self._stamp, plain)
        assert isinstance(proof, ChainProof)
        if proof.certificate is not None:
            self._require_ours(proof.certificate)
            self._certified = self._certified or proof.certificate
            self._hashes[sender] = proof.certificate.ballot.after
        elif proof.vote is not None:
            self._count(sender, proof.vote)
            self._hashes[sender] = proof.vote.ballot.after
        self._held[sender] = held
        self._settle_own()

    def _require_ours(self, certificate: Certificate) -> None:
        point, context = self._context.point, self._context
        if certificate.position != self._position or not certificate.ballot.after:
            raise Rejection(AbortReason.BAD_CERTIFICATE, "a certificate of another position")
        require_certificate(point.ballots, context.roster, context.parameters, certificate)

    def _count(self, sender: PartyId, vote: Vote) -> None:
        public = self._context.session.certificate
        if public is None or vote.ballot.without_hashes() != public.ballot or not vote.ballot.after:
            raise Rejection(AbortReason.BAD_CERTIFICATE, "a vote on another ballot than the certified one")
        point, context = self._context.point, self._context
        digest = vote.ballot.digest(point.ballots)
        count = self._votes.get(digest) or VoteCount(
            point.ballots, context.roster, context.parameters, vote.ballot
        )
        count.add(sender, vote.signature)
        self._votes[digest] = count

    def _settle_own(self) -> None:
        """Once the state is certified, the one that we voted for is ours."""
        made = (count.certificate for count in self._votes.values())
        self._certified = self._certified or next((one for one in made if one is not None), None)
        voted = self._voted_state
        if not self.up_to_date and voted is not None and voted.hash == self._certified_hash:
            public = self._context.session.certificate
            self._record = self._record.advanced(
                voted, public, self._certified, took_part=self._took_part(public)
            )

    @property
    def silent(self) -> tuple[PartyId, ...]:
        """Members who have not said what they hold, or not so that we can read it."""
        return tuple(name for name in self._context.session.members if name not in self._held)

    def disagreeing(self) -> tuple[PartyId, ...]:
        """Peers that hold another state than the certified one."""
        holding = self._holding()
        return () if holding is None else tuple(sorted(self._held.keys() - holding))

    def in_words(self) -> str:
        """Who holds which other state, for our own log: the server must not see hashes. Nothing, where nobody does."""
        others, expected = self.disagreeing(), self._certified_hash
        if not others or expected is None:
            return ""
        told = ", ".join(f"{name} {shown_hash(self._hashes.get(name, b''))}" for name in others[:10])
        here = f"another model at position {self._position}: certified as we see it is {shown_hash(expected)}"
        return f"{here}, and there hold {told}; {OTHER_MODEL}"

    def _holding(self) -> list[PartyId] | None:
        """Who holds the certified state, by name; None as long as it is unknown which that is."""
        expected = self._certified_hash
        return None if expected is None else self._holders_of(expected)

    def _holders_of(self, state_hash: bytes | None) -> list[PartyId]:
        if state_hash is None:
            return []
        keyed = self._keyed(state_hash)
        return [name for name, held in sorted(self._held.items()) if held.keyed_hash == keyed]

    # For those who are behind.

    def provider(self, asked: Collection[PartyId]) -> PartyId | None:
        """Whom to ask for the state: the first that holds the one that we lack and was not asked before."""
        return next((name for name in self._holders_of(self._wanted_hash) if name not in asked), None)

    @property
    def _wanted_hash(self) -> bytes | None:
        """The certified state; where none is, the one that our vote may lean on those of others for."""
        borne = self._borne
        return borne.after if borne is not None else self._certified_hash

    @property
    def _borne(self) -> Ballot | None:
        """The ballot that more peers voted for than may lie, if none is certified and we may vote for it."""
        record, point = self._record, self._context.point
        if self._certified_hash is not None or not record.votes_here or record.next_state is not None:
            return None
        found = (count.ballot for count in self._votes.values() if count.supported is not None)
        ours = (self._position - 1, point.electorate, record.known_state.hash)
        return next(
            (
                one
                for one in found
                if (record.position, one.electorate, one.before) == ours and self._is_true_of_us(one)
            ),
            None,
        )

    def _is_true_of_us(self, ballot: Ballot) -> bool:
        try:
            require_true_of_us(self._context, ballot)
        except Rejection:
            return False
        return self._context.name in ballot.electorate

    def give(self, other: PartyId) -> ModelGiven:
        state = self._record.known_state if self.up_to_date else self._voted_state
        if state is None:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"{other} asks for a state that we lack, too")
        memory = np.frombuffer(state.memory, dtype=np.uint8)
        content = StateContent(self._stamp, state.before, state.model, memory)
        box = seal_box(self._box_secret(self._context.name, other), join(encode_message(content)), b"")
        return ModelGiven(self._stamp, np.frombuffer(box, dtype=np.uint8))

    def adopt(self, sender: PartyId, given: ModelGiven) -> list[Event]:
        """Take the state over, or vote for it where it lacks votes; raise if it is another one."""
        plain = open_box(self._box_secret(sender, self._context.name), given.box.tobytes(), b"")
        content = decode_message(kind_of(StateContent), self._stamp, plain)
        assert isinstance(content, StateContent)
        require_model_shape(content.model, self._context.parameters.dimension)
        state = ChainState.of(
            self._context.point.chain, self._position, content.before, content.model, content.memory.tobytes()
        )
        if state.hash != self._wanted_hash:
            raise Rejection(AbortReason.WRONG_MODEL, "the state offered is not the certified one")
        borne = self._borne
        if borne is not None:
            return self._vote_for(state, borne)
        public = self._context.session.certificate
        self._record = self._record.advanced(
            state, public, self._certified, took_part=self._took_part(public)
        )
        return []

    def _vote_for(self, state: ChainState, borne: Ballot) -> list[Event]:
        """Our votes under both ballots, which lean on those of others; durable before we state them."""
        point, me = self._context.point, self._context.me
        sealed = Vote.cast(me, point.ballots, borne)
        self._record = point.cast(Vote.cast(me, point.ballots, borne.without_hashes()), sealed, state)
        self._voted = sealed
        self._count(self._context.name, sealed)
        decided = DecisionMade(VoteCast(self._stamp.round, self._stamp.attempt, self._record))
        self._settle_own()
        return [decided]

    def _took_part(self, public: Certificate | None) -> bool:
        """Whether our own disk and the certificate agree that our update is in the sum; a vote does not say so."""
        uploaded = self._context.record.uploaded_at(self._position - 1)
        return uploaded and public is not None and self._context.name in public.ballot.survivors

    def _box_secret(self, sender: PartyId, receiver: PartyId) -> Secret:
        return self._context.box_secret(Purpose.SEAL, self._stamp, sender, receiver)
