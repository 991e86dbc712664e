"""A peer's side of a session's set-up: exchange sealed seeds, then make sure that everyone starts from one model.

    EXCHANGING   seeds of the other members are due
    FETCHING     we are behind: the current model is due from a peer
    COMPARING    everyone must say that it holds the same model

A peer that is behind (a joiner, or one that missed a round) takes the model from the first up-to-date peer,
and only if every one that is up to date stated the same keyed hash, and more than half of the others are up to date, or
it is the result that the peer itself computed and stated before it stopped. The latter needs everyone who was in that
sum: a server that gave two halves of the peers different sums could otherwise have one liar tell each half, alone, that
its result was committed. With all of them here, all of them must state one model before anyone takes it.
Seeds reach neighbours directly and all others through the server; either way they are sealed to the
receiver's RSA key and signed by the sender.

Implements specs/protocol.md, section 4.
"""

from __future__ import annotations

import numpy as np

from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import Purpose
from veilsum.protocol.crypto.sealing import open_sealed, seal
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    ParticipantContext,
    Prepared,
    handles,
    require_absent,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.machines.session import hash_model
from veilsum.protocol.machines.transitions import Phase, TransitionTable, Trigger
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets, keyed_model_hash
from veilsum.protocol.schemes.ampc.messages import (
    SEEDS_DOMAIN,
    ModelGiven,
    ModelHeld,
    ModelWanted,
    SealedRecord,
    SeedsForNeighbour,
    SeedsForOthers,
    SeedsRelayed,
    seal_label,
    sealed_digest,
)
from veilsum.protocol.secure_sum.participant import SEED_BYTES, fresh_seed
from veilsum.protocol.wire.messages import Tensor


class SetupPhase(Phase):
    EXCHANGING = "exchanging"
    FETCHING = "fetching"
    COMPARING = "comparing"
    CLOSED = "closed"


_P = SetupPhase
_OPEN = (_P.EXCHANGING, _P.FETCHING, _P.COMPARING)


