"""Run the broker of a federation: mosquitto if it is installed, else the embedded pure-Python one.

The broker carries sealed bytes and is not trusted. It lets in the enrolled identities only, each with its
own login and access list. Ctrl-C stops it. After a change of host, port or TLS in federation.toml:
`veilsum broker DIR --configure` on the organiser's machine. Keywords of mosquitto.conf that veilsum does not write,
paths outside DIR/broker and links in it are refused: with these, start mosquitto yourself.

examples:
  veilsum broker fed
  veilsum broker fed --embedded
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veilsum.roles.config.federation_config import FederationConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="the federation's folder")
    parser.add_argument(
        "--embedded", action="store_true", help="the embedded broker, even if mosquitto is there"
    )
    parser.add_argument(
        "--configure",
        action="store_true",
        help="write configuration, certificate and access list anew, and end (needs the organiser's folder)",
    )
    parser.add_argument(
        "--organiser", metavar="KEYDIR", type=Path, help="with --configure (default DIR/organiser)"
    )


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.broker.mosquitto import find_mosquitto, run_mosquitto, version_of
    from veilsum.roles.broker.ports import require_free_port
    from veilsum.roles.config.federation_config import FederationConfig
    from veilsum.roles.config.file import FILE_NAME
    from veilsum.roles.federation.admission import configure_broker
    from veilsum.roles.federation.folder import BROKER_FOLDER, ORGANISER_FOLDER

    folder = args.folder / BROKER_FOLDER
    if args.configure:
        configure_broker(args.folder, args.organiser or args.folder / ORGANISER_FOLDER)
        sys.stdout.write(f"{folder}: written for {args.folder / FILE_NAME} as it is now\n")
        return 0
    config = FederationConfig.from_toml(args.folder / FILE_NAME)
    _require_written_for(folder, config)
    require_free_port(config.broker_port)
    where = f"{config.broker_host}:{config.broker_port} ({'TLS' if config.broker_tls else 'no TLS'})"
    program = None if args.embedded else find_mosquitto()
    if program is not None:
        return run_mosquitto(
            program, folder.resolve(), config.broker_port, lambda: _say(f"{version_of(program)} at {where}")
        )
    _run_embedded(folder.resolve(), config, where, forced=args.embedded)
    return 0


def _run_embedded(folder: Path, config: FederationConfig, where: str, *, forced: bool) -> None:
    from veilsum.protocol.errors import LocalProtocolError

    try:
        from veilsum.roles.broker.embedded import PROGRAM, run_embedded
    except ImportError:
        raise LocalProtocolError(
            "mosquitto is not installed, and neither is the embedded broker: apt install mosquitto, or "
            "pip install 'veilsum[broker]'"
        ) from None
    why = "" if forced else "mosquitto is not installed: "
    run_embedded(folder, config, lambda: _say(f"{why}{PROGRAM} at {where}"))


def _require_written_for(folder: Path, config: FederationConfig) -> None:
    """Refuse a broker configuration that speaks of another listener than federation.toml."""
    from veilsum.protocol.errors import ParameterError
    from veilsum.roles.broker.checked import require_own_configuration
    from veilsum.roles.broker.files import CONFIGURATION, LOGIN_IS_IDENTIFIER

    path = folder / CONFIGURATION
    if not path.exists():
        raise ParameterError(
            [f"{path} does not exist: veilsum init makes it, or veilsum broker DIR --configure"]
        )
    words = [line.split() for line in require_own_configuration(folder).splitlines()]
    ports = [line[1] for line in words if len(line) > 1 and line[0] == "listener"]
    tls = any(line[:1] == ["certfile"] for line in words)
    if str(config.broker_port) not in ports or tls != config.broker_tls:
        raise ParameterError(
            [
                f"{path} listens on port {', '.join(ports)} {'with' if tls else 'without'} TLS, federation.toml says "
                f"{config.broker_port} {'with' if config.broker_tls else 'without'}: edit one of them, or "
                "veilsum broker DIR --configure"
            ]
        )

    if LOGIN_IS_IDENTIFIER.split() not in words:
        raise ParameterError(
            [
                f"{path} does not say {LOGIN_IS_IDENTIFIER!r}, so that any login could push another off: "
                "veilsum broker DIR --configure"
            ]
        )


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
