"""Defences as users write them: what is written is read back, and what cannot work is refused by name."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.defences.dp.settings import Dp
from veilsum.roles.learning.defences.parse import Defences, parse_defence
from veilsum.roles.learning.defences.ppdl.settings import Ppdl
from veilsum.roles.learning.defences.sketch.settings import Sketch
from veilsum.roles.learning.defences.spn.settings import Spn


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ParameterError) as caught:
        parse_defence(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        ("spn", (Spn(),)),
        ("spn:alpha2=0.1,bits=64", (Spn(alpha2=0.1, bits=64),)),
        ("dp:sigma=0.01,mechanism=laplace", (Dp(0.01, "laplace"),)),
        ("dp:sigma=1e+1, clip=0.5, delta=1e-6", (Dp(10.0, clip=0.5, delta=1e-6),)),
        ("ppdl:share=0.05", (Ppdl(0.05),)),
        ("sketch:ratio=4", (Sketch(4),)),
        ("spn:margin=2 + ppdl:share=1", (Spn(margin=2.0), Ppdl(1.0))),
    ],
)
def test_a_text_names_defences_and_their_settings(text: str, parts: tuple[object, ...]) -> None:
    assert parse_defence(text).parts == parts


@given(
    st.builds(
        Spn,
        bits=st.integers(1, 4096),
        alpha1=st.floats(0.001, 1),
        alpha2=st.floats(0, 1),
        margin=st.floats(1, 100),
    ),
    st.builds(Sketch, ratio=st.integers(1, 64)),
    st.one_of(
        st.builds(Ppdl, share=st.floats(0.001, 1), sigma=st.floats(0, 1000)),
        st.builds(Dp, sigma=st.floats(0, 1000), clip=st.none() | st.floats(0.01, 1e6)),
    ),
)
def test_what_is_written_is_read_back(spn: Spn, sketch: Sketch, last: Dp | Ppdl) -> None:
    made = Defences((spn, sketch, last))
    assert parse_defence(str(made)) == made


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("spm", ["unknown defence 'spm' (did you mean spn?)", "sketch:ratio=2"]),
        (" ", ["unknown defence ''"]),
        ("spn+", ["unknown defence 'spn+'"]),
        ("spn:bitz=3", ["no setting 'bitz' (did you mean bits?)", "bits, alpha1, alpha2, margin"]),
        ("spn:bits=0", ["bits must be a whole number from 1 to 4096, not '0'"]),
        ("spn:bits=6.5", ["bits must be a whole number"]),
        ("spn:alpha2=nan", ["alpha2 must be a number from 0 to 1"]),
        ("spn:alpha1=0", ["alpha1 must be a number above 0 to 1"]),
        ("spn:margin=0.9", ["margin must be a number from 1 to 100"]),
        ("spn:bits", ["'bits' is not KEY=VALUE"]),
        ("spn:bits=8,bits=9", ["bits is given twice"]),
        ("dp", ["dp needs sigma: a number from 0 to 1000"]),
        ("dp:sigma=-1", ["sigma must be"]),
        ("dp:sigma=1,mechanism=uniform", ["mechanism must be one of gaussian, laplace"]),
        ("dp:sigma=1,delta=1e-5", ["delta needs clip"]),
        ("dp:sigma=1,clip=1,mechanism=laplace,delta=0.1", ["delta belongs to mechanism=gaussian"]),
        ("dp:sigma=1,clip=0", ["clip must be a number above 0"]),
        ("ppdl", ["ppdl needs share"]),
        ("ppdl:share=0", ["share must be a number above 0 to 1"]),
        ("ppdl:share=1.01", ["share must be"]),
        ("sketch:ratio=65", ["ratio must be a whole number from 1 to 64"]),
        ("spn+spn:bits=8", ["spn is given 2 times"]),
        ("ppdl:share=0.1+dp:sigma=1", ["ppdl:share=...,sigma=..."]),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed(text: str, fragments: list[str]) -> None:
    (problem,) = problems_of(text)
    for fragment in fragments:
        assert fragment in problem


def test_all_problems_are_reported_together() -> None:
    assert len(problems_of("spm+spn:alpha2=7,bitz=3+dp:mechanism=none+ppdl")) == 6


def test_values_that_no_text_gave_have_the_same_ranges() -> None:
    with pytest.raises(ParameterError) as caught:
        Defences((Spn(bits=True, alpha2=2.0), Ppdl(float("nan"))))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("text", ["spn", "dp:sigma=0.1", "dp:sigma=1,clip=1", "ppdl:share=0.05", "sketch"])
@pytest.mark.parametrize("scheme", ["plain", "mpc", "ampc", "masked"])
def test_every_defence_fits_every_scheme_that_averages_and_says_what_it_leaves_open(
    text: str, scheme: str
) -> None:
    defences = parse_defence(text)
    assert not list(defences.problems(FederationConfig(scheme=scheme)))
    assert list(defences.warnings(FederationConfig(scheme=scheme)))


def test_a_defence_that_does_not_fit_is_refused_before_anything_starts() -> None:
    spn, noise = parse_defence("spn"), parse_defence("dp:sigma=1.4")
    assert "does not train" in next(spn.problems(FederationConfig(task="vectors:10")))
    assert "exact gradient" in next(spn.problems(FederationConfig(scheme="perturbed")))
    assert "beyond clip 8" in next(noise.problems(FederationConfig()))
    assert not list(parse_defence("").problems(FederationConfig(scheme="perturbed", task="vectors:10")))


def test_noise_is_stated_in_units_of_the_change_and_of_a_gradient() -> None:
    (stated,) = parse_defence("dp:sigma=0.01").warnings(FederationConfig(learning_rate=0.05))
    assert "0.01 on the uploaded change" in stated
    assert "0.2 on the gradient" in stated
    (stated,) = parse_defence("dp:sigma=0.01").warnings(FederationConfig(payload="gradient"))
    assert "0.01 on the uploaded gradient" in stated


def test_a_configuration_reports_the_problems_of_its_defence_with_all_others() -> None:
    config = FederationConfig(defence="spn:alpha2=3+ppdl", split="sorted")
    with pytest.raises(ParameterError) as caught:
        config.require_workable()
    assert len(caught.value.problems) == 3
    unfit = FederationConfig(defence="spn", task="vectors:9")
    with pytest.raises(ParameterError, match="does not train"):
        unfit.require_workable()
    FederationConfig(defence="spn+ppdl:share=0.3").require_workable()


def test_the_defence_is_part_of_what_the_organiser_signs() -> None:
    assert (
        FederationConfig(defence="spn").agreed_digest != FederationConfig(defence="spn:bits=32").agreed_digest
    )


def test_reading_a_defence_loads_no_torch() -> None:
    code = (
        "import sys; from veilsum.roles.config.federation_config import FederationConfig; "
        "FederationConfig(defence='spn+dp:sigma=1,clip=1').require_workable(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
