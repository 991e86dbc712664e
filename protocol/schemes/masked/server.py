"""The server's side of one attempt with zero-sum masks: relays, adds up, and opens exactly one sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.crypto.agreement import AgreementKey, require_agreement_key, require_new_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Committed, ServerContext, handles, require_absent
from veilsum.protocol.machines.events import Event, Send, Warned
from veilsum.protocol.machines.session import hash_model
from veilsum.protocol.machines.transitions import TransitionTable, Trigger
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.schemes.masked.messages import (
    ROUND_KEY_DOMAIN,
    CohortKeys,
    KeyRecord,
    RoundKeys,
    cohort_seed,
    round_key_digest,
)
from veilsum.protocol.secure_sum.masking import WHOLE_VECTOR, pair_mask_key, self_mask_key, unmask_sum
from veilsum.protocol.secure_sum.server import SECURE_SUM_MOVES, SecureSumServer, SecureSumServerPhase
from veilsum.protocol.secure_sum.shares import holders_of
from veilsum.protocol.wire.messages import Stamp

_P = SecureSumServerPhase


@dataclass(frozen=True)
class Opened:
    model: Model
    model_hash: bytes
    total: RingVector
    liars: tuple[PartyId, ...]
    loss: float | None = None


class MaskedServer(SecureSumServer):
    shares_masking_keys = True
    table = TransitionTable(
        "masked server",
        _P.GATHERING_KEYS,
        {
            (_P.GATHERING_KEYS, RoundKeys): (
                _P.GATHERING_KEYS,
                _P.GATHERING_SHARES,
                _P.COLLECTING,
                _P.CLOSED,
            ),
            (_P.GATHERING_KEYS, "deadline"): (_P.GATHERING_SHARES, _P.COLLECTING, _P.CLOSED),
            (_P.GATHERING_KEYS, "loss"): (_P.GATHERING_SHARES, _P.COLLECTING, _P.CLOSED),
            **SECURE_SUM_MOVES,
            (_P.UNMASKING, "work"): (_P.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context, context.stamp)
        self._keys: dict[PartyId, KeyRecord] = {}
        self._graph: Graph | None = None

    @property
    def _candidates(self) -> set[PartyId]:
        return set(self._keys)

    @property
    def _sharing_graph(self) -> Graph:
        assert self._graph is not None
        return self._graph

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.phase_s
        return self._context.open_round()

    @handles(RoundKeys)
    def gather_key(self, sender: PartyId, message: RoundKeys, now: float) -> list[Event]:
        require_absent(sender, self._keys)
        record = message.keys
        if record.model_hash != self.stamp.model_hash:
            raise Rejection(AbortReason.WRONG_MODEL, "the round key is signed for another model")
        require_agreement_key(record.key)
        require_new_key(sender, record.key, ((name, one.key) for name, one in self._keys.items()))
        digest = round_key_digest(self.stamp, sender, record.key, record.model_hash)
        self._context.roster.verify(sender, ROUND_KEY_DOMAIN, digest, record.signature)
        self._keys[sender] = record
        return self._advance(RoundKeys, now)

    def _waiting_for(self) -> set[PartyId]:
        if self.phase is _P.GATHERING_KEYS:
            return self._awaited - self._keys.keys()
        return super()._waiting_for()

    def _next_phase(self, trigger: Trigger, now: float) -> list[Event]:
        if self.phase is _P.GATHERING_KEYS:
            return self._publish_keys(trigger, now)
        return super()._next_phase(trigger, now)

    def _publish_keys(self, trigger: Trigger, now: float) -> list[Event]:
        advertised = set(self._keys)
        too_few = self._too_few(advertised) or self._not_the_same(advertised)
        if too_few is not None:
            return self.fail(trigger, _P.CLOSED, too_few)
        try:
            self._graph = self._context.parameters.graph.draw(self._keys, cohort_seed(self.stamp, self._keys))
            self._graph.require_connected()
        except Rejection as problem:
            return self.fail(trigger, _P.CLOSED, problem)
        self._begin_gathering_shares(trigger, now)
        if not self._context.parameters.lists_neighbourhoods:
            cohort = CohortKeys(self.stamp, self._keys, len(self._keys))
            return [Send(name, cohort) for name in sorted(self._keys)]
        return [Send(name, self._keys_around(name)) for name in sorted(self._keys)]

    def _keys_around(self, name: PartyId) -> CohortKeys:
        around = holders_of(self._sharing_graph, name)
        return CohortKeys(self.stamp, {other: self._keys[other] for other in around}, len(self._keys))

    @property
    def _mask_terms(self) -> Mapping[str, slice]:
        """The parts of an upload that have mask streams of their own, by the name that sets those apart."""
        return WHOLE_VECTOR

    @property
    def _masking_stamp(self) -> Stamp:
        """What mask keys are bound to."""
        return self.stamp

    def _open_sum(self) -> Opened:
        encoding = self._context.parameters.encoding
        liars: set[PartyId] = set()
        if self._collector is not None:
            secrets, liars = self._collector.rebuild()
            for term, place in self._mask_terms.items():
                self_keys = [
                    self_mask_key(secrets[name], self._masking_stamp, name, term) for name in self._survivors
                ]
                unmask_sum(encoding.ring, self._total[place], self_keys, self._open_pairs(secrets, term))
        mean, _ = encoding.decode_mean(self._total, len(self._uploaded))
        return self._make_model(mean, tuple(sorted(liars)))

    def _make_model(self, mean: NDArray[np.float64], liars: tuple[PartyId, ...]) -> Opened:
        """The next model from what was opened."""
        assert self._context.model is not None
        model = self._context.next_model(self._context.model, mean)
        return Opened(model, hash_model(model), self._total, liars)

    def _open_pairs(
        self, secrets: dict[PartyId, Secret], term: str
    ) -> Iterator[tuple[PartyId, PartyId, Secret]]:
        """Pair masks between a survivor and a dropped party: only one side of each is in the sum."""
        for missing in sorted(self._cohort - self._uploaded):
            key = AgreementKey.from_private(secrets[missing])
            if key.public != self._keys[missing].key:
                raise Rejection(
                    AbortReason.BAD_SHARE, f"the shares rebuild another key than that of {missing}"
                )
            for survivor in self._sharing_graph.neighbours_of(missing):
                if survivor in self._uploaded:
                    pair = (survivor, missing)
                    theirs = self._keys[survivor].key
                    yield survivor, missing, pair_mask_key(key, theirs, self._masking_stamp, pair, term)

    def _opened(self, opened: Opened, now: float) -> list[Event]:
        self.move("work", _P.CLOSED)
        self.outcome = Committed(
            self._survivors, opened.model, opened.model_hash, opened.total, loss=opened.loss
        )
        return [Warned(f"{name} released a wrong share; it was left out") for name in opened.liars]
