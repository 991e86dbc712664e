"""The flags of a federation: one per setting, laid over a file, and refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.refusals import refusal
from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli.flags import add_federation_arguments, config_from_arguments
from veilsum.roles.cli.table import Parser, UsageError
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.settings import SETTINGS


def parse(line: str, base: FederationConfig | None = None) -> FederationConfig:
    parser = Parser("veilsum test", "")
    add_federation_arguments(parser, with_broker=True)
    return config_from_arguments(parser.parse_args(line.split()), base)


def test_no_flags_give_the_defaults() -> None:
    assert parse("") == FederationConfig()


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        ("--scheme masked", "scheme", "masked"),
        ("--parties 3", "parties", ("p1", "p2", "p3")),
        ("--parties carol,alice", "parties", ("alice", "carol")),
        ("--rounds 9", "rounds", 9),
        ("--task vectors:10", "task", "vectors:10"),
        ("--split dirichlet:0.1", "split", "dirichlet:0.1"),
        ("--schedule round-robin", "schedule", "round-robin"),
        ("--lr-schedule cosine:rounds=9", "lr_schedule", "cosine:rounds=9"),
        ("--batch-size all", "batch_size", None),
        ("--batch-size 4", "batch_size", 4),
        ("--clip 2", "clip", 2.0),
        ("--bits 32", "bits", 32),
        ("--no-broker-tls", "broker_tls", False),
        ("--party-device p1=cuda:0 --party-device p2=cpu", "devices", {"p1": "cuda:0", "p2": "cpu"}),
        ("--option depth=3 --option path=a=b", "options", {"depth": "3", "path": "a=b"}),
    ],
)
def test_a_flag_sets_its_setting_and_no_other(line: str, attribute: str, value: Any) -> None:
    config = parse(line)
    default = FederationConfig()
    assert getattr(config, attribute) == value
    for setting in SETTINGS:
        if setting.attribute != attribute:
            assert getattr(config, setting.attribute) == getattr(default, setting.attribute)


def test_every_setting_has_a_flag_with_a_text() -> None:
    parser = Parser("veilsum test", "")
    add_federation_arguments(parser, with_broker=True)
    help_text = parser.format_help()
    flags = {flag for action in parser._actions for flag in action.option_strings}
    assert {setting.flag for setting in SETTINGS} <= flags
    assert all(action.help for action in parser._actions)
    assert "(default ampc)" in help_text


def test_a_command_without_a_broker_has_no_flags_for_one() -> None:
    parser = Parser("veilsum test", "")
    add_federation_arguments(parser)
    assert "--broker-host" not in parser.format_help()
    assert config_from_arguments(parser.parse_args([])) == FederationConfig()


def test_flags_lie_over_a_file_and_leave_the_rest_of_it() -> None:
    base = FederationConfig(
        scheme="plain", rounds=8, batch_size=None, devices={"p1": "cpu"}, options={"a": "1"}
    )
    config = parse("--rounds 2 --party-device p2=cpu --option b=2", base)
    assert (config.scheme, config.rounds, config.batch_size) == ("plain", 2, None)
    assert config.devices == {"p1": "cpu", "p2": "cpu"}
    assert config.options == {"a": "1", "b": "2"}


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--bits 16", "--bits 16"),
        ("--rounds many", "--rounds many"),
        ("--option depth", "depth KEY=VALUE"),
        ("--threat none", "--threat none"),
    ],
)
def test_a_flag_that_does_not_parse_is_refused_by_name(line: str, names: str) -> None:
    with refusal(UsageError, "--help", *names.split()):
        parse(line)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--parties 0", "parties 100000 0"),
        ("--parties -2", "parties 100000 -2"),
        ("--parties a,,b", "'' party name"),
        ("--device tpu", "device tpu cpu"),
        ("--party-device zoe=cpu", "zoe parties"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(line: str, names: str) -> None:
    with refusal(ParameterError, *names.split()):
        parse(line)
