"""`veilsum server`, `veilsum client` and `veilsum peer`: one role of a federation as a process of its own.

The three differ in what their help says and in that a server trains nothing; the table of `roles/cli/main.py` names
the three objects at the end of this file.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from veilsum.protocol.identifiers import SERVER as SERVER_NAME
from veilsum.roles.monitor.log_format import LOG_FORMATS, MEASURE_WHEN

_EXIT_CODES = """\
exit codes:
  0    the run has all its rounds
  1    the run failed; the last line says why, and --resume can go on from the last committed round
  2    settings, roster or keys do not fit; nothing was sent
  130  stopped by SIGINT, SIGTERM or SIGHUP
"""


@dataclass(frozen=True)
class RoleCommand:
    """The command that runs one role; `about` is what its help says before the exit codes."""

    role: str
    about: str
    trains: bool = True
    stops_in_order = True

    @property
    def description(self) -> str:
        return f"{self.about}\n{_EXIT_CODES}"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        _add_identity(parser, named=self.trains)
        if self.trains:
            parser.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:INDEX or mps")
        parser.add_argument("--measure", choices=MEASURE_WHEN, help=self._measures)
        _add_run(parser)

    @property
    def _measures(self) -> str:
        if not self.trains:
            return (
                "the model on the test set, for this log, where the server alone has it (perturbed, bilateral); "
                "never unless asked for"
            )
        return (
            "the common model on the test set, for this party's log: after every round that leaves time for it "
            "(default), in turns with the other parties where all share one machine, or never"
        )

    def run(self, args: argparse.Namespace) -> int:
        from veilsum.protocol.crypto.identity import Role
        from veilsum.roles.process.context import RoleOptions
        from veilsum.roles.process.run import run_role

        return run_role(Role(self.role), RoleOptions(**vars(args)))


def _add_identity(parser: argparse.ArgumentParser, *, named: bool) -> None:
    """Who the process is, and where its files are. Every flag is a field of `RoleOptions`."""
    parser.add_argument(
        "federation", metavar="FILE", type=Path, help="federation.toml, with roster.json beside it"
    )
    default = None if named else str(SERVER_NAME)
    parser.add_argument("--name", required=named, default=default, metavar="NAME", help="who this process is")
    parser.add_argument(
        "--key", type=Path, metavar="KEYDIR", help="the key folder (default: keys/NAME beside FILE)"
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="where checkpoints are kept (default: state/NAME beside FILE)",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the data folder, instead of the configured one; of PARTY=DIR,PARTY=DIR,... its own entry",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    """What the run begins from, and what it leaves behind."""
    parser.add_argument(
        "--init", type=Path, metavar="FILE", help="the model before the first round, as safetensors"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint, if there is one"
    )
    again.add_argument(
        "--fresh",
        action="store_true",
        help="forget an earlier run; where parties vote on models, this one has no vote until it took part again, "
        "unless the organiser began another chain (veilsum roster sign --new-chain)",
    )
    parser.add_argument(
        "--record-view",
        type=Path,
        metavar="FILE",
        help="for an audit: write all that this process sees and knows, secrets included, to a file of mode 0600 "
        "after every round; with --resume, go on with the file",
    )
    parser.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="text",
        help="lines on standard error (default text)",
    )


SERVER = RoleCommand(
    "server",
    """\
Run the server of a federation: it opens sessions and rounds, and sums what it may see.

The server needs federation.toml, roster.json, the key folder of the identity `server`, and the broker. It trains
nothing and loads no torch. It waits for the first parties as long as `patience_s` says; start order does not matter.

examples:
  veilsum server fed/federation.toml
  veilsum server fed/federation.toml --key /etc/veilsum/server --resume --log-format json
""",
    trains=False,
)

CLIENT = RoleCommand(
    "client",
    """\
Run a client: a party of a `plain`, `masked`, `perturbed` or `bilateral` federation that trains on its own data.

It needs federation.toml, roster.json, its key folder and the broker. It checks everything the server says for
itself. A client that was away joins the next round; start order does not matter.

examples:
  veilsum client fed/federation.toml --name alice --key /etc/veilsum/alice --data /srv/mnist
  veilsum client fed/federation.toml --name alice --resume --device cuda:0
""",
)

PEER = RoleCommand(
    "peer",
    """\
Run a peer: a party of an `mpc` or `ampc` federation that trains on its own data and shares with other peers.

It needs federation.toml, roster.json, its key folder (with an RSA key) and the broker. It checks everything the
server says for itself. A peer that was away joins the next round; start order does not matter.

examples:
  veilsum peer fed/federation.toml --name alice --key /etc/veilsum/alice --data /srv/mnist
  veilsum peer fed/federation.toml --name alice --resume --device cuda:0
""",
)
