"""A transport is a factory: its own rooms, published settings and what measures MQTT name MQTT, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.house import Trees, made_up
from tests.support.sources import parse, source_files

ROOMS = (Path("transport/mqtt"), Path("roles/broker"))

# Published settings with their texts, and the benchmark and the traced rounds that are about MQTT.
ALLOWED = {
    "roles/config/values.py": {"mqtt_version"},
    "roles/config/settings.py": {
        "mqtt_version",
        "auto tries MQTT 5 first",
        "Where the MQTT broker is. It is never trusted: everything is sealed and signed end to end.",
    },
}
ABOUT_MQTT = {
    Path("simulations/benchmarks/mqtt.py"),
    Path("simulations/commands/bench/__init__.py"),
    Path("simulations/commands/bench/mqtt.py"),
    Path("simulations/docs/walk.py"),
}


def words_of(tree: ast.Module) -> Iterator[str]:
    """Every name and every string of the code; what docstrings and comments explain is not code."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            if isinstance(value, str) and name in ("id", "attr", "arg", "name", "asname", "module"):
                yield value
            elif isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value
            elif isinstance(value, list):
                yield from (
                    one.value for one in value if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


def naming_mqtt(trees: Trees) -> dict[str, set[str]]:
    """File -> what names MQTT in it, outside the rooms that are made for it."""
    found = {
        str(path): {word for word in words_of(tree) if "mqtt" in word.lower()}
        for path, tree in trees.items()
        if path not in ABOUT_MQTT and not any(path.is_relative_to(room) for room in ROOMS)
    }
    return {path: words for path, words in found.items() if words}


def test_only_its_rooms_and_the_published_settings_name_mqtt() -> None:
    assert naming_mqtt({path: parse(path) for path in source_files()}) == ALLOWED


def test_every_file_that_may_be_about_mqtt_is() -> None:
    assert all(any("mqtt" in word.lower() for word in words_of(parse(path))) for path in ABOUT_MQTT)


def test_mqtt_is_found_in_imports_names_arguments_and_texts_but_not_in_explanations() -> None:
    house = made_up(
        roles__a="def f():\n    from veilsum.transport.mqtt.link import Link",
        roles__b="def open_mqtt(): ...",
        roles__c="title = f'{1} over MQTT'",
        roles__d="make(version=mqtt)",
        roles__e="words = ['plain', 'MQTT']",
        roles__f='"""As over MQTT."""\n\n\ndef f():\n    """MQTT."""\n    # MQTT\n',
        roles__broker__g="import aiomqtt",
        transport__mqtt__h="name = 'MQTT'",
    )
    assert naming_mqtt(house) == {
        "roles/a.py": {"veilsum.transport.mqtt.link"},
        "roles/b.py": {"open_mqtt"},
        "roles/c.py": {" over MQTT"},
        "roles/d.py": {"mqtt"},
        "roles/e.py": {"MQTT"},
    }
