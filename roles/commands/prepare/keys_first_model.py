"""State, with a party's own key, which model it begins with, for the organiser to sign into the roster.

The model is made here from the task and the seed in federation.toml, as every party does, or read from --init FILE: no
server and no office makes one. The organiser must be pinned (veilsum roster pin), since the task that it names is run.
Send the organiser first-model.json, which this writes into the key folder, before or with the public keys. Where the
server gives the model to the parties, one party also sends first-model.safetensors, which lies beside it. Needed again
when task, seed, model or loss change.

examples:
  veilsum keys first-model fed --key keys/alice
  veilsum keys first-model fed --key keys/alice --data /data/ecg
  veilsum keys first-model fed --key keys/alice --init pretrained.safetensors
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="the federation's folder: federation.toml and roster.json"
    )
    parser.add_argument("--key", metavar="KEYDIR", type=Path, required=True, help="the party's key folder")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the data folder, if the task needs one")
    parser.add_argument("--init", type=Path, metavar="FILE", help="the first model, as safetensors")


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.config.file import FILE_NAME
    from veilsum.roles.config.values import CODE_DIGESTS
    from veilsum.roles.federation.beginning import MODEL_FILE, first_model_of, write_model
    from veilsum.roles.federation.first_models import FIRST_MODEL_FILE, state_first_model, write_first_model
    from veilsum.roles.federation.folder import LoadedFederation, require_agreement
    from veilsum.roles.federation.keystore import load_identity
    from veilsum.roles.federation.pins import accept_roster
    from veilsum.roles.federation.signed_roster import ROSTER_FILE

    identity = load_identity(args.key)
    signed = accept_roster(args.folder / ROSTER_FILE, args.key)
    config = FederationConfig.from_toml(args.folder / FILE_NAME)
    require_agreement(args.folder, config, signed)
    config = config.trusting_code(signed.agreed.get(CODE_DIGESTS, {}))
    data = LoadedFederation(config, signed, args.folder).data_folder(args.data, identity.name)
    model = first_model_of(config, args.folder / FILE_NAME, data, args.init)
    stated = state_first_model(identity, model)
    target = args.key / FIRST_MODEL_FILE
    write_first_model(target, stated)
    write_model(args.key / MODEL_FILE, model)
    given = config.load_scheme().server_holds_model
    besides = f", and {args.key / MODEL_FILE} unless another party did" if given else ""
    sys.stdout.write(
        f"{identity.name} begins with {stated.length} values, hash {stated.model_hash.hex()}\n"
        f"send the organiser {target}{besides}\n"
    )
    return 0
