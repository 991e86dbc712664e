"""Compare what veilsum computes with what it computed when it was frozen: for changes that must change nothing.

    python tests/support/freeze.py --check             compare, and say what differs
    python tests/support/freeze.py --check --json -    the same as JSON on standard output
    python tests/support/freeze.py --record            write tests/support/frozen.json anew

There are two sorts of cases. A simulation is named by its settings and remembered by what `veilsum.simulate` says of
it: the model's hash, and for each round its members, bytes, virtual time and model. A test vector is remembered by the
hash of its file, and by that of the content its maker writes today, without the sentence of provenance.

Only `veilsum.simulate` and `veilsum.FederationConfig` are used, never a module inside the package, so the record
outlives a move of every file. Training rounds differently on other processors. Libraries are therefore asked for their
oldest instructions, and a small computation without veilsum tells whether that was enough: where it gives other bytes
than when the record was made, simulations that train are called incomparable and not different.

Exit status: 0 if nothing differs, 1 if something does, 2 if the check cannot run.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path(__file__).resolve().with_name("frozen.json")
VECTORS = ROOT / "specs" / "vectors"
VENV = ROOT / ".venv"
NEEDED = ("Crypto", "cryptography", "msgpack", "numpy", "safetensors", "torch")
PORTABLE = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
ABOUT = "What veilsum computed when this was recorded; see tests/support/freeze.py, which wrote it."
OTHER_ARITHMETIC = (
    "This machine rounds differently from the one that made the record: a reference computation without veilsum "
    "gives other bytes. Simulations that train were not compared."
)

Json = dict[str, Any]
Words = tuple[str, ...]

ROUNDS, SEED = 2, 7
AROUND_SIMULATE = ("drop", "faults", "compare")

AVERAGING = ("scheme=plain", "scheme=mpc", "scheme=ampc", "scheme=masked")
SHARING = ("scheme=mpc", "scheme=ampc")
SECURE = (*SHARING, "scheme=masked")
PERTURBED, BILATERAL = ("scheme=perturbed",), ("scheme=bilateral",)
PERTURBING = (*PERTURBED, *BILATERAL)
DIGITS, SMALL, EQUAL = ("task=digits",), ("task=vectors:50",), ("weights=equal",)
TASKS = (*SMALL, *DIGITS)
LOSSES = ("loss=ce", "loss=mse")
EIGHT = ("parties=8",)
LOST_OR_NOT = ("", "drop=1@upload")
FAULTS = ("faults=drop=0.1,duplicate=0.1,reorder=0.2", "faults=delay=0.05,corrupt=0.02")
MASKED_PHASES = ("keys", "shares", "upload", "survivors", "release")
SHARING_PHASES = ("seeds", "ready", "shares", "upload", "survivors", "reveal", "release", "result")
GRAPHS = ("graph=ring", "graph=k-regular:4", "graph=k-regular:6")
EDGES = ("graph=edges:p1-p2,p2-p3,p3-p4,p4-p5,p5-p1,p1-p3",)
DEFENCES = ("spn", "dp:sigma=0.01", "dp:sigma=0.5,clip=1", "ppdl:share=0.1", "ppdl:share=0.2,sigma=0.01")


def _drops(phases: Words, count: int = 1) -> Words:
    return tuple(f"drop={count}@{phase}" for phase in phases)


# Every line stands for all the ways of taking one word from each of its columns.
PRODUCTS: tuple[tuple[Words, ...], ...] = (
    ((*AVERAGING, *PERTURBING), DIGITS, LOSSES),
    (AVERAGING, SMALL),
    (AVERAGING, DIGITS, ("payload=delta", "payload=gradient")),
    (AVERAGING, TASKS, FAULTS),
    (PERTURBING, DIGITS, LOSSES, FAULTS),
    (("scheme=plain",), TASKS, _drops(("upload",))),
    (("scheme=masked",), SMALL, (*_drops(MASKED_PHASES), *_drops(MASKED_PHASES, 2))),
    (SHARING, SMALL, (*_drops(SHARING_PHASES), *_drops(("ready", "upload"), 2))),
    (SECURE, DIGITS, _drops(("upload",))),
    (PERTURBED, DIGITS, LOSSES, _drops(("question", "upload"))),
    (BILATERAL, DIGITS, ("loss=ce",), _drops(("question", *MASKED_PHASES))),
    (BILATERAL, DIGITS, ("loss=mse",), _drops(MASKED_PHASES)),
    (PERTURBING, DIGITS, LOSSES, ("groups=2", "groups=10", "noise=scale", "alpha=sum", "gamma=0.25")),
    (PERTURBING, DIGITS, ("loss=ce",), ("ce_exchange=printed",), ("groups=1", "groups=2", "groups=10")),
    (PERTURBING, DIGITS, ("gradient_batch=mini", "server_optimizer=adam")),
    (PERTURBING, DIGITS, ("model=dlnet-relu", "model=mlp3:20")),
    (PERTURBING, DIGITS, ("model=dlnet",), ("barrier=unit",)),
    (PERTURBED, DIGITS, ("model=resnet20",), ("rounds=1",), ("gradient_batch=mini",)),
    (("scheme=plain", "scheme=masked", *PERTURBING), ("task=synthetic-regression",)),
    (SECURE, SMALL, EIGHT, GRAPHS, LOST_OR_NOT),
    (SECURE, SMALL, EDGES),
    (SECURE, SMALL, EIGHT, ("graph=k-regular:6",), ("threshold=5",), LOST_OR_NOT),
    (("scheme=masked",), ("task=vectors:5",), ("parties=101",), ("threat=semi-honest",), ("rounds=1",)),
    (SECURE, SMALL, ("threat=semi-honest",), LOST_OR_NOT),
    (BILATERAL, DIGITS, ("threat=semi-honest",), LOST_OR_NOT),
    (SECURE, SMALL, ("recovery=none",), LOST_OR_NOT),
    (("scheme=ampc",), TASKS, ("bias=common",), ("recovery=none",)),
    (SHARING, SMALL, ("shares=tensor", "rekey=round"), LOST_OR_NOT),
    (SECURE, TASKS, ("bits=32",)),
    (SECURE, SMALL, ("rounds=3",), ("differencing=refuse",), EQUAL, ("min_parties=4",), LOST_OR_NOT),
    (
        ("scheme=plain",),
        DIGITS,
        tuple(f"defence={one}" for one in (*DEFENCES, "sketch", "spn+ppdl:share=0.3")),
    ),
    (("scheme=ampc",), DIGITS, ("defence=spn",)),
    (("scheme=plain",), TASKS, ("schedule=round-robin",), LOST_OR_NOT),
    (("scheme=plain",), DIGITS, ("split=dirichlet:0.5", "split=one-class:0.8", "split=by-order")),
    (("scheme=plain",), DIGITS, ("optimizer=adam", "momentum=0.9", "lr_schedule=step:every=1,factor=0.5")),
    (("scheme=plain",), DIGITS, ("payload=delta",), ("server_optimizer=sgd:lr=0.5,momentum=0.9",)),
    (("scheme=ampc",), DIGITS, ("compare=plain", "compare=central", "compare=standalone")),
)


def simulation_names() -> list[str]:
    """The name of a simulation is the list of its settings."""
    return [" ".join(filter(None, words)) for line in PRODUCTS for words in itertools.product(*line)]


def trains(name: str) -> bool:
    """Whether a case trains, so that it depends on how a processor rounds."""
    return "task=" in name and "task=vectors:" not in name


def settings_of(name: str) -> Json:
    return {key: _value(key, text) for key, _, text in (word.partition("=") for word in name.split())}


def _value(key: str, text: str) -> object:
    if key == "parties":
        width = len(text)
        return tuple(f"p{number:0{width}}" for number in range(1, int(text) + 1))
    if text.isdecimal():
        return int(text)
    return float(text) if text.replace(".", "", 1).isdecimal() else text


def run_simulation(name: str) -> Json:
    """What is remembered of one simulation; an exception too, which no recorded case has."""
    import veilsum

    settings = {"rounds": ROUNDS, "seed": SEED, **settings_of(name)}
    around = {key: settings.pop(key) for key in AROUND_SIMULATE if key in settings}
    try:
        return _remembered(veilsum.simulate(veilsum.FederationConfig(**settings), **around).figures())
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in one case is a finding, not the end of the check
        return {"error": f"{type(error).__name__}: {error}"}


def _remembered(figures: Json) -> Json:
    kept = (
        "model_sha256",
        "baseline_sha256",
        "exact_ring_sum",
        "attempts",
        "sessions",
        "abort_reason",
        "lost",
    )
    values = {key: figures[key] for key in (*kept, "refused_messages")}
    return {**values, "rounds": [_round_line(one) for one in figures["rounds"]]}


def _round_line(one: Json) -> str:
    """Rounds and attempts stand in the recorded file as machines count them, from 0."""
    return (
        f"{one['round'] - 1} attempt {one['attempt'] - 1} up {one['bytes_up']} down {one['bytes_down']} "
        f"at {one['virtual_s']:.6f} model {one['model_sha256'][:16]} of {','.join(one['members'])}"
    )


def run_vectors() -> dict[str, Json]:
    """For every test vector the hash of its file, and of its content as made today, if it has a maker."""
    made = make_vectors()
    files = {str(path.relative_to(VECTORS)): path.read_bytes() for path in sorted(VECTORS.rglob("*.json"))}
    return {
        f"vector {name}": {
            "file": sha256(files[name]) if name in files else None,
            "made": _content_hash(made[name]) if name in made else None,
        }
        for name in sorted({*files, *made})
    }


def make_vectors() -> dict[str, bytes]:
    """What the makers write, each run on a copy of the vectors, since it may keep what was drawn once: RSA keys."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / VECTORS.relative_to(ROOT)
        shutil.copytree(VECTORS, target)
        for path in target.rglob("*.json"):
            os.utime(path, (0, 0))
        for maker in sorted((ROOT / "tests").rglob("make_vectors_*.py")):
            _run_maker(maker, Path(name) / maker.relative_to(ROOT))
        written = [path for path in target.rglob("*.json") if path.stat().st_mtime > 0]
        return {str(path.relative_to(target)): path.read_bytes() for path in written}


