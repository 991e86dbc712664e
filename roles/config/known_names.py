"""The names that a setting knows where others can be given, too: what shells complete.

They are written down because finding them out would load numpy and torch; a test holds them against the registries.
"""

from __future__ import annotations

from veilsum.roles.config.settings import BY_ATTRIBUTE

KNOWN_NAMES = {
    "scheme": ("plain", "masked", "mpc", "ampc", "perturbed", "bilateral"),
    "task": ("digits", "synthetic-regression", "vectors", "bank", "mnist", "cifar10", "ham10000"),
    "split": ("iid", "dirichlet", "one-class", "by-order", "own"),
    "model": (
        *("mlp3", "lenet5", "alexnet", "vgg16", "vgg16-gn", "resnet20", "resnet32", "resnet56", "densenet"),
        *("dlnet", "dlnet-tanh", "dlnet-relu"),
    ),
    "lr_schedule": ("constant", "step", "cosine"),
    "server_optimizer": ("sgd", "momentum", "adam", "adagrad", "yogi"),
    "defence": ("dp", "ppdl", "spn", "sketch"),
    "graph": ("auto", "complete", "ring", "k-regular", "edges"),
    "device": ("auto", "cpu", "cuda", "mps"),
}
NAMES_BY_METAVAR = {BY_ATTRIBUTE[attribute].metavar: names for attribute, names in KNOWN_NAMES.items()}
"""The same by what stands in a usage line: `--scheme SCHEME`, of whichever command."""
