"""Torch, made a pure function.

Inside `deterministic(seed)` torch's generators start from the seed, one thread does the work (a different
number of threads adds in a different order) and operations without a repeatable implementation raise.
Outside, everything is as it was before. Those settings belong to the process, so two threads may not be
inside at the same time: they wait for each other. Parties that want to train at the same time run as
processes.

`set_deterministic_debug_mode("error")` is the same switch as `use_deterministic_algorithms(True)`, which
would also import torch's compiler (three seconds).

Implements specs/learning.md, section 2.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread, so that sums are added in one order and a seed gives one result."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def deterministic(seed: int, device: torch.device) -> Iterator[None]:
    """Seeded, single-threaded, deterministic torch for the length of a `with` block."""
    with _ONE_AT_A_TIME:
        mode = torch.get_deterministic_debug_mode()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), one_thread():
            torch.set_deterministic_debug_mode("error")
            _seed_generators(seed, device)
            try:
                yield
            finally:
                torch.set_deterministic_debug_mode(mode)


def _seed_generators(seed: int, device: torch.device) -> None:
    """The CPU's generator and the device's; `torch.manual_seed` would reset those of all devices."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
