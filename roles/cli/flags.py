"""The flags of a federation, for every command that takes them.

Each flag is a line of roles/config/settings.py. A flag that is not given stays None, so that a command can lay
flags over a federation.toml: `config_from_arguments(args, base)`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from veilsum.roles.config.data_folders import DataFolders
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.setting import ALL_SAMPLES
from veilsum.roles.config.settings import BROKER, SETTINGS, TABLES, Form, Setting
from veilsum.roles.config.user_code import OWN, named_files
from veilsum.roles.config.values import NAMING_CODE, default_of

_TITLES = {
    "federation": "federation",
    "task": "task and data",
    "training": "training",
    "numbers": "numbers",
    "protocol": "protocol",
    "noise": "perturbation (perturbed, bilateral)",
    "timing": "deadlines",
    "devices": "devices",
    "broker": "broker",
    "options": "schemes of your own",
}


def add_federation_arguments(parser: argparse.ArgumentParser, *, with_broker: bool = False) -> None:
    """All settings as flags, grouped as in federation.toml; the broker's only where one is configured."""
    left_out = set() if with_broker else set(BROKER)
    for table in TABLES:
        settings = [one for one in SETTINGS if one.table == table and one not in left_out]
        if not settings and table != "options":
            continue
        group = parser.add_argument_group(_TITLES[table])
        for setting in settings:
            _add_flag(group, setting)
        if table == "devices":
            _add_pairs(group, "--party-device", "PARTY=DEVICE", "the device of one party; may be repeated")
        if table == "options":
            _add_pairs(group, "--option", "KEY=VALUE", "a setting of a third-party scheme; may be repeated")


def config_from_arguments(args: argparse.Namespace, base: FederationConfig | None = None) -> FederationConfig:
    """The configuration that the flags describe, laid over `base` or over the defaults."""
    given: dict[str, Any] = {
        setting.attribute: getattr(args, setting.attribute, None) for setting in SETTINGS
    }
    start = base or FederationConfig()
    if base is not None:
        given |= {name: from_here(given[name]) for name in NAMING_CODE if given[name] is not None}
        if given["data"] is not None:
            given["data"] = str(DataFolders.parse(given["data"]).below(Path.cwd()))
    if args.party_device:
        given["devices"] = {**start.devices, **dict(args.party_device)}
    if args.option:
        given["options"] = {**start.options, **dict(args.option)}
    return FederationConfig.from_options(given, start)


def from_here(text: str) -> str:
    """A file named on the command line lies in the current folder, wherever the settings of `base` lie."""
    for file in named_files(text):
        text = text.replace(f"{file}:", f"{OWN.path_of(file)}:")
    return text


def _add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    default = default_of(setting.attribute)
    if setting.form is Form.NAMES:
        default = len(default)
    if setting.form is Form.SWITCH:
        default = "yes" if default else "no"
    note = "" if default is None else f" (default {default})"
    text = f"{setting.meaning}{note}".replace("%", "%%")
    if setting.form is Form.SWITCH:
        group.add_argument(setting.flag, action=argparse.BooleanOptionalAction, help=text)
        return
    reader = _READERS[setting.form]
    group.add_argument(
        setting.flag,
        dest=setting.attribute,
        type=reader,
        choices=setting.choices or None,
        metavar=setting.metavar,
        default=None,
        help=text,
    )


def _add_pairs(group: argparse._ArgumentGroup, flag: str, metavar: str, text: str) -> None:
    group.add_argument(flag, action="append", type=_pair, metavar=metavar, default=[], help=text)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def read_parties(text: str) -> int | tuple[str, ...]:
    """How many parties, or their names with commas between."""
    if text.lstrip("-").isdecimal():
        return int(text)
    return tuple(name.strip() for name in text.split(","))


def _batch(text: str) -> int | str:
    return text if text == ALL_SAMPLES else int(text)


_READERS: Mapping[Form, Callable[[str], Any]] = {
    Form.TEXT: str,
    Form.WHOLE: int,
    Form.NUMBER: float,
    Form.BATCH: _batch,
    Form.NAMES: read_parties,
}
