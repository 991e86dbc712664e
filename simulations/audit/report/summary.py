"""What an audit comes to in three plain sentences: what was tried, what came out, what that means and what not.

They stand first wherever a report is read, since most readers stop there; so each is true by itself, and none says
"secure". A finding of the worst case is never told without its batch, nor one of a sum without its size. Of a recorded
view no truth is known: what was found is shown, and only a person can say whether it is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass

from veilsum.simulations.audit.report.verdicts import (
    ANY,
    HOLDS,
    LEAKS,
    NO_ATTACK,
    OPEN,
    PARTLY,
    REALISTIC,
    REALISTIC_IMAGES,
    RECORDED,
    WORST,
    Verdict,
    too_few,
    verdicts,
)
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.sweeps.ppc import PpcOutcome

WHO = {
    "server": "the server",
    "client": "one participant",
    "peer": "one participant",
    "coalition": "the server together with one participant",
    "others": "all participants but one together",
    "broker": "the message broker",
    "lying server": "a server that lies",
}
CASES = {
    WORST: "in the worst case, where an update stands for one image or a few",
    REALISTIC: f"with a realistic batch of {REALISTIC_IMAGES} images or more behind each update",
    ANY: "whatever the batch",
    RECORDED: "on the recorded view",
}
_CAME_OUT = {
    LEAKS: "the adversary got what the data owner would not show",
    PARTLY: "the adversary got more than a guess, but less than the data",
    HOLDS: "the adversary got no more than a guess",
    OPEN: "the attack failed, but it fails without protection, too",
}
_VERBS = {
    LEAKS: ("leaks", "leak"),
    PARTLY: ("leaks in part", "leak in part"),
    HOLDS: ("holds", "hold"),
    OPEN: ("is undecided", "are undecided"),
}
_NEAR, _FAR = 0.05, 0.5


@dataclass(frozen=True)
class Summary:
    """Three sentences."""

    tried: str
    found: str
    means: str

    def lines(self) -> tuple[str, ...]:
        return astuple(self)


def summary_of(rows: Sequence[Row], task: str) -> Summary:
    """The sentences of an audit of these rows."""
    found, attacks = verdicts(rows), [row for row in rows if row.row == "attack"]
    if any(row.recorded for row in attacks):
        return _summary_of_recorded(found, attacks, task)
    return Summary(_tried(attacks, task), _came_out(found), _means(found, attacks))


def summary_of_curves(outcome: PpcOutcome, task: str) -> Summary:
    """The sentences of `audit ppc`: which settings keep accuracy, and how many of them keep attacks away."""
    points, whole = outcome.points, outcome.undefended.accuracy if outcome.undefended else None
    tried = (
        f"A federation was trained on {task} under {_number(len(points), 'setting')} of "
        f"{_number(len(outcome.by_defence()), 'defence')}, and single images behind its updates were attacked, by who "
        "knows nothing of the defence and by who knows all but its secrets."
    )
    if whole is None or not points:
        return Summary(tried, "It was interrupted before anything could be compared.", _CURVES_MEAN)
    useful = [one for one in points if one.accuracy >= whole - _NEAR]
    far = [one for one in useful if min(level["rmse"] for level in one.distances.values()) >= _FAR]
    if not useful:
        kept = f"the accuracy within {_NEAR:.2f} of the {whole:.2f} without a defence"
        return Summary(tried, f"None of {len(points)} settings kept {kept}.", _CURVES_MEAN)
    came = (
        f"{len(useful)} of {len(points)} settings kept the accuracy within {_NEAR:.2f} of the {whole:.2f} without a "
        f"defence, and under {len(far)} of those no attack came nearer to the images than an error of {_FAR:g}, where "
        "1 is what a black image gets."
    )
    return Summary(tried, came, _CURVES_MEAN)


_CURVES_MEAN = (
    "A setting that does well here withstood these two attacks on single images with this budget; that is neither "
    "a proof nor a privacy account, and a better attack may come nearer."
)


def _tried(attacks: Sequence[Row], task: str) -> str:
    if not attacks:
        return f"What was learned from {task} was to be attacked."
    schemes = list(dict.fromkeys(row.scheme for row in attacks))
    defences = list(dict.fromkeys(row.defence for row in attacks if row.defence != "none"))
    names = list(dict.fromkeys(row.attack for row in attacks if row.attack != NO_ATTACK))
    adversaries = list(dict.fromkeys(WHO.get(row.adversary, row.adversary) for row in attacks))
    protection = _listed(schemes, "scheme")
    protection += f" and {_listed(defences, 'defence')} in training" if defences else ""
    aims = [words for words, has in _AIMS.items() if any(map(has, attacks))]
    tried = (
        f"{_listed(names, 'attack')} tried to {_and(aims)}" if names and aims else "nothing could be attacked"
    )
    return (
        f"Small federations learned {task} under {protection}; from what {_any_of(adversaries)} saw, {tried}."
    )


def _summary_of_recorded(found: Sequence[Verdict], attacks: Sequence[Row], task: str) -> Summary:
    """The sentences of attacks without a truth: what each one found, and how a person tells what that is worth."""
    first, leaks = attacks[0], any(one.word == LEAKS for one in found)
    who = WHO.get(first.adversary, first.adversary)
    defended = "" if first.defence == "none" else f" and the defence {first.defence} in training"
    aims = _and([words for words, has in _AIMS.items() if any(map(has, attacks))])
    assumed = [row.extra["images_assumed"] for row in attacks if "images_assumed" in row.extra]
    taken = f", taking an update to stand for {_number(max(assumed), 'image')}" if assumed else ""
    tried = (
        f"A recorded run learned {task} under the scheme {first.scheme}{defended}; from what {who} saw, {first.attack} "
        f"tried to {aims}{taken}."
    )
    came = f"On the recorded view, {first.attack} {_and(list(_found_in_recorded(attacks)))}"
    if leaks:
        return Summary(tried, f"{came}, and {_CAME_OUT[LEAKS]} ({LEAKS}).", f"{_OPEN_TO_ALL.capitalize()}.")
    known = "whether that is right the audit cannot tell, since it does not know the truth"
    means = "Nothing is decided, neither that the attack succeeded nor that it failed"
    return Summary(tried, f"{came}; {known} ({OPEN}).", f"{means}: {_and(list(_left_to_people(attacks)))}.")


def _found_in_recorded(attacks: Sequence[Row]) -> Iterator[str]:
    yield from (f"formed a model ({row.note})" for row in attacks if "model_sha256" in row.extra)
    losses = [row.extra["match_loss"] for row in attacks if "match_loss" in row.extra]
    if losses:
        best = min(losses, key=lambda loss: (math.isnan(loss), loss))
        told = "which they explain" if len(losses) == 1 else "of which they explain the best"
        yield f"made images for {_number(len(losses), 'gradient')}, {told} up to {best:.1e} of its square"


def _left_to_people(attacks: Sequence[Row]) -> Iterator[str]:
    if any("model_sha256" in row.extra for row in attacks):
        yield "compare the hash with the one that the run reported, which is the same if the model was recovered"
    if any("match_loss" in row.extra for row in attacks):
        yield "look at the images in the report of --html, and at the matching loss beside that of noise"


_OPEN_TO_ALL = "what leaks here is open to everyone who can run the same attack"
_TOLD: set[str] = {"auc", "model_distance", "agreement", "refused", "update_error"}
_AIMS: dict[str, Callable[[Row], bool]] = {
    "rebuild training images": lambda row: row.ssim is not None or "match_loss" in row.extra,
    "single out one party's update": lambda row: "update_error" in row.extra or "refused" in row.extra,
    "tell whose data was used": lambda row: "auc" in row.extra,
    "form the model or its predictions": lambda row: bool(
        {"model_distance", "model_sha256", "agreement"} & row.extra.keys()
    ),
    "read other secrets": lambda row: (
        row.ssim is None and row.success_rate is not None and not _TOLD & row.extra.keys()
    ),
}


def _came_out(found: Sequence[Verdict]) -> str:
    parts = []
    for case, words in CASES.items():
        verdict = [one.word for one in found if one.case == case]
        if len(verdict) == 1:
            parts.append(f"{words}, {_CAME_OUT[verdict[0]]} ({verdict[0]})")
        elif verdict:
            counts = [(verdict.count(word), forms) for word, forms in _VERBS.items() if word in verdict]
            told = [f"{count} {forms[count != 1]}" for count, forms in counts]
            of = "" if parts else "of scheme, defence and adversary "
            parts.append(f"{words}, of {len(verdict)} combinations {of}{_and(told)}")
    text = "; ".join(parts) or "nothing was measured"
    return text[0].upper() + text[1:] + "."


def _means(found: Sequence[Verdict], attacks: Sequence[Row]) -> str:
    leaking = {one.name for one in found if one.case == WORST and one.word == LEAKS}
    eased = leaking & {one.name for one in found if one.case == REALISTIC and one.word != LEAKS}
    words = {one.word for one in found}
    said = []
    if eased:
        said.append("a sum of few images hides nothing, and large batches make it harder to read, not safe")
    elif LEAKS in words:
        said.append(_OPEN_TO_ALL)
    elif PARTLY in words:
        said.append("what leaks in part is not safe, since a better attack may get the rest")
    if HOLDS in words:
        said.append("what holds withstood these attacks with this budget, which is no proof that others fail")
    elif words - {LEAKS}:
        said.append("that an attack got no further with this budget is no proof that others get no further")
    few = too_few(attacks)
    if few is not None:
        said.append(f"a figure has {few} single images at most, too few for a claim")
    text = "; ".join(said) or "nothing follows from that"
    return text[0].upper() + text[1:] + "."


def _listed(names: Sequence[str], kind: str) -> str:
    return f"the {kind} {names[0]}" if len(names) == 1 else _number(len(names), kind)


def _number(count: int, kind: str) -> str:
    return f"{count} {kind}{'' if count == 1 else 's'}"


def _any_of(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"each of {len(names)} adversaries"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
