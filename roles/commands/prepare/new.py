"""Begin a study: a task with its tests, made-up rows for every party, and a complete federation, all in a new folder.

    task.py           what is learned, from a CSV file; a variant reads a torch Dataset
    test_task.py      tests of it with the testing kit: run pytest
    data/NAME/        rows of each party: put your own there
    federation.toml   the settings, commented, signed by the organiser
    README.md         what to change first, and what is secret

Keys of all parties lie in the folder, so it runs on this machine at once. For parties on machines of their own see
`veilsum init`.

examples:
  veilsum new mystudy && cd mystudy && veilsum simulate federation.toml && veilsum launch .
  veilsum new mystudy --scheme ampc --parties alice,bob,carol,dave
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from veilsum.roles.cli.flags import from_here, read_parties

SCHEME = "masked"
PARTIES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="a new or empty folder")
    parser.add_argument(
        "--scheme", default=SCHEME, metavar="SCHEME", help=f"who may learn what (default {SCHEME})"
    )
    parser.add_argument(
        "--parties",
        type=read_parties,
        default=PARTIES,
        metavar="N",
        help=f"how many parties, or their names with commas between (default {PARTIES})",
    )
    parser.add_argument(
        "--broker-port",
        type=int,
        metavar="PORT",
        help="where the broker listens (default 8883 or, if that is taken now, another one)",
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.federation.enrolment import require_usable_folder
    from veilsum.roles.federation.folder import name_from
    from veilsum.roles.project.study import study_config, write_study

    require_usable_folder(args.folder)
    config = study_config(name_from(args.folder), from_here(args.scheme), args.parties, args.broker_port)
    written = write_study(args.folder, config)
    sys.stdout.write(
        f"{args.folder}: a study of {len(config.parties)} parties, scheme {config.scheme}\n"
        f"{', '.join(written)}; keys and settings of a federation\n\n"
        f"next: cd {shlex.quote(str(args.folder))}\n"
        "      veilsum simulate federation.toml\n"
        "      veilsum launch .\n"
        "      pytest\n"
    )
    return 0