def _run_maker(maker: Path, copy: Path) -> None:
    """Run the copy of a maker, which finds the folder to write to from its own place."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(maker, copy)
    done = subprocess.run([sys.executable, str(copy)], env=os.environ, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(
            f"{maker.relative_to(ROOT)} failed, so its vectors count as not made:\n{done.stderr}"
        )


def _content_hash(data: bytes) -> str:
    content = json.loads(data)
    content.pop("provenance", None)
    return sha256(json.dumps(content, sort_keys=True).encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fingerprint() -> str:
    """The hash of a computation without veilsum that rounds wherever training does."""
    import numpy as np
    import torch

    rows = torch.arange(64 * 96, dtype=torch.float32).reshape(64, 96).mul(0.37).sin()
    weight = torch.arange(96 * 80, dtype=torch.float32).reshape(96, 80).mul(0.73).cos().requires_grad_()
    kernel = torch.arange(8 * 1 * 9, dtype=torch.float32).reshape(8, 1, 3, 3).mul(0.11).sin().requires_grad_()
    scores = torch.relu(rows @ weight) @ weight.T
    images = torch.nn.functional.conv2d(rows.reshape(64, 1, 8, 12), kernel, padding=1).tanh()
    loss = torch.softmax(scores, 1).square().sum() + images.exp().mean() + torch.sigmoid(scores).sum()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    wide = rows.numpy().astype(np.float64)
    parts = (loss.detach(), scores.detach(), images.detach(), weight.grad, kernel.grad)
    arrays = [part.numpy() for part in parts if part is not None]
    arrays += [wide @ wide.T, np.exp(wide), wide.sum(axis=1), np.sqrt(np.abs(wide)).mean(axis=0)]
    return sha256(b"".join(array.tobytes() for array in arrays))


def run_everything() -> Json:
    """All cases, as many at a time as there are processors."""
    names = simulation_names()
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        arithmetic, vectors = pool.submit(fingerprint), pool.submit(run_vectors)
        simulations = {pool.submit(run_simulation, name): name for name in names}
        found = {simulations[done]: done.result() for done in _with_progress(simulations)}
        return {"fingerprint": arithmetic.result(), "cases": {**found, **vectors.result()}}


def _with_progress(futures: Iterable[Future[Json]]) -> Iterator[Future[Json]]:
    waiting = list(futures)
    on_terminal = sys.stderr.isatty()
    for count, done in enumerate(as_completed(waiting), start=1):
        yield done
        if on_terminal or count % 50 == 0 or count == len(waiting):
            start, end = ("\r", "") if on_terminal and count < len(waiting) else ("\r" * on_terminal, "\n")
            sys.stderr.write(f"{start}{count} of {len(waiting)} simulations{end}")
            sys.stderr.flush()


def compare(recorded: Json, found: Json) -> Json:
    """What `--json` prints: which cases differ, and which this machine cannot judge."""
    same_arithmetic = recorded["fingerprint"] == found["fingerprint"]
    before, now = recorded["cases"], found["cases"]
    names = sorted({*before, *now})
    incomparable = [] if same_arithmetic else [name for name in names if trains(name)]
    compared = [name for name in names if same_arithmetic or not trains(name)]
    return {
        "compared": len(compared),
        "different": [
            {"case": name, "recorded": before.get(name), "found": now.get(name)}
            for name in compared
            if before.get(name) != now.get(name)
        ],
        "incomparable": incomparable,
        "incomparable_because": None if same_arithmetic else OTHER_ARITHMETIC,
    }


def describe(outcome: Json) -> str:
    lines = [f"{outcome['compared']} cases compared, {len(outcome['different'])} different"]
    for one in outcome["different"]:
        lines += [one["case"], *_changes(one["recorded"], one["found"])]
    if outcome["incomparable"]:
        lines.append(f"{len(outcome['incomparable'])} incomparable. {outcome['incomparable_because']}")
    return "\n".join(lines) + "\n"


def _changes(recorded: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> Iterator[str]:
    if recorded is None or found is None:
        yield "    is not in the record" if recorded is None else "    is in the record only"
        return
    for key in sorted({*recorded, *found}):
        if recorded.get(key) != found.get(key):
            yield f"    {key}: recorded {recorded.get(key)}, found {found.get(key)}"


def record(found: Json) -> None:
    """Write the record, unless a case raised: then nobody can have meant it."""
    broken = {name: value["error"] for name, value in found["cases"].items() if "error" in value}
    if broken:
        give_up(
            "nothing was recorded, for these cases raise:\n"
            + "\n".join(f"{k}: {v}" for k, v in broken.items())
        )
    ordered = {
        "about": ABOUT,
        "fingerprint": found["fingerprint"],
        "cases": dict(sorted(found["cases"].items())),
    }
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


def check(found: Json, destination: str | None) -> int:
    outcome = compare(json.loads(RECORD.read_text(encoding="utf-8")), found)
    text = json.dumps(outcome, indent=1) + "\n"
    if destination is None:
        sys.stdout.write(describe(outcome))
    elif destination == "-":
        sys.stdout.write(text)
    else:
        Path(destination).write_text(text, encoding="utf-8")
    return 1 if outcome["different"] else 0


def prepare() -> None:
    """Go on with this checkout's package, an interpreter that has what it needs, and portable arithmetic."""
    os.environ.update(PORTABLE)
    os.environ["PYTHONPATH"] = str(ROOT)
    sys.path.insert(0, str(ROOT))
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return
    python = VENV / "bin" / "python"
    if Path(sys.prefix).resolve() == VENV.resolve() or not python.exists():
        give_up(
            f"{', '.join(missing)} cannot be imported here; run `make test` once, which sets up {VENV.name}"
        )
    sys.stderr.flush()
    os.execv(python, [str(python), *sys.argv])


def give_up(reason: str) -> NoReturn:
    sys.stderr.write(f"freeze: {reason}\n")
    raise SystemExit(2)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--check", action="store_true", help="compare with the record (also without any option)"
    )
    what.add_argument(
        "--record", action="store_true", help="write the record anew, for a change that was meant"
    )
    parser.add_argument("--json", metavar="FILE", help="write the comparison as JSON; - is standard output")
    args = parser.parse_args()
    if not args.record and not RECORD.exists():
        give_up(f"there is no {RECORD.name} to compare with; make one with --record from a commit you trust")
    return args


def main() -> int:
    args = read_arguments()
    prepare()
    started = time.monotonic()
    found = run_everything()
    sys.stderr.write(f"{len(found['cases'])} cases in {time.monotonic() - started:.0f} s\n")
    if not args.record:
        return check(found, args.json)
    record(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
