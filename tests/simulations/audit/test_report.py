"""The report as people read it: the verdict first, everything said in words, and nothing of it markup of others."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.support.refusals import require_mentions
from veilsum.roles.learning.datasets.supervised import classification_metrics
from veilsum.simulations.audit.report.curves import sections
from veilsum.simulations.audit.report.page import MEANING, Report, render
from veilsum.simulations.audit.report.summary import summary_of, summary_of_curves
from veilsum.simulations.audit.report.verdicts import (
    ANY,
    HOLDS,
    LEAKS,
    OPEN,
    PARTLY,
    REALISTIC,
    RECORDED,
    WORST,
    judge,
    unjudged,
    verdicts,
    warnings,
    worst_only,
)
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import Picture, Row
from veilsum.simulations.audit.runner import share_references
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.stage import balanced_accuracy
from veilsum.simulations.audit.sweeps.cap import Point
from veilsum.simulations.audit.sweeps.everything import all_requests
from veilsum.simulations.audit.sweeps.ppc import PpcOutcome

SMOKE = find_scale("smoke")
HOSTILE = "</style><script>alert('x')</script><img src=x onerror=alert(1)>\" onload=\"{{ 7*7 }}"
VOID = {"meta", "img", "br", "link", "input", "hr"}


class Opened(HTMLParser):
    """A page as a list of elements, and which of them hold which."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.inside: list[str] = []
        self.unclosed: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.inside.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        if not self.inside or self.inside.pop() != tag:
            self.unclosed.append(tag)

    def handle_data(self, data: str) -> None:
        if not {"style", "svg"} & set(self.inside):
            self.words += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements]


def row(images: int | None = 1, ssim: float | None = 0.99, kind: str = "attack", **changes: object) -> Row:
    settings: dict[str, object] = {
        "scheme": "masked",
        "defence": "none",
        "adversary": "server",
        "attack": "idlg",
        "knowledge": "L0",
        "row": kind,
        "target": "aggregate of 4 parties",
        "n": 64,
        "cpu_s": 1.0,
        "ssim": ssim,
        "images": images,
        **changes,
    }
    return Row(**settings)  # type: ignore[arg-type]


def pictured(caption: str = "SSIM 0.99") -> Row:
    image = np.random.default_rng(7).random((1, 8, 8)).astype(np.float32)
    return row(
        pictures=[Picture(image, image, caption), Picture(None, image, caption)], threat="View of <server>"
    )


def several() -> list[Row]:
    """Two schemes, a defence, two adversaries, both cases, and the references."""
    return [
        pictured(),
        row(16, 0.5),
        row(1, 0.0, "null"),
        row(16, 0.1, "null"),
        row(1, 1.0, "oracle"),
        row(16, 0.95, "oracle"),
        row(1, 0.97, scheme="plain", adversary="client"),
        row(1, 0.3, scheme="plain", defence="dp:sigma=1", knowledge="L1"),
        row(None, None, scheme="plain", adversary="client", attack="mia-loss", extra={"auc": 0.9}),
    ]


def opened(rows: Sequence[Row], **changes: object) -> Opened:
    report = Report("Audit", "veilsum audit all --scale smoke", "smoke", rows)
    for name, value in changes.items():
        setattr(report, name, value)
    return Opened(render(report))


def test_single_images_and_a_realistic_batch_have_a_verdict_each() -> None:
    rows = several()
    words = {(one.scheme, one.case): one.word for one in verdicts(rows) if one.adversary == "server"}
    assert words["masked", WORST] == LEAKS
    assert words["masked", REALISTIC] == PARTLY
    assert ("plain", REALISTIC) not in words


def test_what_no_batch_changes_counts_in_every_case() -> None:
    told = row(None, None, attack="mia-loss", extra={"auc": 0.9})
    assert [(one.case, one.word) for one in verdicts([told])] == [(ANY, LEAKS)]
    rows = [row(1, 0.0), row(16, 0.0), told, row(1, 1.0, "oracle"), row(16, 1.0, "oracle")]
    assert {one.case: one.word for one in verdicts(rows)} == {WORST: LEAKS, REALISTIC: LEAKS}


def test_a_batch_is_judged_beside_references_of_its_own_size() -> None:
    """That single images are rebuilt with the secret given says nothing about a batch that is not."""
    rows = [row(16, 0.1), row(1, 0.0, "null"), row(1, 1.0, "oracle"), row(16, 0.05, "null")]
    assert judge(rows[0], rows)[0] == HOLDS
    assert judge(rows[0], [*rows, row(16, 0.3, "oracle")])[0] == OPEN


def test_a_row_without_a_number_is_not_taken_for_one_that_holds() -> None:
    rows = [row(1, float("nan")), row(1, 0.0, "null"), row(1, 1.0, "oracle")]
    assert judge(rows[0], rows)[0] == OPEN
    assert unjudged(rows) == rows[:1]
    assert unjudged(rows[1:]) == []


