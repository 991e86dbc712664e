"""Show who is enrolled, with fingerprints to compare, and whether federation.toml is what was signed.

example:
  veilsum roster show fed
"""

from __future__ import annotations

import argparse
from pathlib import Path

from veilsum.roles.cli.output import Table, add_json_option, publish
from veilsum.roles.commands.roster.changes import describe_anchor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.config.file import FILE_NAME
    from veilsum.roles.federation.folder import agreement_differences
    from veilsum.roles.federation.signed_roster import ROSTER_FILE, anchor_fields, read_roster

    config = FederationConfig.from_toml(args.folder / FILE_NAME)
    signed = read_roster(args.folder / ROSTER_FILE)
    differences = list(agreement_differences(config.agreed(), signed.agreed))
    rows = [
        (one.name, one.role.value, "no" if one.rsa_public is None else "yes", one.fingerprint)
        for one in signed.roster.identities
    ]
    title = (
        f"roster version {signed.version}, signed by {signed.organiser.name}, {signed.organiser.fingerprint}"
    )
    lines = [Table(title, ("name", "role", "RSA key", "fingerprint"), rows).render()]
    lines += [f"evicted in version {version}: {name}\n" for name, version in signed.evicted.items()]
    lines += [] if signed.roster.anchor is None else [f"{describe_anchor(signed.roster.anchor)}\n"]
    lines += [f"not signed: {difference}\n" for difference in differences]
    if not differences:
        lines.append(f"{FILE_NAME} is what was signed\n")
    figures = {
        "version": signed.version,
        "organiser": signed.organiser.fingerprint,
        "identities": {one.name: one.fingerprint for one in signed.roster.identities},
        "evicted": dict(signed.evicted),
        "anchor": anchor_fields(signed.roster.anchor),
        "differences": differences,
    }
    publish("".join(lines), figures, args.json)
    return 0
