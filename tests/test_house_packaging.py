"""The package as a stranger gets it: everything inside, nothing beside it, and it runs outside the checkout.

The source distribution is built from a copy of the checkout and the wheel from that distribution, so a file
missing from the first cannot hide behind the checkout. The wheel is installed into an empty environment;
third-party libraries are lent to it by a .pth file, so that the test needs no network and no gigabytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.sources import FOLDERS, ROOT, imports_of, module_name, source_files

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MADE_BY_MAKE = shutil.ignore_patterns(".git", ".venv*", "build", "dist", "bench", ".*_cache", ".hypothesis")
MADE_BY_PYTHON = shutil.ignore_patterns("*.egg-info", "__pycache__")
PYTHONS = ("3.11", "3.12", "3.13")
# They come and go with the build of torch that pip chose: the torch pin settles their versions.
OF_THE_CUDA_BUILD = ("nvidia-", "cuda-", "triton")
IMPORT_NAMES = {"paho-mqtt": "paho", "pycryptodome": "Crypto"}


@dataclass(frozen=True)
class Installed:
    sdist: Path
    wheel: Path
    environment: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.environment / "bin" / program, *arguments],
            cwd=self.environment,
            env={"PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )


def not_source(folder: str, names: list[str]) -> set[str]:
    """What a checkout holds besides its source: `make` leaves things at its root only."""
    made = MADE_BY_MAKE(folder, names) if Path(folder) == ROOT else set()
    return made | MADE_BY_PYTHON(folder, names)


def quietly(*command: str | Path, cwd: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    place = tmp_path_factory.mktemp("packaging")
    shutil.copytree(ROOT, place / "copy", symlinks=True, ignore=not_source)
    quietly(sys.executable, "-m", "build", "--no-isolation", "--outdir", place / "dist", cwd=place / "copy")
    (sdist,) = (place / "dist").glob("*.tar.gz")
    (wheel,) = (place / "dist").glob("*.whl")
    environment = place / "environment"
    quietly(sys.executable, "-m", "venv", "--without-pip", environment, cwd=place)
    python = environment / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    quietly(*pip, "install", "--no-deps", "--no-index", wheel, cwd=place)
    lend_libraries(environment)
    yield Installed(sdist, wheel, environment)
    shutil.rmtree(place)


def lend_libraries(environment: Path) -> None:
    """Put the libraries of this interpreter behind those of the environment. Their .pth files, and with them
    the editable install of the checkout, are not read that way."""
    (site,) = environment.glob("lib/python*/site-packages")
    ours = [path for path in sys.path if path.endswith("site-packages")]
    (site / "lent.pth").write_text("\n".join(ours) + "\n")


def test_every_folder_with_python_files_is_a_listed_package() -> None:
    """A package that is not listed works in the checkout and vanishes from the wheel."""
    folders = {module_name(path.parent / "__init__.py") for path in source_files()}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders | {"veilsum"}
    assert all((ROOT / path.parent / "__init__.py").is_file() for path in source_files())


def test_the_wheel_holds_every_module_and_data_file_under_one_name(installed: Installed) -> None:
    names = {name for name in zipfile.ZipFile(installed.wheel).namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in names} == {"veilsum"}
    folders = ("roles/learning/data", "roles/pages/templates", "roles/project/templates")
    data = {path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).iterdir()}
    assert {f"veilsum/{path}" for path in {*source_files(), *data}} <= names
    assert "veilsum/py.typed" in names


def test_the_source_distribution_holds_all_it_takes_to_test_and_rebuild(installed: Installed) -> None:
    with tarfile.open(installed.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {str(path) for path in source_files()}
    for folder in ("tests", "specs"):
        wanted |= {str(p.relative_to(ROOT)) for p in (ROOT / folder).rglob("*") if p.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name}
    assert wanted <= names
    assert {"Makefile", "constraints.txt", "README.md", "LICENSE", "CHANGELOG.md", ".ci/run"} <= names


def test_the_console_script_runs_outside_the_checkout(installed: Installed) -> None:
    version = installed.run("veilsum", "--version")
    assert version.stdout == f"veilsum {PROJECT['project']['version']}\n"
    planned = installed.run("veilsum", "plan", "--parties", "100", "--max-weight", "1000", "--clip", "8")
    assert planned.returncode == 0, planned.stderr
    assert "fractional bits that fit" in planned.stdout
    simulated = installed.run("veilsum", "simulate", "--scheme", "ampc", "--task", "vectors:100")
    assert simulated.returncode == 0, simulated.stderr


def test_every_installed_module_imports_from_the_environment_alone(installed: Installed) -> None:
    modules = sorted({module_name(path) for path in source_files()})
    code = (
        "import importlib, sys\n"
        f"found = [importlib.import_module(name).__file__ for name in {modules!r}]\n"
        "print(*{path for path in found if not path.startswith(sys.prefix)})"
    )
    done = installed.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_the_four_folders_are_no_top_level_names_of_the_environment(installed: Installed) -> None:
    (site,) = installed.environment.glob("lib/python*/site-packages")
    assert not {path.name for path in site.iterdir()} & set(FOLDERS)


def requirement_name(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def declared_requirements() -> list[str]:
    extras = PROJECT["project"]["optional-dependencies"].values()
    return [each for group in (PROJECT["project"]["dependencies"], *extras) for each in group]


def declared() -> set[str]:
    return {requirement_name(each) for each in declared_requirements()}


def test_every_imported_library_is_declared() -> None:
    known = {IMPORT_NAMES.get(name, name) for name in declared()} | {"veilsum", *sys.stdlib_module_names}
    imported = {name.partition(".")[0] for path in source_files() for name in imports_of(path)}
    assert not imported - known


def pins() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {requirement_name(line) for line in lines if "==" in line}


def requirements_of(library: str, extras: Iterable[str]) -> Iterator[Requirement]:
    """What an installed library asks for, on any Python that we support."""
    environments = [
        {"extra": extra, "python_version": python, "python_full_version": f"{python}.0"}
        for extra in ("", *extras)
        for python in PYTHONS
    ]
    for text in metadata.requires(library) or ():
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate(each) for each in environments):
            yield wanted


def needed(roots: Iterable[Requirement]) -> set[str]:
    """The libraries that the roots need, directly or through others, themselves included."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in found and not wanted.extras:
            continue
        found.add(name)
        with suppress(metadata.PackageNotFoundError):  # another Python's, or the other build of torch
            waiting += requirements_of(name, wanted.extras)
    return found


def superfluous(pinned: set[str], roots: Iterable[Requirement]) -> set[str]:
    return pinned - needed(roots)


def test_every_library_that_is_declared_or_comes_with_one_is_pinned() -> None:
    comes = needed(map(Requirement, declared_requirements()))
    assert not {name for name in comes - pins() if not name.startswith(OF_THE_CUDA_BUILD)}


def test_every_pin_is_needed_by_something_declared() -> None:
    assert not superfluous(pins(), map(Requirement, declared_requirements()))


def test_a_pin_that_nothing_needs_is_found() -> None:
    assert superfluous({"rich", "pygments", "matplotlib"}, [Requirement("rich>=13")]) == {"matplotlib"}


def test_the_pins_name_registries_versions_and_never_addresses() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert "torch==2.13.0" in lines
    assert not [line for line in lines if "://" in line]


def test_the_version_is_stated_once() -> None:
    source = (ROOT / "veilsum/__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{PROJECT["project"]["version"]}"' in source


def test_ci_runs_the_two_checks_and_nothing_else(repository: Path) -> None:
    script = repository / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text().splitlines()[-1] == "exec make check test"
