"""The nursery: a process that imports once what all roles need, and forks each of them from there.

    python -m veilsum.roles.launch.nursery_process CONTROL LIFELINE ROOM

Importing costs half a second of processor time per process, with torch more than one, and as much memory as was
imported; a fork costs milliseconds, and shares the memory until somebody writes to it. The child runs the
`veilsum` command with words of its own, as if it had been typed, in a session of its own.

What must not be inherited, and why it is not:

    threads     a fork copies only the thread that calls it, and whatever lock another one holds stays locked for ever.
                The nursery starts none and computes nothing; libraries are told to start none (OMP_NUM_THREADS and its
                like are 1 here), and a fork is refused if the process has more than one. Children get the
                environment of `launch` back.
    randomness  secrets come from the operating system at every draw (roles/process/entropy.py). OpenSSL, which
                draws for `cryptography`, notices a fork by itself and seeds anew; pycryptodome asks the system each
                time; Python reseeds its `random`. numpy's global generator nobody reseeds, so it is done here: it
                gives no secret, but a task may draw from it. torch's default generator begins with the same
                constant in every process anyway. The hash seed of dictionaries is one for all of a launch.
    code        no file of a federation is read here: each child checks signatures and pins for itself.
    devices     CUDA is of no use after a fork if it was used before: importing torch does not touch it.
    the end     Python takes apart all that was imported, which would copy it first: a child leaves without that.
    signals     are held back during the fork; the child lets them in when it knows what to do with them.

Requests come over a socket, one JSON object with the child's output pipes beside it, and are answered in turn; the end
of a child is told when it comes. When the socket ends, the nursery kills what it forked and ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilsum.roles.cli import signals
from veilsum.roles.launch.lifeline import die_with_parent_of, end_group_at_end_of
from veilsum.roles.launch.ourselves import COMMAND
from veilsum.roles.launch.titles import Title

LARGEST_REQUEST = 1 << 16
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What libraries read when they are loaded, to know how many threads to start."""
ROLES = (
    *("veilsum.roles.process.run", "veilsum.roles.commands.run.role", "veilsum.roles.commands.run.broker"),
    *("veilsum.roles.broker.mosquitto", "veilsum.roles.federation.enrolment", "veilsum.roles.config.build"),
    *("veilsum.roles.config.schemes", "veilsum.roles.learning.model_files", "veilsum.protocol.agreed.sizing"),
    *(
        "Crypto.IO.PEM",
        "Crypto.IO.PKCS8",
        "cryptography.hazmat.backends.openssl",
        "encodings.idna",
        "numpy.random",
    ),
)
"""Also what libraries import only when a key is read, a certificate checked or a host looked up."""
LEARNING = (
    "veilsum.roles.learning.factory",
    "veilsum.roles.learning.training.torch_learner",
    "veilsum.roles.learning.training.compare",
    "veilsum.roles.learning.datasets.supervised",
    "veilsum.roles.learning.models.catalogue",
    "veilsum.roles.learning.datasets.digits",
)
STAGES: Mapping[str, Sequence[str]] = {"roles": ROLES, "learning": LEARNING}


def run_command() -> None:
    """What a child does: the `veilsum` command, with the words that it was given."""
    runpy.run_module(COMMAND, run_name="__main__", alter_sys=True)