def test_references_are_made_once_for_each_batch() -> None:
    asked = [Request("plain", "server", "idlg", SMOKE, images=images) for images in (1, 16, 1, 16)]
    assert [one.references for one in share_references(asked)] == [True, True, False, False]


def test_the_audit_of_everything_attacks_every_undefended_cell_with_a_realistic_batch_too() -> None:
    requests = all_requests(SMOKE, 7, "digits", None)
    cells = {
        images: {(one.scheme, one.adversary) for one in requests if one.images == images and not one.defence}
        for images in (1, 16)
    }
    inverted = {
        (one.scheme, one.adversary)
        for one in requests
        if one.attack == "idlg" and one.images == 1 and not one.defence
    }
    assert cells[16] == inverted
    assert {("plain", "server"), ("masked", "server"), ("ampc", "server"), ("masked", "client")} <= cells[16]
    assert all(one.scale.draws == 1 for one in requests if one.images == 16)


def test_a_report_says_of_which_cells_no_batch_was_attacked() -> None:
    """Those with a defence; what no batch changes is not among them."""
    assert worst_only(verdicts(several())) == ["plain/none/client", "plain/dp:sigma=1/server"]
    words = " ".join(opened(several()).words.split())
    assert "With the worst case only were attacked: plain/none/client, plain/dp:sigma=1/server;" in words
    assert "With the worst case only" not in opened([pictured(), row(16, 0.5)]).words
    untouched = [row(None, None, attack="mia-loss", extra={"auc": 0.9})]
    assert worst_only(verdicts(untouched)) == []


@pytest.mark.parametrize(
    "rows", [several(), [pictured(), row(16, 0.5)], [row(None, None, extra={"auc": 0.5})], []]
)
def test_three_sentences_say_what_was_tried_what_came_out_and_what_it_means(rows: list[Row]) -> None:
    said = summary_of(rows, "digits")
    assert len(said.lines()) == 3
    for sentence in said.lines():
        assert sentence[0].isupper()
        assert re.findall(r"[.!?](?:\s|$)", sentence) == ["."]
    assert "digits" in said.tried
    cases = {one.case for one in verdicts(rows)}
    assert ("worst case" in said.found) == (WORST in cases)
    assert ("realistic batch of 16" in said.found) == (REALISTIC in cases)
    assert "secure" not in " ".join(said.lines())
    assert ("no proof" in said.means) == any(one.word != LEAKS for one in verdicts(rows))


def recorded(**extra: object) -> Row:
    return row(None, None, recorded=True, n=1, note="sha256 0123456789abcdef", extra=extra)


@pytest.mark.parametrize(
    ("found", "shown", "remedy"),
    [
        ({"model_sha256": "0123456789abcdef"}, "0123456789abcdef", "hash"),
        ({"match_loss": 0.31, "images_assumed": 1}, "3.1e-01", "images"),
        ({"match_loss": float("nan"), "images_assumed": 1}, "1", "images"),
    ],
)
def test_of_a_recorded_view_the_report_shows_what_was_found_and_decides_nothing(
    found: dict[str, object], shown: str, remedy: str
) -> None:
    """No truth is known there: neither success nor failure is told, nor a batch, nor an attack that nobody made."""
    rows = [recorded(**found), row(None, None, "null", recorded=True, extra=found)]
    assert [(one.case, one.word) for one in verdicts(rows)] == [(RECORDED, OPEN)]
    said = summary_of(rows, "digits")
    for sentence in said.lines():
        assert sentence[0].isupper()
        assert re.findall(r"[.!?](?:\s|$)", sentence) == ["."]
    require_mentions(said.found, shown, "truth")
    require_mentions(said.means, remedy)
    for untrue in (
        "the attack failed",
        "without protection",
        "worst case",
        "batch",
        "no further",
        "Small federations",
    ):
        assert untrue not in " ".join(said.lines())
    page = opened(rows)
    assert "worst case" not in page.words
    assert not page.unclosed
    require_mentions(page.words, "digits", shown)


def test_images_that_explain_a_gradient_of_a_recorded_view_as_good_as_exactly_are_a_leak() -> None:
    rows = [recorded(match_loss=1e-9, images_assumed=1), recorded(match_loss=0.5, images_assumed=1)]
    assert [(one.case, one.word) for one in verdicts(rows)] == [(RECORDED, LEAKS)]
    assert unjudged(rows) == rows[1:]
    require_mentions(summary_of(rows, "digits").found, "2", "1.0e-09", LEAKS)


def test_a_leak_of_single_images_alone_is_told_with_its_batch_and_too_few_images_are_called_few() -> None:
    assert "few images" in summary_of(several(), "digits").means
    assert "too few" not in summary_of([row(n=64)], "digits").means
    assert "too few" in summary_of([row(n=4), row(16, n=64)], "digits").means
    assert any("at most 4 images" in text for text in warnings([row(n=4), row(16, n=64)]))


