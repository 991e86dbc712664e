"""`synthetic-regression`: normal inputs, targets from a random network plus a little noise."""

from __future__ import annotations

from functools import partial

import numpy as np

from veilsum.roles.learning.datasets.common import refuse_argument
from veilsum.roles.learning.datasets.supervised import SupervisedTask
from veilsum.roles.learning.models import build_model
from veilsum.roles.learning.seeds import generator
from veilsum.roles.learning.task import Samples, TaskOptions

FEATURES = 16
HIDDEN = 8
TRAIN_SAMPLES, TEST_SAMPLES = 2000, 500
NOISE = 0.05
DEFAULT_MODEL = "mlp2:64"


def synthetic_regression(options: TaskOptions) -> SupervisedTask:
    """The teacher is a linear map plus a ReLU layer, scaled to unit variance."""
    refuse_argument("synthetic-regression", options)
    rng = generator(options.seed, "synthetic-regression")
    linear = rng.standard_normal((FEATURES, 1)) / np.sqrt(FEATURES)
    inner = rng.standard_normal((FEATURES, HIDDEN)) / np.sqrt(FEATURES)
    outer = rng.standard_normal((HIDDEN, 1)) / np.sqrt(HIDDEN)
    inputs = rng.standard_normal((TRAIN_SAMPLES + TEST_SAMPLES, FEATURES))
    clean = inputs @ linear + np.maximum(inputs @ inner, 0) @ outer
    clean /= clean.std()
    targets = clean + NOISE * rng.standard_normal(clean.shape)
    everything = Samples(inputs.astype(np.float32), targets.astype(np.float32))
    positions = np.arange(len(everything))
    network = partial(build_model, options.model or DEFAULT_MODEL, (FEATURES,), 1)
    train, test = everything.take(positions[:TRAIN_SAMPLES]), everything.take(positions[TRAIN_SAMPLES:])
    return SupervisedTask(train, test, network, options.loss or "mse")
