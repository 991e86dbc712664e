"""Who may import what: the rules that keep the rooms of the house apart, read from the source itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.sources import FOLDERS, called_names, imports_of, module_name, source_files

OUR_FOLDERS = {
    "protocol": {"protocol"},
    "transport": {"transport"},
    "roles": {"protocol", "transport", "roles"},
    "simulations": set(FOLDERS),
}

# What a pure function has no use for: sockets, event loops, clocks, entropy, files, logs, other processes.
IMPURE = {
    *("asyncio", "concurrent", "multiprocessing", "selectors", "signal", "subprocess", "threading"),
    *("ftplib", "http", "select", "smtplib", "socket", "socketserver", "ssl", "urllib"),
    *("calendar", "datetime", "sched", "time", "zoneinfo"),
    *("random", "secrets", "uuid"),
    *("glob", "io", "os", "pathlib", "shelve", "shutil", "sqlite3", "tempfile"),
    *("getpass", "logging", "pdb", "platform"),
}
UNSAFE_EVERYWHERE = {"pickle", "cPickle", "dill", "marshal", "shelve"}


def third_party_allowed(path: Path) -> set[str]:
    folder = path.parts[0]
    if folder == "protocol":
        allowed = {"numpy", "cryptography", "Crypto"}
        allowed |= {"msgpack"} if path.parts[1] == "wire" else set()
        return allowed | ({"torch"} if path.parts[1] == "perturbation" else set())
    if folder == "transport":
        return {"aiomqtt", "paho"} if path.parts[1] == "mqtt" else set()
    if folder == "roles":
        allowed = {"numpy", "cryptography", "Crypto", "msgpack", "rich"}
        allowed |= {"torch", "safetensors"} if path.parts[1] == "learning" else set()
        return allowed | ({"amqtt"} if path.parts[1] == "broker" else set())
    return {"numpy", "cryptography", "Crypto", "torch", "rich", "hypothesis", "aiomqtt"}


def offenders(wrong: Callable[[Path], Iterable[str]], *folders: str) -> dict[str, list[str]]:
    """The files that break a rule, each with what breaks it."""
    found = {str(path): sorted(wrong(path)) for path in source_files(*folders)}
    return {path: names for path, names in found.items() if names}


def libraries_of(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in imports_of(path)}


def test_a_file_imports_only_the_folders_its_own_may_know() -> None:
    def strangers(path: Path) -> set[str]:
        ours = {name.split(".")[1] for name in imports_of(path) if name.startswith("veilsum.")}
        return ours & set(FOLDERS) - OUR_FOLDERS[path.parts[0]]

    assert not offenders(strangers)


def test_no_folder_is_imported_by_its_bare_name() -> None:
    """`import protocol` would make a second copy of every class."""
    assert not offenders(lambda path: libraries_of(path) & set(FOLDERS))


def test_a_file_imports_only_the_libraries_its_place_allows() -> None:
    known = set(sys.stdlib_module_names) | {"veilsum"}
    assert not offenders(lambda path: libraries_of(path) - known - third_party_allowed(path))


def test_the_protocol_touches_no_clock_no_entropy_no_file_and_no_network() -> None:
    assert not offenders(lambda path: libraries_of(path) & IMPURE, "protocol")
    assert not offenders(
        lambda path: set(called_names(path)) & {"open", "print", "input", "exec", "eval"}, "protocol"
    )


def test_nothing_is_unpickled_anywhere() -> None:
    assert not offenders(lambda path: libraries_of(path) & UNSAFE_EVERYWHERE)


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running the code."""
    script = f"import sys\n{code}\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_everything_but_learning_perturbation_and_simulations_loads_without_torch() -> None:
    light = [
        module_name(path)
        for path in source_files("protocol", "transport", "roles")
        if path.parts[1] not in ("learning", "perturbation")
    ]
    loaded = loaded_after("\n".join(f"import {name}" for name in light))
    assert set(light) <= loaded
    assert not {"torch", "matplotlib", "hypothesis"} & loaded


def test_the_package_itself_loads_neither_torch_nor_numpy() -> None:
    assert not {"torch", "numpy"} & loaded_after("import veilsum")


def test_a_simulation_without_training_loads_no_torch() -> None:
    code = (
        "from veilsum.roles.config.federation_config import FederationConfig\n"
        "from veilsum.simulations.run.simulate import simulate\n"
        "simulate(FederationConfig(scheme='masked', task='vectors:5', rounds=1))"
    )
    assert "torch" not in loaded_after(code)
