"""A row that counts successes: so many of n, with an interval, and what else was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from veilsum.simulations.attacks.metrics import success_rate
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.gradient import heading_of
from veilsum.simulations.audit.rows.row import Row, RowKind


def counted_row(
    request: Request,
    kind: RowKind,
    target: str,
    hits: Sequence[bool] | np.ndarray[Any, Any],
    cpu_s: float = 0.0,
    note: str = "",
    threat: str = "",
    extra: Mapping[str, float] | None = None,
) -> Row:
    """The share of hits among all trials."""
    rate = success_rate(int(np.sum(hits)), len(hits))
    return Row(
        **vars(heading_of(request, kind, target)),
        n=len(hits),
        cpu_s=cpu_s,
        success_rate=rate.value,
        ci_low=rate.low,
        ci_high=rate.high,
        extra=extra or {},
        note=note,
        threat=threat,
    )
