"""The words that a server ends a run with: to all when it is over, or to one party that the run goes on without.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

import numpy as np

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.machines.attempt import Failed
from veilsum.protocol.machines.events import PartyNamed
from veilsum.protocol.machines.on_chain import ServerOnChain
from veilsum.protocol.machines.rules import RoleParts
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.session import Farewell
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.wire.messages import Stamp

_LONGEST_DETAIL = 1000


def nothing() -> Model:
    """No model: what a message carries in the place of one."""
    return np.zeros(0, dtype="<f4")


def dismissal(named: PartyNamed, rounds_done: int) -> Farewell:
    """What a party hears that lied and was named."""
    detail = f"the run goes on without {named.party}, which {named.detail}"[:_LONGEST_DETAIL]
    return Farewell(Stamp(b"", rounds_done), False, named.reason.value, detail, nothing())


class Parting:
    """What participants are left with is made once, however many hear of it."""

    def __init__(self, scheme: Scheme, parts: RoleParts, chain: ServerOnChain | None) -> None:
        self._scheme = scheme
        self._parts = parts
        self._chain = chain
        self._model: Model | None = None

    def farewell(
        self, stamp: Stamp, failed: Failed | None, held: Model | None, *, lacks_it: bool
    ) -> Farewell:
        """The end, with the model that the server holds; one that has the last state is sent its proof alone."""
        reason, detail = ("", "") if failed is None else (failed.reason.value, failed.detail)
        told = stamp, failed is None, reason, detail[:_LONGEST_DETAIL]
        model = self._model_to_keep(held, completed=failed is None)
        if self._chain is None or not len(model):
            return Farewell(*told, model)
        record, state = self._chain.record, self._chain.point().state
        if not lacks_it:
            return Farewell(*told, nothing(), certificate=record.certificate)
        memory = np.frombuffer(state.memory, dtype=np.uint8)
        return Farewell(*told, state.model, memory, state.before, record.certificate)

    def _model_to_keep(self, held: Model | None, *, completed: bool) -> Model:
        """Nothing where the server holds no model or gives none away."""
        if self._model is None and held is not None:
            scheme, parts = self._scheme, self._parts
            self._model = scheme.parting_model(held, parts.equipment, parts.random, completed=completed)
            if completed and self._model is None:
                raise LocalProtocolError(
                    f"{scheme.name} leaves participants without a model after a completed run: they refuse to end so; "
                    "let parting_model return one"
                )
        return self._model if self._model is not None else nothing()
