"""Charts of an audit's rows: how near the best inversion comes, beside its references or from scheme to scheme."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from veilsum.roles.pages.charts import Chart, grouped_bars
from veilsum.simulations.attacks.metrics import STRICT_SSIM
from veilsum.simulations.audit.report.summary import WHO
from veilsum.simulations.audit.report.verdicts import REALISTIC_IMAGES
from veilsum.simulations.audit.rows.row import Row

_SCALE = "SSIM (1 is the image itself)"
_REBUILT = (STRICT_SSIM, "images count as rebuilt")
_REFERENCES = {
    "attack": "the attack",
    "undefended": "without any protection",
    "oracle": "with the secret given",
    "null": "on noise",
}
_LEVELS = {
    "L0": "attacker who ignores the defence",
    "L1": "attacker who knows the defence",
    "L2": "attackers who pool what they hold",
}


def charts(rows: Sequence[Row]) -> list[Chart]:
    """What there is to draw: of one cell its references, of several a comparison."""
    measured = [row for row in rows if row.ssim is not None]
    cells = {(row.scheme, row.defence, row.adversary) for row in measured if row.row == "attack"}
    if not cells:
        return []
    return list(_beside(measured) if len(cells) == 1 else _across(measured))


def _beside(rows: Sequence[Row]) -> Iterator[Chart]:
    """Of one cell: the attack beside the rows that say what its success is worth."""
    groups: dict[str, dict[str, float]] = {}
    for kind, words in _REFERENCES.items():
        best: dict[str, float] = {}
        for row in rows:
            if row.row == kind:
                _keep_best(best, _batch(row), row)
        if best:
            groups[words] = best
    yield grouped_bars(
        groups, title="How near the attack comes, beside its references", up=_SCALE, mark=_REBUILT
    )


def _across(rows: Sequence[Row]) -> Iterator[Chart]:
    attacks = [row for row in rows if row.row == "attack"]
    for adversary in ("server", "client"):
        schemes: dict[str, dict[str, float]] = {}
        for row in attacks:
            if row.adversary == adversary and row.defence == "none" and _drawn(row):
                _keep_best(schemes.setdefault(row.scheme, {}), _batch(row), row)
        if schemes:
            title = f"Images that {WHO[adversary]} gets back, by scheme: the best attack"
            yield grouped_bars(schemes, title=title, up=_SCALE, mark=_REBUILT)
    defences: dict[str, dict[str, float]] = {}
    for row in attacks:
        if row.defence != "none":
            _keep_best(defences.setdefault(row.defence, {}), _LEVELS.get(row.knowledge, row.knowledge), row)
    if defences:
        title = "Images that the server gets back under a defence in training, worst case"
        yield grouped_bars(defences, title=title, up=_SCALE, mark=_REBUILT)


def _drawn(row: Row) -> bool:
    """Whether a row is of one of the two cases that the verdicts tell apart; sweeps lie between them."""
    return row.images in (1, REALISTIC_IMAGES)


def _keep_best(found: dict[str, float], name: str, row: Row) -> None:
    assert row.ssim is not None
    found[name] = max(found.get(name, row.ssim), row.ssim)


def _batch(row: Row) -> str:
    if row.images is None:
        return "any batch"
    return f"{row.images} image{'s' * (row.images > 1)} per party" + (" (worst case)" * (row.images == 1))
