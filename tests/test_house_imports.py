"""Who may import what: the rules that keep the rooms of the house apart, read from the source itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import veilsum
from tests.support.house import Trees, made_up
from tests.support.sources import (
    FOLDERS,
    imported_names,
    module_name,
    named_in_strings,
    parse,
    source_files,
    used_names,
)

# The table of all commands names those that run whole experiments; they are imported only when one is asked for.
NAMES_IN_STRINGS = {"roles/cli/main.py": {"simulations"}}
OUR_FOLDERS = {
    "protocol": {"protocol"},
    "transport": {"transport"},
    "roles": {"protocol", "transport", "roles"},
    "simulations": set(FOLDERS),
}

EXAMPLES = Path("simulations/examples")
"""Written as users write: they may use what the package itself offers by name."""

UNSAFE_EVERYWHERE = {"pickle", "cPickle", "dill", "marshal", "shelve"}


# Folder -> room below it ("" is every room) -> the libraries that may be imported there.
# What stands nowhere is imported nowhere: a new library gets its room here first.
LIBRARIES: dict[str, dict[str, set[str]]] = {
    "protocol": {
        "": {"numpy", "cryptography", "Crypto"},
        "wire": {"msgpack"},
        "perturbation": {"torch"},
    },
    "transport": {"mqtt": {"aiomqtt", "paho"}},
    "roles": {
        "": {"numpy", "cryptography", "msgpack", "rich"},
        "learning": {"torch", "safetensors"},
        "broker": {"amqtt"},
        "invitations": {"mnemonic"},
        "cli": {"shtab"},
        "pages": {"jinja2", "matplotlib", "starlette", "uvicorn"},
    },
    "simulations": {
        "": {"numpy", "cryptography", "Crypto", "torch"},
        "testing": {"hypothesis"},
        "examples": {"hypothesis"},
    },
}
KNOWN = set(sys.stdlib_module_names) | {"veilsum"}
PRODUCT = {path: parse(path) for path in source_files()}

Rule = Callable[[Path, ast.Module], Iterable[str]]


def offenders(wrong: Rule, trees: Trees = PRODUCT) -> dict[str, list[str]]:
    """The files that break a rule, each with what breaks it."""
    found = {str(path): sorted(wrong(path, tree)) for path, tree in trees.items()}
    return {path: names for path, names in found.items() if names}


def libraries_of(tree: ast.Module) -> set[str]:
    return {name.partition(".")[0] for name in imported_names(tree)}


def strange_folders(path: Path, tree: ast.Module) -> set[str]:
    """The folders, or other parts of the package, that a file must not know and imports, uses or names in a string."""
    used = {name for _, name in used_names(tree) if name != "veilsum"}
    known = {_part(name) for name in used.union(imported_names(tree)) if name.partition(".")[0] == "veilsum"}
    named = {_part(name) for name in named_in_strings(tree) if name.rstrip(".") != "veilsum"}
    public = {"veilsum", *veilsum.__all__} if path.is_relative_to(EXAMPLES) else set()
    return known - OUR_FOLDERS[path.parts[0]] - {"__version__"} - public | (
        named - OUR_FOLDERS[path.parts[0]] - NAMES_IN_STRINGS.get(str(path), set())
    )


def _part(name: str) -> str:
    """The part of the package that a name lies in: `veilsum` itself would be all of it."""
    return name.split(".")[1] if "." in name else name


def bare_folders(_: Path, tree: ast.Module) -> set[str]:
    return libraries_of(tree) & set(FOLDERS)


def strange_libraries(path: Path, tree: ast.Module) -> set[str]:
    rooms = LIBRARIES[path.parts[0]]
    allowed = {
        name for room in rooms if path.is_relative_to(Path(path.parts[0]) / room) for name in rooms[room]
    }
    return libraries_of(tree) - KNOWN - allowed


def unpickling(_: Path, tree: ast.Module) -> set[str]:
    return libraries_of(tree) & UNSAFE_EVERYWHERE


def test_a_file_imports_only_the_folders_its_own_may_know() -> None:
    assert not offenders(strange_folders)


def test_an_import_through_a_wall_is_found_in_every_folder() -> None:
    everything = "\n".join(f"from veilsum.{folder}.room import thing" for folder in FOLDERS)
    house = made_up(**{f"{folder}__room__file": everything for folder in FOLDERS})
    assert offenders(strange_folders, house) == {
        "protocol/room/file.py": ["roles", "simulations", "transport"],
        "transport/room/file.py": ["protocol", "roles", "simulations"],
        "roles/room/file.py": ["simulations"],
    }


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("from veilsum import simulate", "simulate"),
        ("import veilsum", "veilsum"),
        ("import veilsum.protocol.errors\nveilsum.simulate(config)", "simulate"),
        ("from veilsum.simulations import run", "simulations"),
        ('importlib.import_module("veilsum.simulations.run.simulate")', "simulations"),
        ('importlib.import_module(f"veilsum.simulations.{name}")', "simulations"),
        ('WHERE = "veilsum.simulations"\nimportlib.import_module(f"{WHERE}.{name}")', "simulations"),
        ('importlib.import_module(f"veilsum.{name}")', "*"),
    ],
)
def test_a_way_around_a_wall_is_found(line: str, part: str) -> None:
    house = made_up(protocol__a=line, roles__a=line)
    assert offenders(strange_folders, house) == {"protocol/a.py": [part], "roles/a.py": [part]}


def test_what_is_no_way_around_a_wall_is_left_alone() -> None:
    said = 'from veilsum import __version__\nprint("veilsum.simulations is not imported", "veilsum")'
    assert not offenders(strange_folders, made_up(roles__a=said))


def test_the_table_of_commands_alone_names_commands_of_another_folder_and_imports_none() -> None:
    table = Path("roles/cli/main.py")
    assert set(NAMES_IN_STRINGS) == {str(table)}
    assert {_part(name) for name in named_in_strings(parse(table))} >= NAMES_IN_STRINGS[str(table)]
    house = {table: ast.parse("import veilsum.simulations.commands.bench")}
    assert offenders(strange_folders, house) == {str(table): ["simulations"]}


def test_no_folder_is_imported_by_its_bare_name() -> None:
    """`import protocol` would make a second copy of every class."""
    assert not offenders(bare_folders)
    assert offenders(bare_folders, made_up(roles__a="from protocol.wire import codec")) == {
        "roles/a.py": ["protocol"]
    }


def test_a_file_imports_only_the_libraries_its_place_allows() -> None:
    assert not offenders(strange_libraries)


def test_a_library_that_a_place_allows_is_imported_there() -> None:
    unused = [
        (folder, room, library)
        for folder, rooms in LIBRARIES.items()
        for room, allowed in rooms.items()
        for library in allowed
        if not any(
            path.is_relative_to(Path(folder) / room) and library in libraries_of(tree)
            for path, tree in PRODUCT.items()
        )
    ]
    assert not unused


@pytest.mark.parametrize(
    ("library", "rooms"),
    [
        ("numpy", ("protocol", "roles", "simulations")),
        ("msgpack", ("protocol/wire", "roles")),
        ("torch", ("protocol/perturbation", "roles/learning", "simulations")),
        ("safetensors", ("roles/learning",)),
        ("aiomqtt", ("transport/mqtt",)),
        ("paho", ("transport/mqtt",)),
        ("amqtt", ("roles/broker",)),
        ("rich", ("roles",)),
        ("shtab", ("roles/cli",)),
        ("hypothesis", ("simulations/testing", "simulations/examples")),
        ("requests", ()),
    ],
)
def test_a_library_outside_its_rooms_is_found_however_late_it_is_imported(
    library: str, rooms: tuple[str, ...]
) -> None:
    everywhere = (
        *("protocol/wire", "protocol/perturbation/algebra", "protocol/crypto", "transport/mqtt"),
        *("transport/framing", "roles/process", "roles/learning/models", "roles/broker"),
        *("simulations/run", "simulations/testing", "simulations/audit/report"),
    )
    late = f"def later():\n    if TYPE_CHECKING:\n        import {library}.part"
    found = offenders(strange_libraries, made_up(**{f"{room}/file": late for room in everywhere}))
    free = {room for room in everywhere if any(Path(room).is_relative_to(one) for one in rooms)}
    assert set(found) == {f"{room}/file.py" for room in everywhere if room not in free}


def test_nothing_is_unpickled_anywhere() -> None:
    assert not offenders(unpickling)
    assert offenders(unpickling, made_up(simulations__a="def f():\n    import pickle")) == {
        "simulations/a.py": ["pickle"]
    }


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running the code."""
    script = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_everything_but_learning_pages_perturbation_and_simulations_loads_without_torch_and_plots() -> None:
    light = [
        module_name(path)
        for path in source_files("protocol", "transport", "roles")
        if path.parts[1] not in ("learning", "pages", "perturbation")
    ]
    loaded = loaded_after("\n".join(f"import {name}" for name in light))
    assert set(light) <= loaded
    assert not {"torch", "matplotlib", "hypothesis"} & loaded


