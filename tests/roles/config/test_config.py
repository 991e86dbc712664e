"""The configuration of a federation: a file that says what it means, refusals by name, one set of words."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.agreed.parameters import (
    Bias,
    Differencing,
    Recovery,
    Rekey,
    Schedule,
    ShareMode,
    Timing,
    Weights,
)
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.graphs.policy import GraphKind
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.roles.config.federation_config import CODE, FederationConfig
from veilsum.roles.config.settings import BY_ATTRIBUTE, SETTINGS, TABLES
from veilsum.roles.config.values import party_names
from veilsum.roles.learning.contract import PAYLOADS
from veilsum.roles.learning.training.settings import TrainingOptions

# For every setting, a value other than its default; together they make a configuration that works.
OTHER: dict[str, Any] = {
    "name": "clinics",
    "scheme": "masked",
    "parties": ("alice", "bob", "carol", "dora"),
    "rounds": 7,
    "seed": 11,
    "task": "mnist",
    "data": "some/folder",
    "split": "dirichlet:0.5",
    "model": "mlp",
    "loss": "mse",
    "payload": "delta",
    "optimizer": "sgd",
    "learning_rate": 0.05,
    "momentum": 0.9,
    "local_epochs": 2,
    "batch_size": None,
    "lr_schedule": "step:every=2,factor=0.5",
    "gradient_batch": "full",
    "server_optimizer": "adam:lr=0.01",
    "defence": "spn:alpha2=0.2+ppdl:share=0.3",
    "bits": 32,
    "clip": 4.0,
    "max_weight": 1024,
    "min_parties": 4,
    "threat": "semi-honest",
    "colluders": 2,
    "recovery": "none",
    "graph": "k-regular:2",
    "threshold": 2,
    "corrupt": 0.1,
    "dropout": 0.2,
    "bias": "own",
    "shares": "tensor",
    "rekey": "round",
    "schedule": "fedavg",
    "weights": "bucketed",
    "differencing": "refuse",
    "max_attempts": 5,
    "tell_metric": True,
    "noise": "scale",
    "groups": 3,
    "gamma": 2.5,
    "alpha": "sum",
    "ce_exchange": "printed",
    "barrier": "unit",
    "opening_s": 1.0,
    "phase_s": 2.0,
    "training_s": 3.0,
    "patience_s": 6.0,
    "device": "cpu",
    "broker_host": "broker.example.org",
    "broker_port": 1883,
    "broker_tls": False,
    "broker_ca": "ca.pem",
    "mqtt_version": "5",
}
# Those whose other value fits no other setting above.
ALONE: dict[str, Any] = {
    "optimizer": "adam",
    "gradient_batch": "mini",
    "bias": "common",
    "schedule": "round-robin",
}


def written(folder: Path, text: str) -> Path:
    path = folder / "federation.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(action: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(ParameterError) as caught:
        action()
    return caught.value.problems


def test_the_table_of_settings_and_the_configuration_have_the_same_fields() -> None:
    fields = {field.name for field in dataclasses.fields(FederationConfig) if field.name != CODE}
    assert {*BY_ATTRIBUTE, "devices", "options"} == fields == {*OTHER, "devices", "options"}
    assert {setting.table for setting in SETTINGS} | {"options"} == set(TABLES)


@pytest.mark.parametrize(
    ("attribute", "values"),
    [
        ("threat", [one.value for one in Threat]),
        ("recovery", [one.value for one in Recovery]),
        ("bias", [one.value for one in Bias]),
        ("shares", [one.value for one in ShareMode]),
        ("rekey", [one.value for one in Rekey]),
        ("schedule", [one.value for one in Schedule]),
        ("differencing", [one.value for one in Differencing]),
        ("weights", [one.value for one in Weights]),
        ("payload", list(PAYLOADS)),
    ],
)
def test_the_words_of_a_setting_are_those_of_the_protocol(attribute: str, values: list[str]) -> None:
    assert sorted(map(str, BY_ATTRIBUTE[attribute].choices)) == sorted(values)


def test_defaults_are_those_of_the_parts_they_are_for() -> None:
    config = FederationConfig()
    assert config.timing == Timing()
    assert config.training_options(device="cpu") == TrainingOptions()
    config.require_workable()


@pytest.fixture
def _masked_with_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(find_scheme("masked")), "options", ("depth",))


@pytest.mark.usefixtures("_masked_with_depth")
def test_a_file_with_every_setting_changed_reads_back_equal(tmp_path: Path) -> None:
    config = FederationConfig(**OTHER, devices={"bob": "cuda:1"}, options={"depth": "3"})
    config.require_workable()
    assert FederationConfig.from_toml(written(tmp_path, config.to_toml())) == config


@given(
    chosen=st.sets(st.sampled_from(sorted(OTHER))),
    options=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
)
def test_what_is_written_reads_back_equal(chosen: set[str], options: dict[str, str]) -> None:
    config = FederationConfig(**{name: OTHER[name] for name in chosen}, options=options)
    with tempfile.TemporaryDirectory() as folder:
        assert FederationConfig.from_toml(written(Path(folder), config.to_toml())) == config


def test_the_written_file_explains_every_key() -> None:
    lines = FederationConfig().to_toml().splitlines()
    for setting in SETTINGS:
        place = next(
            i for i, line in enumerate(lines) if line.removeprefix("# ").startswith(f"{setting.key} =")
        )
        assert lines[place - 1].startswith("# ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[federatoin]\n", ["unknown table [federatoin]", "did you mean federation?", "numbers"]),
        ("federation = 3\n", ["write [federation]"]),
        ('[federation]\nparty = ["a"]\n', ["[federation] has no key 'party'", "did you mean parties?"]),
        ("[numbers]\nclip = 'wide'\n", ["[numbers] clip must be a number, not 'wide'"]),
        ("[numbers]\nbits = 16\n", ["[numbers] bits must be one of 32, 64, not 16"]),
        ("[federation]\nrounds = true\n", ["[federation] rounds must be a whole number, not True"]),
        ("[federation]\nrounds = 0\n", ["rounds must be at least 1, not 0"]),
        ("[federation]\nparties = ['a', 1]\n", ["[federation] parties must be a list of names"]),
        ("[federation]\nparties = ['a', 'b', 'a']\n", ["party a is listed 2 times"]),
        ("[federation]\nparties = ['a', 'server']\n", ["no party may be called 'server'"]),
        ("[federation]\nparties = ['a', 'B']\n", ["'B' is not a party name"]),
        ("[federation]\nparties = []\n", ["at least one party"]),
        ("[federation]\nname = 'a b'\n", ["name must be 1 to 64"]),
        ("[protocol]\nthreat = 'none'\n", ["[protocol] threat must be one of semi-honest, lying"]),
        ("[training]\nbatch_size = 'some'\n", ["batch_size must be a whole number, or 'all'"]),
        ("[devices]\nnobody = 'cpu'\n", ["devices: nobody is not one of the parties"]),
        ("[devices]\np1 = 'tpu'\n", ["device 'tpu' is not one of"]),
        ("[devices]\np1 = 3\n", ["[devices] p1 must be a text, not 3"]),
        ("[options]\ndepth = 3\n", ["[options] depth must be a text, not 3"]),
        ("[broker]\ntls = 'yes'\n", ["[broker] tls must be true or false"]),
        ("[broker]\nport = 99999\n", ["broker_port must be 1 to 65535"]),
        ("[federation]\nrounds = 3\nrounds = 4\n", ["is not TOML", "line 3"]),
        (
            "[numbers]\nbits = 16\nclip = 'x'\n[nope]\n",
            ["bits must be", "clip must be", "unknown table [nope]"],
        ),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_place_and_what_may_stand_there(
    text: str, says: list[str], tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    problems = problems_of(lambda: FederationConfig.from_toml(path))
    assert all(str(path) in problem for problem in problems)
    assert all(any(words in problem for problem in problems) for words in says)


def test_a_file_that_is_no_file_is_refused_by_name(tmp_path: Path) -> None:
    assert "does not exist" in problems_of(lambda: FederationConfig.from_toml(tmp_path / "x"))[0]
    assert "is a folder" in problems_of(lambda: FederationConfig.from_toml(tmp_path))[0]
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "is not TOML" in problems_of(lambda: FederationConfig.from_toml(tmp_path / "binary"))[0]


@pytest.mark.parametrize("attribute", sorted(OTHER))
def test_the_organiser_signs_what_decides_about_safety_or_result_and_nothing_local(attribute: str) -> None:
    before = FederationConfig()
    after = FederationConfig.from_options(
        {}, dataclasses.replace(before, **{attribute: {**OTHER, **ALONE}[attribute]})
    )
    assert getattr(after, attribute) != getattr(before, attribute)
    assert (after.agreed_digest != before.agreed_digest) == BY_ATTRIBUTE[attribute].agreed


def test_devices_are_local_and_options_are_agreed() -> None:
    digest = FederationConfig().agreed_digest
    assert FederationConfig(devices={"p1": "cpu"}).agreed_digest == digest
    assert FederationConfig(options={"a": "b"}).agreed_digest != digest


@pytest.mark.parametrize(
    ("count", "first", "last"), [(1, "p1", "p1"), (9, "p1", "p9"), (100, "p001", "p100")]
)
def test_parties_are_named_so_that_sorting_is_counting(count: int, first: str, last: str) -> None:
    names = party_names(count)
    assert names == tuple(sorted(names))
    assert (len(set(names)), names[0], names[-1]) == (count, first, last)


def test_parties_are_kept_in_order_of_name_so_that_all_count_alike() -> None:
    config = FederationConfig(parties=("carol", "alice", "bob"))
    assert [config.index_of(name) for name in ("alice", "bob", "carol")] == [0, 1, 2]
    assert "dora is not one of the parties" in problems_of(lambda: config.index_of("dora"))[0]


def test_a_hundred_parties_are_all_neighbours_and_more_get_the_graph_the_finder_finds() -> None:
    assert FederationConfig(parties=party_names(100)).parameters(5).graph.kind is GraphKind.COMPLETE
    large = FederationConfig(scheme="masked", parties=party_names(1000), threat="semi-honest").parameters(5)
    assert large.graph.describe() == "k-regular:36"
    assert large.threshold == 18
    assert FederationConfig(scheme="plain", parties=party_names(1000)).parameters(5).threshold is None


@pytest.mark.usefixtures("_masked_with_depth")
def test_parameters_carry_what_was_asked_for() -> None:
    config = FederationConfig(**OTHER, options={"depth": "3"})
    made = config.parameters(100)
    assert (made.scheme, made.dimension, made.min_parties, made.payload) == ("masked", 100, 4, "delta")
    assert (made.encoding.ring.bits, made.encoding.clip, made.encoding.max_weight) == (32, 4.0, 1024)
    assert made.colluders == 2
    assert (made.threshold, made.graph.describe(), made.recovery) == (2, "k-regular:2", Recovery.NONE)
    assert (made.share_mode, made.rekey) == (ShareMode.TENSOR, Rekey.ROUND)
    assert (made.differencing, made.weights) == (Differencing.REFUSE, Weights.BUCKETED)
    assert dict(made.options) == {"depth": "3"}
    assert config.parameters(100).config_hash == made.config_hash != config.parameters(101).config_hash


@pytest.mark.parametrize(
    ("scheme", "floor"), [("plain", 1), ("perturbed", 1), ("bilateral", 3), ("masked", 3), ("ampc", 3)]
)
def test_the_smallest_cohort_is_three_where_something_is_hidden(scheme: str, floor: int) -> None:
    assert FederationConfig(scheme=scheme).parameters(1).min_parties == floor


@pytest.mark.parametrize(
    ("parties", "settings", "colluders", "floor"),
    [
        (8, {}, 2, 4),
        (20, {}, 6, 8),
        (20, {"colluders": 9}, 9, 11),
        (20, {"threat": "semi-honest"}, 0, 3),
        (20, {"threat": "semi-honest", "colluders": 4}, 4, 6),
        (20, {"scheme": "plain"}, 6, 1),
    ],
)
def test_colluders_and_the_smallest_cohort_follow_from_how_many_there_are(
    parties: int, settings: dict[str, Any], colluders: int, floor: int
) -> None:
    made = FederationConfig(parties=party_names(parties), **settings)
    assert (made.parameters(1).colluders, made.parameters(1).min_parties) == (colluders, floor)
    assert (made.agreed()["colluders"], made.agreed()["min_parties"]) == (colluders, floor)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"scheme": "maskd"},
            [
                "unknown scheme 'maskd'; known schemes: ",
                "ampc, ",
                "masked, ",
                "mpc, ",
                "perturbed, ",
                "plain",
            ],
        ),
        ({"scheme": "no.such.module:x"}, ["module no.such.module cannot be imported"]),
        ({"parties": ("a", "b")}, ["min_parties 3 is more than the 2 parties there are"]),
        ({"min_parties": 1}, ["min_parties must be at least 2"]),
        ({"min_parties": 2}, ["set min_parties to at least 3"]),
        ({"parties": party_names(20), "min_parties": 7}, ["set min_parties to at least 8"]),
        ({"parties": party_names(20), "colluders": 5}, ["colluders 5 is below 6", "semi-honest"]),
        ({"colluders": 4}, ["set it to at most 3"]),
        ({"options": {"depth": "3"}}, ["option 'depth' is not one of scheme ampc: it has none"]),
        ({"graph": "star"}, ["'star' is no graph: write complete, ring"]),
        ({"graph": "edges:p1-p2,p2-p3"}, ["too thin", "p1"]),
        ({"graph": "edges:p1-zoe"}, ["not among the parties: zoe"]),
        ({"scheme": "mpc", "bias": "common"}, ["bias 'common' does not survive a missing upload"]),
        ({"schedule": "round-robin"}, ["schedule 'round-robin' is for plain only"]),
        ({"scheme": "perturbed", "groups": 0, "gamma": -1.0}, ["groups must be at least 1", "gamma must be"]),
        ({"scheme": "perturbed", "payload": "delta"}, ["recovers one gradient per round"]),
        ({"scheme": "perturbed", "defence": "spn"}, ["needs the exact gradient"]),
        ({"scheme": "perturbed", "schedule": "round-robin"}, ["is for plain only"]),
        ({"scheme": "bilateral", "bits": 32}, ["terms need 64-bit words"]),
        ({"scheme": "bilateral", "min_parties": 1}, ["min_parties must be at least 2"]),
        ({"bits": 32, "clip": 1e9}, ["use 64 bits"]),
        ({"optimizer": "adam", "payload": "gradient"}, ["payload gradient takes no local steps"]),
        ({"lr_schedule": "sometimes"}, ["schedule 'sometimes' is not one of"]),
        ({"split": "fair"}, ["split 'fair' is not one of"]),
        ({"task": "chess"}, ["unknown task 'chess'; allowed: digits"]),
        ({"task": "vectors:none"}, ["write vectors:D"]),
        ({"patience_s": 1.0}, ["patience_s must be at least"]),
        (
            {"scheme": "x", "graph": "y", "clip": -1.0, "split": "z", "task": "chess", "max_attempts": 0},
            [
                "unknown scheme 'x'",
                "'y' is no graph",
                "clip must be",
                "split 'z'",
                "task 'chess'",
                "max_attempts",
            ],
        ),
    ],
)
def test_what_cannot_work_is_refused_before_any_message_with_all_problems_together(
    changes: dict[str, Any], says: list[str]
) -> None:
    problems = problems_of(FederationConfig(**changes).require_workable)
    assert all(any(words in problem for problem in problems) for words in says)


def test_a_scheme_of_ones_own_is_named_by_the_module_that_registers_it() -> None:
    config = FederationConfig(scheme="veilsum.protocol.schemes.plain:plain")
    assert config.load_scheme().name == "plain"
    assert config.parameters(1).scheme == "plain"


def test_wrong_types_given_by_a_program_are_refused_by_name() -> None:
    strange: Any = {"rounds": "3", "parties": "alice", "clip": None, "options": {"a": 1}}
    problems = problems_of(lambda: FederationConfig(**strange))
    assert len(problems) == 4
    assert all(any(name in problem for problem in problems) for name in strange)
    assert "unknown setting 'colour'" in problems_of(lambda: FederationConfig.from_options({"colour": 1}))[0]


def test_a_party_trains_on_its_own_device_or_on_the_common_one() -> None:
    config = FederationConfig(device="cpu", devices={"p2": "cuda:1"})
    assert config.training_options("p1").device == "cpu"
    assert config.training_options("p2").device == "cuda:1"
    assert config.training_options("p2", device="mps").device == "mps"


def test_task_options_come_from_the_configuration_and_a_folder_of_ones_own_wins() -> None:
    config = FederationConfig(data="there", seed=4, model="mlp", loss="ce")
    options = config.task_options()
    assert (options.data, options.seed, options.model, options.loss) == (Path("there"), 4, "mlp", "ce")
    assert config.task_options("here").data == Path("here")


def test_reading_a_configuration_loads_neither_numpy_nor_torch(tmp_path: Path) -> None:
    path = written(tmp_path, FederationConfig().to_toml())
    code = (
        "import sys; from veilsum.roles.config.federation_config import FederationConfig; "
        f"FederationConfig.from_toml({str(path)!r}); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "veilsum.roles.config.file" in done.stdout.split()
    assert not {"numpy", "torch", "cryptography"} & set(done.stdout.split())
