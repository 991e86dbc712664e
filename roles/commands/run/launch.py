"""Run a whole federation on this machine: broker, server and all parties, each as a process of its own.

A live view shows where they are; the summary names the final model. Ctrl-C stops all of them cleanly. What each
process told stands in DIR/logs, one JSON line per fact. With --record-views every process also writes what it saw to
FOLDER/NAME.view, secrets included, for `veilsum audit run --view`. A second launch of the same folder needs --resume
(to go on, for instance after raising `rounds`) or --fresh: that forgets the run before as soon as the new one begins
its first round, and leaves it as it was if none is begun. Where parties hold a chain of models, --fresh and --init
begin another chain: that is signed with the organiser's key in DIR/organiser, and takes the keys of all parties.

examples:
  veilsum init fed --scheme ampc --parties 4 --task digits --rounds 3 && veilsum launch fed --json out.json
  veilsum launch fed --resume
  veilsum launch fed --resume --fresh-for alice
  veilsum launch fed --data alice=data/alice,bob=data/bob
  veilsum launch fed --fresh --record-views views && veilsum audit run --view views/server.view --attack idlg

exit codes:
  0    the run has all its rounds; parties that were lost on the way are named
  1    the run failed; the last line says who ended first, and why
  2    settings, roster or keys do not fit, here or at a party: no round was begun
  130  interrupted before all rounds were committed
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilsum.protocol.identifiers import SERVER
from veilsum.roles.cli.output import add_json_option, publish

if TYPE_CHECKING:
    from veilsum.roles.federation.folder import LoadedFederation
    from veilsum.roles.launch.earlier_run import EarlierRun
    from veilsum.roles.launch.nursery import Nursery
    from veilsum.roles.launch.outcome import Outcome
    from veilsum.roles.launch.processes import Launch

EVALUATE_WITHIN_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", type=Path, help="the federation's folder, with all keys in it"
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the data folder, instead of the configured one, or alice=DIR,bob=DIR,... with one for each party",
    )
    parser.add_argument(
        "--init", type=Path, metavar="FILE", help="the model before the first round, as safetensors"
    )
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="go on from the last checkpoints")
    again.add_argument(
        "--fresh", action="store_true", help="forget an earlier run once the new one has begun"
    )
    parser.add_argument(
        "--fresh-for",
        action="append",
        default=[],
        metavar="NAME",
        help="with --resume: this party alone begins anew, since its state folder is lost; may be given again",
    )
    parser.add_argument(
        "--record-views",
        type=Path,
        metavar="FOLDER",
        help="for an audit: every process writes all it sees and knows, secrets included, to FOLDER/NAME.view",
    )
    parser.add_argument(
        "--allow-missing",
        action="store_true",
        help="go on without parties that refuse to start; otherwise nothing begins before all have started",
    )
    parser.add_argument(
        "--no-preload",
        action="store_true",
        help="let every process import its libraries by itself, as on machines of their own: slower, more memory",
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    from veilsum.roles.launch.nursery import Nursery

    # Started first, so that it imports while settings and keys are read here.
    with Nursery(preloading=not args.no_preload) as nursery:
        return _launch(args, nursery)


def _launch(args: argparse.Namespace, nursery: Nursery) -> int:
    import asyncio

    from veilsum.roles.federation.folder import load_federation
    from veilsum.roles.launch.display import LiveView, describe, figures_of
    from veilsum.roles.launch.earlier_run import EarlierRun
    from veilsum.roles.launch.processes import Launch

    found = load_federation(args.folder)
    _require_parties_that_resume(args, found.roster.participants)
    with EarlierRun(found.folder) as earlier:
        loaded, data = _prepare(args)
        with LiveView(loaded.config) as view:
            loaded = _make_room(args, loaded, earlier)

            def hear(fact: Mapping[str, Any]) -> None:
                if fact.get("fact") == "round_began" and fact.get("party") == SERVER:
                    earlier.forget()
                view.on_fact(fact)

            views, again = _views_folder(args.record_views), ["--resume"] if args.resume else []
            launch = Launch(
                loaded, [*data, *again], args.init, views, hear, args.allow_missing, args.fresh_for
            )
            outcome, sha256, metrics = asyncio.run(_run(launch, data, nursery))
        kept = earlier.is_aside
    figures = figures_of(outcome, sha256, metrics)
    publish(describe(outcome, figures, kept=kept), figures, args.json)
    return outcome.exit_code


async def _run(
    launch: Launch, data: Sequence[str], nursery: Nursery
) -> tuple[Outcome, str | None, dict[str, float]]:
    async with nursery:
        outcome = await launch.run(nursery)
        return outcome, *await _result(outcome, data, nursery)


def _prepare(args: argparse.Namespace) -> tuple[LoadedFederation, list[str]]:
    """The federation as its server has it, ready to start, and the words for data."""
    from veilsum.roles.federation.folder import load_federation, require_complete
    from veilsum.roles.process.context import enter_as

    loaded = load_federation(args.folder)
    require_complete(loaded)
    loaded, _ = enter_as(args.folder, loaded.key_folder(SERVER))
    loaded.config.require_workable()
    data = _data_arguments(loaded, args.data)
    if not (args.resume or args.fresh):
        _require_no_earlier_run(args.folder)
    return loaded, data


def _make_room(args: argparse.Namespace, loaded: LoadedFederation, earlier: EarlierRun) -> LoadedFederation:
    """The federation in which the run asked for can begin: the earlier one aside, with another chain if need be."""
    if args.fresh:
        earlier.set_aside(loaded)
    if (args.init is not None or args.fresh) and not args.resume and loaded.config.load_scheme().has_chain:
        return _begin_anew(loaded, args.init)
    return loaded


def _require_parties_that_resume(args: argparse.Namespace, parties: Sequence[str]) -> None:
    """Refuse --fresh-for of one that is no party, and where the others do not go on."""
    from veilsum.protocol.errors import ParameterError
    from veilsum.roles.config.spelling import which_then

    problems = [
        f"--fresh-for {name}: there is no such party; {which_then(name, parties)}"
        for name in args.fresh_for
        if name not in parties
    ]
    if args.fresh_for and not args.resume:
        problems.append(
            "--fresh-for goes with --resume: the other parties go on; --fresh begins anew for all"
        )
    if problems:
        raise ParameterError(problems)


def _data_arguments(loaded: LoadedFederation, given: str | None) -> list[str]:
    """What says to a process where its data are, if it is not in the settings; folders that do not fit are refused."""
    folders, config = loaded.data_folders(given), loaded.config
    config.require_split()
    if not config.task_is_numbers:
        folders.require_fitting(config.parties, config.split, loaded.roster.participants)
    return [] if given is None else ["--data", str(folders.below(Path.cwd()))]


def _begin_anew(loaded: LoadedFederation, init: Path | None) -> LoadedFederation:
    """The federation with another chain in its roster.

    That takes the organiser's key and those of all parties: without them nothing is changed.
    """
    from veilsum.roles.federation.enrolment import begin_anew
    from veilsum.roles.federation.folder import ORGANISER_FOLDER
    from veilsum.roles.process.context import enter_as

    begin_anew(loaded.folder, loaded.folder / ORGANISER_FOLDER, init)
    return enter_as(loaded.folder, loaded.key_folder(SERVER))[0]


def _views_folder(folder: Path | None) -> Path | None:
    """The folder for views, closed to other users."""
    from veilsum.protocol.errors import ParameterError
    from veilsum.roles.federation.private_files import PrivateFileError, make_private_folder

    if folder is not None:
        try:
            make_private_folder(folder)
        except (PrivateFileError, OSError) as refusal:
            raise ParameterError([f"--record-views: {refusal}"]) from refusal
    return folder


def _require_no_earlier_run(folder: Path) -> None:
    from veilsum.protocol.errors import ParameterError
    from veilsum.roles.process.context import STATE_FOLDER

    if any((folder / STATE_FOLDER).glob("*/checkpoint-*.json")):
        raise ParameterError([f"{folder} holds an earlier run: --resume goes on from it, --fresh forgets it"])


async def _result(
    outcome: Outcome, data: Sequence[str], nursery: Nursery
) -> tuple[str | None, dict[str, float]]:
    """The hash of the newest model on this machine, and how good it is.

    It is what a party measured, or measured in a process that may load torch: where parties have folders of their own,
    on the test samples of all of them.
    """
    from veilsum.roles.learning.contract import sha256_of
    from veilsum.roles.process.held_model import newest_model

    newest = newest_model(outcome.loaded)
    if newest is None:
        return None, {}
    model, outcome.rounds_kept, holder = newest
    sha256 = sha256_of(model)
    measured = [fact for fact in outcome.facts("measured") if fact.get("model_sha256") == sha256]
    if measured and not outcome.loaded.data_folders(*data[1:]).of_party:
        return sha256, measured[-1]["metrics"]
    if outcome.loaded.config.task_is_numbers or outcome.exit_code != 0:
        return sha256, {}
    key = str(outcome.loaded.key_folder(holder))
    words = ["evaluate", str(outcome.loaded.folder), "--name", holder, "--key", key, *data]
    return sha256, await _measure(words, nursery)


async def _measure(words: Sequence[str], nursery: Nursery) -> dict[str, float]:
    import asyncio
    import json
    import signal
    import sys

    from veilsum.roles.cli.signals import stopping_in_order

    child = await nursery.fork([*words, "--json", "-"])
    # The run is over: who does not want to wait for its figures is still told how it ended.
    kill = partial(child.signal_group, signal.SIGKILL)
    try:
        with stopping_in_order(kill):
            async with asyncio.timeout(EVALUATE_WITHIN_S):
                said, _ = await asyncio.gather(child.stdout.read(), child.stderr.read())
                code = await child.wait()
    except TimeoutError:
        kill()
        text = (
            f"veilsum: the model was not measured within {EVALUATE_WITHIN_S:g} s: veilsum {' '.join(words)}\n"
        )
        sys.stderr.write(text)
        return {}
    metrics: dict[str, float] = json.loads(said)["metrics"] if code == 0 else {}
    return metrics
