"""Writes a study: a task, its tests, made-up rows for every party, and the federation that trains on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template

from veilsum.protocol.machines.scheme import Scheme
from veilsum.roles.broker.ports import free_port
from veilsum.roles.config.data_folders import DataFolders
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.user_code import CodeAccess
from veilsum.roles.federation.enrolment import create_federation, require_usable_folder
from veilsum.roles.federation.new_folder import make_folder, whole_folder
from veilsum.roles.federation.public_files import replace_public_file
from veilsum.roles.project.rows import made_up_rows

TASK = "./task.py:study"
DATA = "data"
MOST_ROWS = 10_000
"""So many rows a party may have without a change of settings: real data are rarely as few as ours."""
_FILES = {
    "task.py.txt": "task.py",
    "test_task.py.txt": "test_task.py",
    "README.md.txt": "README.md",
    "pytest.ini.txt": "pytest.ini",
    "gitignore.txt": ".gitignore",
}


def study_config(
    name: str, scheme: str, parties: int | tuple[str, ...], broker_port: int | None = None
) -> FederationConfig:
    """The settings of a new study; refused if they cannot work, before anything is written.

    Its task is named last: the file is not there yet, and nothing else depends on it.
    """
    config = FederationConfig.from_options(
        {
            "name": name,
            "scheme": scheme,
            "parties": parties,
            "split": "own",
            "max_weight": MOST_ROWS,
            "rounds": 5,
            "broker_port": free_port(FederationConfig().broker_port) if broker_port is None else broker_port,
        }
    )
    config = FederationConfig.from_options(_training_for(config.load_scheme()), config)
    config.require_workable()
    folders = DataFolders(None, {party: Path(DATA) / party for party in config.parties})
    return dataclasses.replace(config, task=TASK, data=str(folders))


def write_study(folder: Path, config: FederationConfig) -> list[str]:
    """Write everything into a new or empty folder, or nothing; returns the files that are for people."""
    require_usable_folder(folder)
    files = study_files(config)
    there = {Path(path).parts[0] for path in files}
    with whole_folder(folder):
        make_folder(folder)
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            replace_public_file(folder / path, text.encode())
        create_federation(folder, dataclasses.replace(config, code=CodeAccess(folder)), beside=there)
    return sorted(there)


def study_files(config: FederationConfig) -> Mapping[str, str]:
    """The text of each file, by its place in the folder."""
    templates = resources.files("veilsum.roles.project") / "templates"
    facts = {"name": config.name, "count": len(config.parties)}
    files = {
        target: _filled((templates / source).read_text(encoding="utf-8"), target, facts)
        for source, target in _FILES.items()
    }
    for place, party in enumerate(config.parties):
        train, test = made_up_rows(party, place)
        files |= {f"{DATA}/{party}/train.csv": train, f"{DATA}/{party}/test.csv": test}
    return files


def _filled(text: str, target: str, facts: Mapping[str, object]) -> str:
    """Only the page for people says what this study is called; code is written as it stands."""
    return Template(text).substitute(facts) if target.endswith(".md") else text


def _training_for(scheme: Scheme) -> dict[str, object]:
    """Parties of a perturbing scheme give one gradient a round, which wants many rounds and a server that remembers."""
    if not scheme.perturbs:
        return {}
    return {"rounds": 30, "server_optimizer": "adam", "learning_rate": 0.02}
