"""The page about federation.toml says what the settings are."""

from __future__ import annotations

import json
import re
from pathlib import Path

from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.settings import SETTINGS, TABLES, Form


def test_the_page_about_the_file_names_every_table_key_and_default(repository: Path) -> None:
    page = (repository / "specs" / "federation-file.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## \d+\. \[(\w+)\]\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(TABLES)
    config = FederationConfig()
    for setting in SETTINGS:
        row = next(
            line for line in sections[setting.table].splitlines() if line.startswith(f"| `{setting.key}`")
        )
        default = getattr(config, setting.attribute)
        if default is not None and setting.form not in (Form.NAMES, Form.SWITCH):
            assert f"`{default}`" in row
        assert ("yes" if setting.agreed else "local") in row


def test_that_page_names_every_parameter_that_the_configuration_hash_covers(repository: Path) -> None:
    page = (repository / "specs" / "federation-file.md").read_text(encoding="utf-8")
    listed = page.partition("The parameters are ")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", listed)) == sorted(
        json.loads(FederationConfig().parameters(3).describe())
    )


def test_the_example_on_that_page_is_a_federation(repository: Path, tmp_path: Path) -> None:
    page = (repository / "specs" / "federation-file.md").read_text(encoding="utf-8")
    example = page.split("```toml\n")[1].split("```")[0]
    file = tmp_path / "federation.toml"
    file.write_text(example, encoding="utf-8")
    config = FederationConfig.from_toml(file)
    config.require_workable()
    assert config.parties == ("amsterdam", "bern", "cork", "delft")