class SessionSetup(AttemptMachine):
    table = TransitionTable(
        "ampc peer, set-up",
        _P.EXCHANGING,
        {
            (_P.EXCHANGING, "start"): (_P.FETCHING, _P.COMPARING, _P.CLOSED),
            (_P.EXCHANGING, SeedsForNeighbour): _OPEN,
            (_P.EXCHANGING, SeedsRelayed): _OPEN,
            **{(phase, ModelHeld): (phase,) for phase in _OPEN},
            **{(phase, ModelWanted): (phase,) for phase in (_P.EXCHANGING, _P.COMPARING)},
            (_P.FETCHING, ModelGiven): (_P.COMPARING,),
            (_P.COMPARING, "comparison"): (_P.CLOSED,),
            **{(phase, "deadline"): (_P.CLOSED,) for phase in _OPEN},
        },
    )

    def __init__(self, context: ParticipantContext, *, with_bias: bool) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._with_bias = with_bias
        self._graph: Graph | None = None
        self._given: dict[PartyId, Secret] = {}
        self._taken: dict[PartyId, Secret] = {}
        self._biases: dict[PartyId, Secret] = {}
        self._held: dict[PartyId, ModelHeld] = {}
        self._wanting: list[PartyId] = []
        self._model = context.model
        self._newest = max(hello.rounds_done for hello in context.session.hellos.values())
        self._behind = context.session.hellos[context.name].rounds_done < self._newest

    def start(self, now: float) -> list[Event]:
        context = self._context
        self.deadline = now + context.timing.patience_s
        try:
            self._graph = context.parameters.graph.draw(context.session.members, context.session.id)
            self._graph.require_safe_for_decomposition()
            self._require_believable_progress()
        except Rejection as problem:
            return self.fail("start", _P.CLOSED, problem)
        if self._with_bias:
            self._biases[context.name] = fresh_seed(context)
        self._given = {other: fresh_seed(context) for other in self._graph.neighbours_of(context.name)}
        events: list[Event] = [
            Send(other, SeedsForNeighbour(self.stamp, self._sealed_for(other))) for other in self._given
        ]
        strangers = [other for other in context.session.members if other not in (context.name, *self._given)]
        if strangers and self._with_bias:
            sealed = {other: self._sealed_for(other) for other in strangers}
            events.append(Send(SERVER, SeedsForOthers(self.stamp, sealed)))
        return events

    def _require_believable_progress(self) -> None:
        """Being behind is believed only if most of the others say so: one liar must not replace our model."""
        others = len(self._context.session.members) - 1
        if self._behind and not self._most_are_ahead and self._own_result is None:
            raise Rejection(
                AbortReason.WRONG_MODEL,
                f"{len(self._up_to_date)} of {others} others claim {self._newest} rounds, led by "
                f"{self._up_to_date[0]}: more than half must",
            )

    @property
    def _most_are_ahead(self) -> bool:
        return 2 * len(self._up_to_date) > len(self._context.session.members) - 1

    @property
    def _own_result(self) -> bytes | None:
        """The hash of the newest model, if we computed it ourselves with parties that are all here."""
        record, members = self._context.record, self._context.session.members
        cohort = record.cohort_of(self._newest - 1)
        if record.stated is None or record.stated[0] != self._newest - 1:
            return None
        return record.stated[1] if cohort is not None and cohort <= set(members) else None

    def _sealed_for(self, other: PartyId) -> SealedRecord:
        """The share secret for a neighbour, then our bias secret, under the receiver's RSA key and our signature."""
        context = self._context
        parts = [self._given[other]] if other in self._given else []
        parts += [self._biases[context.name]] if self._with_bias else []
        rsa = context.roster.identity(other).rsa
        if rsa is None:
            raise Rejection(AbortReason.BAD_KEY, f"{other} has no RSA key in the roster")
        label = seal_label(self.stamp, context.name, other)
        ciphertext = seal(rsa, b"".join(part.reveal() for part in parts), label, context.random)
        signature = context.me.signing.sign(SEEDS_DOMAIN, sealed_digest(label, ciphertext))
        return SealedRecord(ciphertext, signature)

    def _open_seeds(self, sender: PartyId, record: SealedRecord, parts: int) -> list[Secret]:
        context = self._context
        label = seal_label(self.stamp, sender, context.name)
        context.roster.verify(sender, SEEDS_DOMAIN, sealed_digest(label, record.ciphertext), record.signature)
        assert context.me.rsa is not None
        plain = open_sealed(context.me.rsa, record.ciphertext, label).reveal()
        if len(plain) != parts * SEED_BYTES:
            raise Rejection(AbortReason.BAD_SEAL, f"expected {parts} seeds of {SEED_BYTES} bytes")
        return [Secret(plain[at : at + SEED_BYTES]) for at in range(0, len(plain), SEED_BYTES)]

    @handles(SeedsForNeighbour)
    def take_from_neighbour(self, sender: PartyId, message: SeedsForNeighbour, now: float) -> list[Event]:
        if sender not in self._given:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "share seeds of a party that is not a neighbour")
        require_absent(sender, self._taken)
        seeds = self._open_seeds(sender, message.sealed, 2 if self._with_bias else 1)
        self._taken[sender] = seeds[0]
        if self._with_bias:
            self._biases[sender] = seeds[1]
        return self._after_seeds(SeedsForNeighbour)

    @handles(SeedsRelayed)
    def take_relayed(self, sender: PartyId, message: SeedsRelayed, now: float) -> list[Event]:
        require_from_server(sender)
        opened = {}
        for origin, record in message.sealed.items():
            if origin in self._given or origin not in self._context.session.hellos or not self._with_bias:
                raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"relayed seeds of {origin}")
            require_absent(origin, self._biases)
            opened[origin] = self._open_seeds(origin, record, 1)[0]
        self._biases |= opened
        return self._after_seeds(SeedsRelayed)

    @property
    def _secrets(self) -> SessionSecrets:
        assert self._graph is not None
        return SessionSecrets(self._graph, self._given, self._taken, self._biases)

    @property
    def _seeds_complete(self) -> bool:
        members = set(self._context.session.members)
        return self._taken.keys() == self._given.keys() and (
            not self._with_bias or self._biases.keys() == members
        )

    def _after_seeds(self, trigger: Trigger) -> list[Event]:
        if not self._seeds_complete:
            return []
        if self._behind:
            self.move(trigger, _P.FETCHING, self.deadline)
            return self._ask_for_model()
        self.move(trigger, _P.COMPARING, self.deadline)
        events = self._state_model(self._newest)
        for other in self._wanting:
            events += self._give_model(other)
        return events + self._compare()

    def _state_model(self, rounds_done: int) -> list[Event]:
        assert self._model is not None
        keyed = keyed_model_hash(self._secrets, self.stamp, hash_model(self._model), "held")
        held = ModelHeld(self.stamp, rounds_done, keyed)
        self._held[self._context.name] = held
        others = [name for name in self._context.session.members if name != self._context.name]
        return [Send(name, held) for name in (*others, SERVER)]

    @handles(ModelHeld)
    def note_held(self, sender: PartyId, message: ModelHeld, now: float) -> list[Event]:
        self._context.session.require_member(sender)
        require_absent(sender, self._held)
        if message.rounds_done != self._newest:
            raise Rejection(
                AbortReason.WRONG_ROUND, f"{message.rounds_done} rounds, the newest is {self._newest}"
            )
        self._held[sender] = message
        if self.phase is _P.FETCHING:
            return self._ask_for_model()
        return self._compare() if self.phase is _P.COMPARING else []

    def _compare(self) -> list[Event]:
        mine = self._held[self._context.name].keyed_hash
        for name, held in sorted(self._held.items()):
            if held.keyed_hash != mine:
                detail = f"{name} and {self._context.name} hold different models after {self._newest} rounds"
                return self.fail("comparison", _P.CLOSED, Failed(AbortReason.WRONG_MODEL, name, detail))
        if self._held.keys() >= set(self._context.session.members):
            self.move("comparison", _P.CLOSED)
            self.outcome = Prepared(self._secrets, self._model, self._newest)
        return []

    @property
    def _up_to_date(self) -> list[PartyId]:
        hellos = self._context.session.hellos
        return [name for name, hello in hellos.items() if hello.rounds_done == self._newest]

    def _ask_for_model(self) -> list[Event]:
        """Ask once all up-to-date peers have stated their hash; asking again would not help."""
        if not self._held.keys() >= set(self._up_to_date) or self._wanting:
            return []
        provider = self._up_to_date[0]
        self._wanting = [provider]
        return [Send(provider, ModelWanted(self.stamp))]

    @handles(ModelWanted)
    def answer_want(self, sender: PartyId, message: ModelWanted, now: float) -> list[Event]:
        self._context.session.require_member(sender)
        if sender in self._up_to_date or self._behind:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"{sender} does not need our model")
        require_absent(sender, self._wanting)
        self._wanting.append(sender)
        return [] if self.phase is _P.EXCHANGING else self._give_model(sender)

    def _give_model(self, other: PartyId) -> list[Event]:
        assert self._model is not None
        box = seal_box(self._box_secret(self._context.name, other), self._model.tobytes(), b"")
        return [Send(other, ModelGiven(self.stamp, np.frombuffer(box, dtype=np.uint8)))]

    @handles(ModelGiven)
    def adopt_model(self, sender: PartyId, message: ModelGiven, now: float) -> list[Event]:
        if self._wanting != [sender]:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "we did not ask this peer for its model")
        model = self._opened_model(sender, message.box)
        if not self._most_are_ahead and hash_model(model) != self._own_result:
            raise Rejection(AbortReason.WRONG_MODEL, "this is not the result that we computed")
        keyed = keyed_model_hash(self._secrets, self.stamp, hash_model(model), "held")
        for name in self._up_to_date:
            if self._held[name].keyed_hash != keyed:
                raise Rejection(AbortReason.WRONG_MODEL, f"{name} holds another model than the one offered")
        self._model = model
        self.move(ModelGiven, _P.COMPARING, self.deadline)
        return self._state_model(self._newest) + self._compare()

    def _opened_model(self, sender: PartyId, box: Tensor) -> Model:
        plain = open_box(self._box_secret(sender, self._context.name), box.tobytes(), b"")
        if len(plain) != 4 * self._context.parameters.dimension:
            raise Rejection(AbortReason.BAD_VECTOR, "the model has another dimension than the federation's")
        return np.frombuffer(plain, dtype="<f4")

    def _box_secret(self, sender: PartyId, receiver: PartyId) -> Secret:
        return self._context.box_secret(Purpose.SEAL, self.stamp.without_model(), sender, receiver)

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))