def test_curves_have_three_sentences_with_their_figures() -> None:
    near = {
        level: {"rmse": 0.1, "rmse_raw": 0.1, "label": 0.0, "tracing": 0.0} for level in ("naive", "adaptive")
    }
    far = {
        level: {"rmse": 0.9, "rmse_raw": 0.9, "label": 0.0, "tracing": 0.0} for level in ("naive", "adaptive")
    }
    points = [
        Point("dp", 1.0, 10.0, 0.9, near),
        Point("dp", 2.0, 1.0, 0.88, far),
        Point("dp", 3.0, 0.1, 0.2, far),
    ]
    outcome = PpcOutcome(points, undefended=Point("none", 0.0, float("inf"), 0.9, {}))
    said = summary_of_curves(outcome, "digits")
    assert said.found.startswith("2 of 3 settings")
    assert "under 1 of those" in said.found
    useless = PpcOutcome(points[2:], undefended=outcome.undefended)
    assert summary_of_curves(useless, "digits").found.startswith("None of 1 settings")
    page = Opened(render(Report("PPC", "c", "smoke", sections=sections(outcome), summary=said)))
    assert page.tags.count("svg") == 4
    assert said.found in page.words


def test_the_first_screen_has_the_verdict_the_data_set_the_date_the_command_and_the_version() -> None:
    page = opened(several())
    head = page.words.partition("Contents")[0]
    for words in (
        *summary_of(several(), "digits").lines(),
        "digits",
        "UTC",
        "veilsum audit all",
        "veilsum 0",
    ):
        assert words in head
    assert page.tags.index("dl") < page.tags.index("nav") < page.tags.index("table")


@pytest.mark.parametrize("rows", [several(), [pictured(), row(16, 0.5)]])
def test_a_reader_who_sees_nothing_finds_landmarks_headings_captions_and_descriptions(
    rows: list[Row],
) -> None:
    page = opened(rows)
    assert page.unclosed == []
    assert page.inside == []
    for landmark in ("header", "main", "nav", "footer", "h1"):
        assert page.tags.count(landmark) == 1
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert page.tags.count("caption") == page.tags.count("table") > 0
    assert all(one["scope"] in ("col", "row") for one in page.all("th"))
    assert all(one["alt"] for one in page.all("img"))
    assert all(one["role"] == "img" and one["aria-label"] for one in page.all("svg"))
    scrolling = [one for one in page.all("div") if one.get("class") == "scroll"]
    assert all(one["tabindex"] == "0" and one["role"] == "region" and one["aria-label"] for one in scrolling)
    ids = [one["id"] for tag, one in page.elements if "id" in one and tag in ("h2", "main")]
    assert len(ids) == len(set(ids))
    assert {one["href"] for one in page.all("a")} <= {f"#{name}" for name in ids}
    assert len(page.all("a")) > 4


def test_a_verdict_is_a_word_and_a_sign_and_not_a_colour_alone() -> None:
    page = render(Report("Audit", "c", "smoke", several()))
    for word in MEANING:
        assert f'<span class="badge {word}">{word}</span>' in page
        assert f".{word}::before {{ content:" in page


def test_the_page_needs_nothing_from_outside() -> None:
    page = opened([pictured(), row(1, 0.1, "null")], complete=False)
    assert len(page.all("img")) == 3
    assert all(one["src"].startswith("data:image/png;base64,") for one in page.all("img"))
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert "url(" not in render(Report("Audit", "c", "smoke", [pictured()])).partition("<svg")[0]
    assert "View of <server>" in page.words
    assert "Interrupted" in page.words


def test_names_findings_and_captions_of_others_stay_text() -> None:
    fields = ("scheme", "defence", "adversary", "attack", "knowledge", "target", "note", "threat")
    hostile = row(pictures=pictured(HOSTILE).pictures, **dict.fromkeys(fields, HOSTILE))
    report = Report(HOSTILE, HOSTILE, HOSTILE, [hostile, *several()], data=HOSTILE, notes=[HOSTILE])
    text = render(report)
    page = Opened(text)
    assert "script" not in page.tags
    assert not [one for _, one in page.elements if {"onerror", "onload"} & one.keys()]
    assert page.unclosed == []
    assert "49" not in page.words.partition("Contents")[0]
    assert page.words.count(HOSTILE) > 10


def test_knowledge_is_measured_where_guessing_the_frequent_class_gains_nothing() -> None:
    targets = np.array([0] * 90 + [1] * 10)
    always = np.tile(np.array([[1.0, 0.0]], np.float32), (100, 1))
    metrics = classification_metrics(always, targets)
    assert metrics["accuracy"] == 0.9
    assert balanced_accuracy(metrics) == 0.5
