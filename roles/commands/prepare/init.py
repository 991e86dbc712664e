"""Write a complete federation into a new folder.

    federation.toml   the settings, commented, to be edited by people and shared by all machines
    roster.json       who takes part, signed by the organiser
    organiser/        the organiser's key and the key of the broker's certificate authority: keep it offline
    keys/NAME/        private keys and broker password of each party: move each folder to its party
    broker/           mosquitto configuration with TLS, logins and access list: move it to the broker's machine

Run all of it on this machine with `veilsum launch DIR`. For parties that make their own keys, use --no-keys
here, `veilsum keys new` and `veilsum keys first-model` there, and `veilsum roster add` for what they send. Without keys
nothing of the task is loaded, neither code nor data, so --max-weight is asked for: the most samples of one party.

examples:
  veilsum init fed --scheme ampc --parties 4 --task digits --rounds 3
  veilsum init fed --scheme masked --parties alice,bob,carol --broker-host broker.example.org --no-keys \
      --task clinics.ecg:task --split own --max-weight 5000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.roles.cli.flags import add_federation_arguments, config_from_arguments

if TYPE_CHECKING:
    from veilsum.roles.config.federation_config import FederationConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="a new or empty folder")
    parser.add_argument(
        "--no-keys", action="store_true", help="make no keys: parties make their own and are enrolled later"
    )
    parser.add_argument(
        "--init",
        type=Path,
        metavar="FILE",
        help="the first model, as safetensors, instead of the task's own, where keys are made here",
    )
    add_federation_arguments(parser, with_broker=True)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation.enrolment import create_federation
    from veilsum.roles.federation.folder import name_from
    from veilsum.roles.federation.new_folder import whole_folder

    args.name = args.name or name_from(args.folder)
    config = config_from_arguments(args)
    config.require_split()
    with whole_folder(args.folder):
        signed = create_federation(args.folder, config, with_keys=not args.no_keys, init=args.init)
    sys.stdout.write(
        f"{args.folder}: a federation of {len(config.parties)} parties, scheme {config.scheme}, "
        f"task {config.task}, {config.rounds} rounds\n"
        f"organiser's fingerprint: {signed.organiser.fingerprint}\n\n"
    )
    if args.no_keys:
        sys.stdout.write(
            f"next: veilsum invite {args.folder}; or by hand veilsum keys new NAME, roster pin and keys first-model at "
            "each party,\nthen veilsum roster add here\n"
        )
    else:
        sys.stdout.write(f"next: veilsum launch {args.folder}{_data_wanted(config)}\n")
    return 0


def _data_wanted(config: FederationConfig) -> str:
    """What must be said about data when it is launched: nothing, unless every party has a folder that is not named."""
    from veilsum.roles.config.data_folders import OWN_SPLIT, DataFolders

    if config.split != OWN_SPLIT or config.task_is_numbers or DataFolders.parse(config.data).of_party:
        return ""
    folders = ",".join(f"{name}=FOLDER" for name in config.parties)
    return (
        f" --data {folders}\n      with the data folder of each party, since the split is {OWN_SPLIT}; "
        "a party on a machine of its own has --data FOLDER"
    )
