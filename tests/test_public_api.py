"""What `import veilsum` offers: every name is documented, prints itself briefly and without data, and loads late."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import veilsum
from tests.support.federations import make_federation
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol import schemes
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.schemes import find_scheme
from veilsum.protocol.wire import codec, envelope, messages
from veilsum.roles.config import settings
from veilsum.roles.launch.outcome import Outcome
from veilsum.roles.learning import models
from veilsum.roles.learning.datasets.synthetic import synthetic_regression
from veilsum.roles.learning.task import TaskOptions
from veilsum.simulations import testing
from veilsum.transport.memory.faults import Crash

LONGEST_REPR = 200
MOST_LINES = 10
QUICK = veilsum.FederationConfig(scheme="masked", parties=("ann", "bob", "eve"), task="vectors:5", rounds=1)


EXPORTS = [(home, name) for home in (veilsum, testing, schemes) for name in home.__all__]
ALL_EXPORTS = [
    *EXPORTS,
    *((home, name) for home in (codec, envelope, messages, settings, models) for name in home.__all__),
]


def test_no_module_that_exports_names_is_passed_over() -> None:
    root = Path(veilsum.__file__).parents[1]
    rooms = (
        "veilsum/__init__.py",
        *(f"{room}/**/*.py" for room in ("protocol", "roles", "simulations", "transport")),
    )
    found = {path for room in rooms for path in root.glob(room) if "\n__all__ = " in path.read_text()}
    assert found == {Path(home.__file__ or "").resolve() for home, _ in ALL_EXPORTS}


@pytest.mark.parametrize(("home", "name"), ALL_EXPORTS, ids=lambda one: str(getattr(one, "__name__", one)))
def test_every_exported_name_has_a_docstring_of_its_own(home: ModuleType, name: str) -> None:
    exported = getattr(home, name)
    if not inspect.isclass(exported) and not inspect.isfunction(exported):
        return  # A number, or a name for a type, which says below its definition what it is for.
    text = exported.__doc__ or ""
    inherited = {base.__doc__ for base in getattr(exported, "__mro__", ())[1:]}
    assert len(text.split()) >= 4
    assert text not in inherited
    assert not text.startswith(f"{name}("), "the signature that a dataclass makes up is no docstring"


def public_methods(exported: type) -> Iterator[tuple[str, object]]:
    """What a class of ours itself defines under a public name: functions and computed properties."""
    for name, member in vars(exported).items():
        found = (
            getattr(member, "fget", None)
            or getattr(member, "func", None)
            or getattr(member, "__func__", member)
        )
        if not name.startswith("_") and inspect.isfunction(found) and found.__module__.startswith("veilsum"):
            yield (
                name,
                member
                if isinstance(member, (property, functools.cached_property))
                else getattr(exported, name),
            )


@pytest.mark.parametrize(("home", "name"), ALL_EXPORTS, ids=lambda one: str(getattr(one, "__name__", one)))
def test_every_public_method_of_an_exported_class_says_what_it_does_itself_or_in_a_base(
    home: ModuleType, name: str
) -> None:
    exported = getattr(home, name)
    methods = public_methods(exported) if inspect.isclass(exported) else ()
    assert not [method for method, member in methods if not inspect.getdoc(member)]


def test_a_method_without_a_word_is_found() -> None:
    class Silent:
        def said(self) -> None:
            """Says what it does."""

        def unsaid(self) -> None: ...

        @property
        def quiet(self) -> int:
            return 1

    for method in (Silent.said, Silent.unsaid, vars(Silent)["quiet"].fget):
        method.__module__ = "veilsum.made_up"
    silent = {name for name, member in public_methods(Silent) if not inspect.getdoc(member)}
    assert silent == {"unsaid", "quiet"}


def test_what_users_need_for_code_of_their_own_is_there_by_its_short_name() -> None:
    assert issubclass(veilsum.ParameterError, Exception)
    assert veilsum.TaskOptions().data is None
    assert all(inspect.isclass(one) for one in (veilsum.Attack, veilsum.Defence, veilsum.SupervisedTask))


@pytest.mark.parametrize(("scheme", "settings"), [("nope", {}), ("masked", {"parties": 1})])
def test_a_stateful_test_of_what_cannot_sit_at_a_table_is_refused_when_it_is_made(
    scheme: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(LocalProtocolError):
        veilsum.rounds_under_faults(scheme, **settings)


@functools.cache
def what_users_get() -> dict[str, object]:
    """Instances of what the exported names make and hand out, after a run."""
    parties = tuple(f"party-{number}" for number in range(20))
    config = veilsum.FederationConfig(scheme="masked", parties=parties, task="vectors:500", rounds=2)
    result = veilsum.simulate(config, faults="drop=0.1", compare="plain")
    table = veilsum.Table.build("masked", parties=4)
    table.start()
    table.run()
    reference = testing.Reference(table.federation.parameters, {})
    task = synthetic_regression(TaskOptions())
    return {
        "config": config,
        "result": result,
        "baseline": result.baseline,
        "federation": result.federation,
        "simulation": result.simulation,
        "recorder": result.recorder,
        "round": result.rounds[0],
        "node": result.simulation.server,
        "what a party has on disk": result.simulation.server.disk,
        "faults": result.simulation.faults,
        "scheme": result.federation.scheme,
        "task": task,
        "samples": task.train,
        "table": table,
        "trace": table.trace,
        "message in flight": table.trace.sent[0],
        "federation of a table": table.federation,
        "reference": reference,
        "step": testing.Step(testing.Action.DELIVER_ANY, 1),
        "violation": veilsum.InvariantViolated("I1", "the sum is another"),
    }


@pytest.mark.parametrize("what", what_users_get())
def test_what_users_get_prints_itself_briefly_and_without_addresses_of_objects(what: str) -> None:
    text = repr(what_users_get()[what])
    assert len(text.splitlines()) <= MOST_LINES
    assert max(map(len, text.splitlines())) <= LONGEST_REPR
    assert " at 0x" not in text


def test_every_exported_name_is_listed_and_comes_from_where_it_says() -> None:
    assert list(veilsum.__all__) == sorted(veilsum.__all__)
    assert set(veilsum.__all__) == set(veilsum._HOMES)
    assert set(veilsum.__all__) <= set(dir(veilsum))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = veilsum.nonsense


def test_importing_the_package_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, veilsum; print(*({'torch', 'numpy', 'hypothesis', 'aiomqtt'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_configuration_shows_its_scheme_and_what_is_not_by_default() -> None:
    assert repr(veilsum.FederationConfig()) == "FederationConfig(scheme='ampc')"
    assert repr(QUICK) == ("FederationConfig(scheme='masked', parties='3 names', rounds=1, task='vectors:5')")


def test_a_configuration_that_changes_much_still_prints_on_a_line_or_two() -> None:
    changed = {
        "rounds": 9,
        "seed": 9,
        "learning_rate": 0.9,
        "momentum": 0.9,
        "batch_size": 9,
        "bits": 32,
        "clip": 9.0,
    }
    text = repr(veilsum.FederationConfig(task="t" * 500, name="n" * 60, **changed))
    assert len(text) < 2 * LONGEST_REPR
    assert text.endswith(", ...)")


def test_a_result_says_how_far_it_came_how_good_the_model_is_beside_what_and_what_it_cost() -> None:
    config = veilsum.FederationConfig(scheme="masked", parties=3, task="synthetic-regression", rounds=2)
    result = veilsum.simulate(config, compare="plain")
    title, rounds, *rest = repr(result).splitlines()
    assert title == "masked: 3 parties, task synthetic-regression, seed 0"
    assert rounds == f"rounds        2 of 2, loss {result.rounds[-1].loss:.4f}"
    found = {line.split()[0]: line for line in rest}
    require_mentions(found["r2"], f"{result.metrics['r2']:.4f}", "plain")
    assert {"model", "ring", "bytes"} <= set(found)
    require_mentions(repr(result.rounds[0]), "round=1", "r2")


def test_an_audit_says_in_words_what_came_of_it_and_shows_a_notebook_the_figures() -> None:
    result = veilsum.audit("plain", "idlg")
    assert len(repr(result).splitlines()) <= MOST_LINES
    require_mentions(repr(result), "idlg", "server", "plain", "LEAKS")
    shown = result._repr_html_()
    assert all(sentence.split(";")[0] in shown for sentence in result.summary.lines())
    assert "<svg" in shown
    assert f"<td>{result.rows[0].attack}</td>" in shown
    assert result.figures()["verdicts"]


def test_a_launch_says_how_far_it_came_and_why_it_ended(tmp_path: Path) -> None:
    outcome = Outcome(make_federation(tmp_path / "fed"), {}, 1.5)
    require_mentions(repr(outcome), "masked", "0", "2", outcome.exit_code)
    assert len(repr(outcome).splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    ("call", "wrong", "meant"),
    [
        (veilsum.FederationConfig, "schem", "scheme"),
        (functools.partial(dataclasses.replace, QUICK), "round", "rounds"),
        (functools.partial(veilsum.simulate, QUICK), "dorp", "drop"),
        (functools.partial(veilsum.audit, "plain", "idlg"), "imgs", "images"),
        (functools.partial(veilsum.audit, "plain", "idlg"), "adversry", "adversary"),
        (functools.partial(veilsum.Table.build, "masked"), "partes", "parties"),
        (functools.partial(veilsum.rounds_under_faults, "masked"), "min_partis", "min_parties"),
        (functools.partial(testing.tell_lie, "server:shift", "masked"), "colludrs", "colluders"),
        (veilsum.schedules, "longst", "longest"),
        (TaskOptions, "mdel", "model"),
        (veilsum.SupervisedTask, "objectiv", "objective"),
    ],
)
def test_an_argument_of_a_name_that_there_is_not_is_refused_with_the_one_that_was_meant(
    call: Callable[..., object], wrong: str, meant: str
) -> None:
    with refusal(veilsum.ParameterError, wrong, meant):
        call(**{wrong: 3})


@pytest.mark.parametrize(("scheme", "attack"), [(QUICK, "idlg"), ("plain", QUICK), (None, "idlg")])
def test_an_audit_of_what_is_no_name_is_refused_with_what_it_takes(scheme: Any, attack: Any) -> None:
    kind = type(attack if scheme == "plain" else scheme).__name__
    with refusal(veilsum.ParameterError, kind, "config.scheme"):
        veilsum.audit(scheme, attack)


@pytest.mark.parametrize("call", [veilsum.FederationConfig, veilsum.simulate, veilsum.schedules, TaskOptions])
def test_what_refuses_unknown_arguments_keeps_its_signature_and_its_docstring(
    call: Callable[..., object],
) -> None:
    known = list(inspect.signature(call).parameters)
    assert "self" not in known and "args" not in known
    assert inspect.getdoc(call)
    if dataclasses.is_dataclass(call):
        assert known == [one.name for one in dataclasses.fields(call)]


def test_faults_show_what_happens_and_nothing_that_does_not() -> None:
    assert repr(veilsum.Faults()) == "Faults()"
    faults = veilsum.Faults(drop=0.1, crashes=(Crash("p1", 1.0, 2.0),) * 50)
    assert repr(faults) == "Faults(drop=0.1, 50 crashes)"


def test_samples_show_their_shapes_and_never_their_data() -> None:
    samples = veilsum.Samples(np.full((4, 3), 0.123, dtype=np.float32), np.arange(4))
    assert repr(samples) == "Samples(inputs=float32 (4, 3), targets=int64 (4,))"


def test_a_task_and_a_scheme_print_themselves_briefly() -> None:
    assert repr(find_scheme("masked")) == "<scheme masked>"


def test_the_package_says_in_its_docstring_how_to_begin() -> None:
    assert "veilsum.simulate(config" in (inspect.getdoc(veilsum) or "")


def test_a_setting_that_the_table_makes_itself_is_not_offered() -> None:
    with pytest.raises(veilsum.ParameterError, match="encodng") as refused:
        veilsum.Table.build("masked", encodng=3)  # type: ignore[arg-type, unused-ignore]
    assert "encoding" not in str(refused.value)
