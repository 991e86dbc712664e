"""An unknown name is told with the one that was meant, wherever names are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.known_names import KNOWN_NAMES
from veilsum.roles.config.spelling import MOST_LISTED, did_you_mean, near_names, which_then


@pytest.mark.parametrize(
    ("word", "meant"),
    [("launhc", "launch"), ("LAUNCH", "launch"), ("lau", "launch"), ("--rouds", "--rounds"), ("zzz", None)],
)
def test_the_nearest_name_is_found_whatever_its_case_and_by_its_beginning(
    word: str, meant: str | None
) -> None:
    known = ("simulate", "launch", "--rounds", "--threat")
    assert near_names(word, known) == ([meant] if meant else [])
    assert did_you_mean(word, known) == (f" (did you mean {meant}?)" if meant else "")
    assert which_then(word, known) == (
        f"did you mean {meant}?" if meant else f"choose one of {', '.join(known)}"
    )


def test_what_all_options_begin_with_makes_no_two_of_them_alike() -> None:
    assert near_names("--xy", ["--ab"]) == []


def test_names_too_many_to_read_are_counted() -> None:
    known = [f"p{number}" for number in range(1, 1001)]
    told = which_then("zzz", known)
    assert told.startswith("choose one of p1, p2, ")
    assert told.endswith(f", p{MOST_LISTED} and {1000 - MOST_LISTED} more")


@pytest.mark.parametrize(
    ("attribute", "wrong", "meant"),
    [
        ("scheme", "maskd", "masked"),
        ("task", "digit", "digits"),
        ("task", "vector", "vectors"),
        ("split", "dirichlt:0.1", "dirichlet"),
        ("model", "lenet", "lenet5"),
        ("graph", "rign", "ring"),
        ("defence", "spm", "spn"),
        ("server_optimizer", "adamm", "adam"),
        ("lr_schedule", "cosin:rounds=9", "cosine"),
        ("threat", "lyng", "lying"),
        ("payload", "gradiant", "gradient"),
    ],
)
def test_a_setting_with_a_misspelt_value_is_refused_with_the_one_that_was_meant(
    attribute: str, wrong: str, meant: str
) -> None:
    with refusal(ParameterError, wrong, f"{meant}?"):
        config = FederationConfig.from_options({attribute: wrong})
        config.require_workable()
        _build_model(config)


def _build_model(config: FederationConfig) -> None:
    from veilsum.roles.learning.datasets.registry import load_task

    load_task(config.task, config.task_options()).build_model()


def test_a_setting_that_does_not_exist_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    with refusal(ParameterError, "rouds", "rounds?"):
        FederationConfig.from_options({"rouds": 3})
    file = tmp_path / "federation.toml"
    file.write_text('[federation]\nrouds = 3\nsheme = "plain"\n[protocol]\nthreat = "lyng"\n')
    with refusal(ParameterError, "rounds?", "scheme?", "lying?"):
        FederationConfig.from_toml(file)


def test_a_party_that_does_not_exist_is_refused_with_the_one_that_was_meant() -> None:
    config = FederationConfig(parties=("alice", "bob", "carol"))
    with refusal(ParameterError, "alcie", "alice?"):
        config.index_of("alcie")
    with refusal(ParameterError, "carl", "carol?"):
        dataclasses.replace(config, devices={"carl": "cpu"})


def test_the_names_of_a_setting_are_those_that_exist() -> None:
    """What shells complete is written down, because finding it out would load numpy and torch."""
    from typing import get_args

    from veilsum.protocol.graphs.policy import GraphKind
    from veilsum.protocol.numbers.rates import SCHEDULE_FORMS
    from veilsum.protocol.numbers.step_kinds import STEP_KINDS
    from veilsum.protocol.schemes import find_scheme, scheme_names
    from veilsum.roles.learning.datasets.registry import BUILT_IN as TASKS
    from veilsum.roles.learning.datasets.registry import VECTORS
    from veilsum.roles.learning.defences.registry import BUILT_IN as DEFENCES
    from veilsum.roles.learning.models.catalogue import MODELS
    from veilsum.roles.learning.splits import Kind
    from veilsum.roles.learning.training.devices import DEVICE_FORMS

    known = {
        "scheme": {
            name
            for name in scheme_names()
            if type(find_scheme(name)).__module__.startswith("veilsum.protocol.")
        },
        "task": {*TASKS, VECTORS},
        "model": {"mlp3", *MODELS},
        "defence": set(DEFENCES),
        "server_optimizer": set(STEP_KINDS),
        "graph": {kind.value for kind in GraphKind} | {"auto"},
        "split": set(get_args(Kind)),
        "lr_schedule": {form.partition(":")[0] for form in SCHEDULE_FORMS.split(", ")},
        "device": {form.partition(":")[0] for form in DEVICE_FORMS.split(", ")},
    }
    assert {name: set(KNOWN_NAMES[name]) for name in KNOWN_NAMES} == known
