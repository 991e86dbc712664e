"""federation.toml: one file for people to edit and for every machine to read.

Reading is strict: an unknown table or key, a wrong type or a duplicate is refused with the file, the table,
the key and what may stand there. Writing produces a commented file in which every setting appears, those
without a value as a comment, so that a person sees what there is to change.
"""

from __future__ import annotations

import json
import reprlib
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.setting import ALL_SAMPLES, Form, Setting
from veilsum.roles.config.settings import SETTINGS, TABLES
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.config.values import FederationValues

FILE_NAME = "federation.toml"
_FREE_TABLES = {"devices": "devices", "options": "options"}
_LONGEST_FILE = 16 * 1024 * 1024
_LONGEST_NUMBER = 128
"""Bits of a whole number; no setting needs as many, and larger ones are neither floats nor quickly written."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200

_HEAD = """\
# A veilsum federation: the one file that all its machines share.
#
# What is marked (local) may differ between machines. Everything else is signed by the organiser together with
# the roster; after a change to it: veilsum roster sign FOLDER
# Every key is explained in specs/federation-file.md.
"""


def read_values(path: Path) -> dict[str, Any]:
    """The settings that a file gives, each of the right form; relative paths in it are left as they are."""
    document = _parse(path)
    problems = list(_structure_problems(document))
    if problems:
        raise ParameterError([f"{path}: {problem}" for problem in problems])
    return _values(document)


def _shown(value: object) -> str:
    """A value for people: the beginning of one that is long, and nothing of a number that Python does not write."""
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):
        return f"this {type(value).__name__}"


def write_config(config: FederationValues) -> str:
    """The text of federation.toml; read again it gives an equal configuration."""
    lines = [_HEAD]
    for table, about in TABLES.items():
        lines += [f"# {about}", f"[{table}]"]
        lines += [
            line for setting in SETTINGS if setting.table == table for line in _setting_lines(setting, config)
        ]
        if table in _FREE_TABLES:
            texts: Mapping[str, str] = getattr(config, _FREE_TABLES[table])
            lines += [f"{_key(key)} = {_literal(value)}" for key, value in texts.items()]
        lines.append("")
    return "\n".join(lines)


def settings_file(path: Path | str) -> Path:
    """The file of settings that is meant by itself or by its folder."""
    return Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)


def _parse(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_FILE + 1)
    except FileNotFoundError:
        raise ParameterError(
            [f"{path} does not exist: create a federation with veilsum init, or correct the path"]
        ) from None
    except IsADirectoryError:
        raise ParameterError([f"{path} is a folder: name the {FILE_NAME} in it"]) from None
    if len(content) > _LONGEST_FILE:
        raise ParameterError([f"{path} has more than {_LONGEST_FILE} bytes: it is no federation file"])
    try:
        return tomllib.loads(content.decode("utf-8"))
    except RecursionError:
        raise ParameterError([f"{path} is not TOML of ours: it is nested too deeply"]) from None
    except ValueError as error:
        # Besides what is no TOML or no text: a number with more digits than Python reads.
        raise ParameterError([f"{path} is not TOML: {error}"]) from error


def _structure_problems(document: Mapping[str, Any]) -> Iterator[str]:
    for table, content in document.items():
        if table not in TABLES:
            yield f"unknown table [{table}]{did_you_mean(table, TABLES)}; the tables are {', '.join(TABLES)}"
        elif not isinstance(content, dict):
            yield f"{table} must be a table: write [{table}]"
        else:
            yield from _table_problems(table, content)


def _table_problems(table: str, content: Mapping[str, Any]) -> Iterator[str]:
    known = {setting.key: setting for setting in SETTINGS if setting.table == table}
    for key, value in content.items():
        if key in known:
            if not known[key].accepts_written(value):
                yield f"[{table}] {key} must be {known[key].expected}, not {_shown(value)}{known[key].near(value)}"
            elif isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
                yield f"[{table}] {key} is a number of more than {_LONGEST_NUMBER} bits"
        elif table not in _FREE_TABLES:
            yield f"[{table}] has no key {key!r}{did_you_mean(key, known)}; its keys are {', '.join(known)}"
        elif not isinstance(value, str):
            yield f"[{table}] {key} must be a text, not {_shown(value)}"


def _values(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `FederationConfig` that the document gives."""
    values: dict[str, Any] = {}
    for setting in SETTINGS:
        content = document.get(setting.table, {})
        if setting.key in content:
            value = content[setting.key]
            values[setting.attribute] = float(value) if setting.form is Form.NUMBER else value
    for table, attribute in _FREE_TABLES.items():
        known = {setting.key for setting in SETTINGS if setting.table == table}
        values[attribute] = {key: value for key, value in document.get(table, {}).items() if key not in known}
    return values


def _setting_lines(setting: Setting, config: FederationValues) -> Iterator[str]:
    choices = f" ({', '.join(map(str, setting.choices))})" if setting.choices else ""
    local = "" if setting.agreed else "(local) "
    yield textwrap.fill(
        f"{local}{setting.meaning}{choices}", 110, initial_indent="# ", subsequent_indent="# "
    )
    value = getattr(config, setting.attribute)
    if setting.form is Form.BATCH and value is None:
        value = ALL_SAMPLES
    example = f"# {setting.key} = {setting.metavar or setting.expected}"
    yield example if value is None else f"{setting.key} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for one control character that JSON leaves alone.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)


def _key(text: str) -> str:
    return text if text.replace("_", "").replace("-", "").isalnum() and text.isascii() else _literal(text)