def test_the_package_itself_loads_neither_torch_nor_numpy() -> None:
    assert not {"torch", "numpy"} & loaded_after("import veilsum")


def test_a_party_that_trains_nothing_and_a_server_that_is_given_a_model_load_no_torch(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.beginning import MODEL_FILE
from veilsum.roles.federation.enrolment import create_federation
from veilsum.roles.process.context import RoleOptions, enter_role, initial_model, make_party_learner
folder = Path({str(tmp_path)!r}, "fed")
create_federation(folder, FederationConfig(scheme="plain", task="vectors:5"))
party = enter_role("client", RoleOptions(folder, "p1"))
server = enter_role("server", RoleOptions(folder, "server"))
given = enter_role("server", RoleOptions(folder, "server", init=folder / MODEL_FILE))
made = initial_model(party, make_party_learner(party, folder))
assert made.tobytes() == initial_model(server, None).tobytes() == initial_model(given, None).tobytes()
"""
    assert "torch" not in loaded_after(code)


def test_a_simulation_without_training_loads_no_torch() -> None:
    code = (
        "from veilsum.roles.config.federation_config import FederationConfig\n"
        "from veilsum.simulations.run.simulate import simulate\n"
        "simulate(FederationConfig(scheme='masked', task='vectors:5', rounds=1))"
    )
    assert "torch" not in loaded_after(code)