@dataclass(frozen=True)
class Forking:
    """What a child needs of the process that forks it; the nursery's own ends of everything."""

    control: socket.socket
    lifeline: int
    title: Title
    environment: Mapping[str, str]
    """What `launch` was started with, before libraries were told to start no threads."""

    def serve(self) -> Sequence[str] | None:
        """Until `launch` is gone: None. In a child, at once: the words of the command that it is to run."""
        children: set[int] = set()
        wake, woken = os.pipe()
        for end in (wake, woken):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            for readable in (self.control.fileno(), wake):
                selector.register(readable, selectors.EVENT_READ)
            try:
                while True:
                    ready = {key.fd for key, _ in selector.select()}
                    if wake in ready:
                        os.read(wake, 4096)
                        self._tell_ended(children)
                    if self.control.fileno() in ready:
                        words = self._serve_one(children)
                        if words is not None:
                            for end in (wake, woken):
                                os.close(end)
                            return words
            except ConnectionError:
                _kill(children)
                return None

    def _serve_one(self, children: set[int]) -> Sequence[str] | None:
        """One request; in a child that it asked for, the words of its command."""
        request, outputs = self._receive()
        if "load" in request:
            self._load(request["load"])
            return None
        if (threads := count_threads()) != 1:
            told = f"a library that was imported has started {threads - 1} threads, which no fork survives"
            self._answer({"refused": told})
            return None
        child = self._fork(outputs)
        if child == 0:
            return list(request["fork"])
        children.add(child)
        self._answer({"forked": child})
        return None

    def _receive(self) -> tuple[dict[str, Any], Sequence[int]]:
        """One request and the pipes that came with it; ConnectionError when `launch` is gone."""
        said, pipes, _, _ = socket.recv_fds(self.control, LARGEST_REQUEST, 2)
        if not said:
            raise ConnectionError
        while not said.endswith(b"\n"):
            if not (more := self.control.recv(LARGEST_REQUEST)):
                raise ConnectionError
            said += more
        return json.loads(said), pipes

    def _answer(self, answer: Mapping[str, Any]) -> None:
        self.control.sendall(json.dumps(answer).encode() + b"\n")

    def _load(self, stage: str) -> None:
        """Import what a stage needs; what cannot be imported here is told by the process that misses it."""
        for name in STAGES[stage]:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        gc.collect()
        gc.freeze()
        self._answer({"loaded": stage})

    def _fork(self, outputs: Sequence[int]) -> int:
        """The number of the new process; 0 in it, with everything of the nursery put away."""
        nursery = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.STOPPING)
        child = os.fork()
        if child == 0:
            self._become_child(nursery, outputs)
        else:
            for pipe in outputs:
                os.close(pipe)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.STOPPING)
        return child

    def _become_child(self, nursery: int, outputs: Sequence[int]) -> None:
        os.setsid()
        die_with_parent_of(nursery)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for own, standard in zip((nothing, *outputs), (0, 1, 2), strict=True):
            os.dup2(own, standard)
            os.close(own)
        self.control.close()
        for name in ONE_THREAD:
            os.environ.pop(name, None)
        os.environ.update(self.environment)
        reseed()
        gc.enable()

    def _tell_ended(self, children: set[int]) -> None:
        """Tell of each end, and end what the child left behind while its number is still its own."""
        while children:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            _kill([ended.si_pid])
            pid, status = os.waitpid(ended.si_pid, 0)
            children.discard(pid)
            self._answer({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def run_and_leave(run: Callable[[], object]) -> None:
    """End as Python does, but for the last step, which takes apart, and so first copies, all that was imported."""
    code: str | int | None = None
    try:
        run()
    except SystemExit as end:
        code = end.code
    waited_for = [thread for thread in threading.enumerate() if not thread.daemon]
    if isinstance(code, int | None) and len(waited_for) == 1:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)
    sys.exit(code)


def count_threads() -> int:
    """All threads of this process where the kernel tells, those of libraries too; else Python's own."""
    listed = Path("/proc/self/task")
    return len(list(listed.iterdir())) if listed.is_dir() else threading.active_count()


def reseed() -> None:
    """Give a forked process a global generator of numpy's of its own."""
    if "numpy.random" in sys.modules:
        import numpy as np

        np.random.seed()


def _kill(children: Iterable[int]) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)


def main(arguments: Sequence[str], run: Callable[[], object] = run_command) -> None:
    """Serve `launch`; in a child, run the command in its place."""
    control, lifeline, last_word = int(arguments[0]), int(arguments[1]), arguments[-1]
    environment = {
        "OMP_NUM_THREADS": "1",
        **{name: os.environ[name] for name in ONE_THREAD if name in os.environ},
    }
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()
    title = Title.find(last_word)
    title.write([COMMAND, "nursery"])
    words = Forking(socket.socket(fileno=control), lifeline, title, environment).serve()
    if words is not None:
        title.write([COMMAND, *words])
        sys.argv = [COMMAND, *words]
        signals.begin(words)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.STOPPING)
        end_group_at_end_of(lifeline)
        run_and_leave(run)


if __name__ == "__main__":
    main(sys.argv[1:])
