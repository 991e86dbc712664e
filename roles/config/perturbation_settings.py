"""The settings of the perturbation of a model: a part of the table in roles/config/settings.py."""

from __future__ import annotations

from veilsum.roles.config.setting import Form, Setting

PERTURBATION = (
    Setting(
        "noise",
        "noise",
        "kind",
        Form.TEXT,
        "secret factors on all channels and an offset on the outputs, or factors alone",
        choices=("scale+offset", "scale"),
        flag="--noise",
    ),
    Setting(
        "groups",
        "noise",
        "groups",
        Form.WHOLE,
        "groups of outputs with an offset of their own, from 1 to the number of outputs",
        metavar="M",
    ),
    Setting(
        "gamma",
        "noise",
        "gamma",
        Form.NUMBER,
        "size of the offset in the first round; it is adapted so that gradients keep their digits",
        metavar="G",
    ),
    Setting(
        "alpha",
        "noise",
        "alpha",
        Form.TEXT,
        "what the offset is multiplied by: the mean of the features, or their sum, as published",
        choices=("mean", "sum"),
    ),
    Setting(
        "ce_exchange",
        "noise",
        "ce_exchange",
        Form.TEXT,
        "how clients learn what to train with under cross entropy: stable, or as published",
        choices=("log", "printed"),
    ),
    Setting(
        "barrier",
        "noise",
        "barrier",
        Form.TEXT,
        "what a layer means that factors cannot pass (a sigmoid, say): refuse the model, or send what is before it "
        "in clear, with a warning",
        choices=("refuse", "unit"),
    ),
)
