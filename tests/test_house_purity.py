"""protocol/ is pure: no socket, event loop, clock, file, log or warning, and its randomness is an argument.

Of the standard library it may import what computes, by a list: whatever is not on it needs a reason first. Of other
libraries it may use what neither draws random numbers by itself nor reads and writes files.
"""

from __future__ import annotations

import ast
import sys

import pytest

from tests.support.house import Trees, made_up
from tests.support.sources import imported_names, parse, source_files, used_names

COMPUTES = {
    *(
        "__future__",
        "abc",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "enum",
        "fractions",
        "functools",
    ),
    *("hashlib", "hmac", "itertools", "json", "math", "operator", "re", "struct", "types", "typing"),
}
BUILT_INS_WITH_EFFECTS = {
    *("open", "print", "input", "breakpoint"),
    *("exec", "eval", "compile", "__import__", "__builtins__"),
}
DRAWS = (
    *("numpy.random", "Crypto.Random", "torch.random", "torch.default_generator", "torch.Generator"),
    *("torch.seed", "torch.manual_seed", "torch.initial_seed", "torch.cuda.manual_seed"),
    *("torch.rand", "torch.bernoulli", "torch.normal", "torch.multinomial", "torch.poisson"),
    *("torch.nn.init", "torch.distributions"),
)
FILES = (
    *("numpy.load", "numpy.save", "numpy.memmap", "numpy.fromfile", "numpy.genfromtxt", "numpy.lib.format"),
    *("torch.load", "torch.save", "torch.from_file"),
)
METHODS = {"normal_", "uniform_", "random_", "bernoulli_", "exponential_", "tofile"}
"""Of tensors and arrays, whatever they are called."""

ALLOWED = {
    (
        "protocol/perturbation/algebra/selftest.py",
        "torch.random",
    ): "dropout has no other generator; it is put back",
    (
        "protocol/perturbation/algebra/selftest.py",
        "torch.default_generator",
    ): "seeded from the test's own stream",
}
PROTOCOL = {path: parse(path) for path in source_files("protocol")}


def effect_of(name: str) -> str:
    """What is impure in a full dotted name, or nothing."""
    if name in BUILT_INS_WITH_EFFECTS:
        return name
    if found := [one for one in (*DRAWS, *FILES) if name.startswith(one)]:
        return found[0]
    last = name.rpartition(".")[2]
    makes_a_key = last.startswith("generate") and name.startswith(("cryptography.", "Crypto."))
    return last if makes_a_key or ("." in name and last in METHODS) else ""


def effects(trees: Trees) -> set[tuple[str, str]]:
    """File and name of each effect in it."""
    found = set()
    for path, tree in trees.items():
        imported = set(imported_names(tree))
        libraries = {name.partition(".")[0] for name in imported} & (sys.stdlib_module_names - COMPUTES)
        used = {effect_of(name) for name in (*imported, *(name for _, name in used_names(tree)))}
        found |= {(str(path), name) for name in libraries | used | default_randomness(tree) if name}
    return found


def default_randomness(tree: ast.Module) -> set[str]:
    """RSA-OAEP draws its padding by itself unless it is told from where."""
    made = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _calls(node, "PKCS1_OAEP.new")]
    return {"randfunc" for call in made if "randfunc" not in {keyword.arg or "" for keyword in call.keywords}}


def _calls(node: ast.Call, name: str) -> bool:
    return ast.unparse(node.func).endswith(name)


def test_the_protocol_touches_no_clock_no_entropy_no_file_and_no_network() -> None:
    """But for what is allowed, all of which is still there."""
    assert effects(PROTOCOL) == set(ALLOWED)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ("import asyncio", "asyncio"),
        ("import socket", "socket"),
        ("def f():\n    from time import monotonic", "time"),
        ("import random", "random"),
        ("import logging", "logging"),
        ("from os import urandom", "os"),
        ("import warnings\nwarnings.warn('a')", "warnings"),
        ("import builtins\nbuiltins.open('a')", "builtins"),
        ("import importlib\nimportlib.import_module('time')", "importlib"),
        ("open('a')", "open"),
        ("read = open", "open"),
        ("__import__('time')", "__import__"),
        ("import numpy as np\nnp.random.default_rng().bytes(32)", "numpy.random"),
        ("from numpy import random as draws\ndraws.bytes(32)", "numpy.random"),
        ("import numpy as np\nnp.save('a', b)", "numpy.save"),
        ("b.tofile('a')", "tofile"),
        ("import torch\ntorch.randn(3)", "torch.rand"),
        ("import torch\ntorch.zeros(3).uniform_()", "uniform_"),
        ("from Crypto.Random import get_random_bytes", "Crypto.Random"),
        (
            "from cryptography.hazmat.x25519 import X25519PrivateKey as K\nK.generate()",
            "generate",
        ),
        ("from Crypto.PublicKey import RSA\nRSA.generate(3072)", "generate"),
        ("from Crypto.Cipher import PKCS1_OAEP\nPKCS1_OAEP.new(key)", "randfunc"),
    ],
)
def test_an_effect_is_found(lines: str, name: str) -> None:
    assert effects(made_up(protocol__a=lines)) == {("protocol/a.py", name)}


def test_what_bears_the_name_of_an_effect_and_is_none_is_left_alone() -> None:
    harmless = """
from veilsum.protocol.crypto.agreement import AgreementKey
key = AgreementKey.generate(context.random)
box.open(); machine._open(); stream.uniform(0, 1, 3)
"""
    assert not effects(made_up(protocol__a=harmless))
