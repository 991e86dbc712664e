"""The names that shells complete for an audit; the registry of attacks would load torch for that."""

from __future__ import annotations

ADVERSARIES = ("server", "client", "peer", "broker", "coalition", "others")
ATTACKS = (
    "analytic",
    "dlg",
    "idlg",
    "inverting",
    "spn-adaptive",
    "ppdl-adaptive",
    "dp-averaging",
    "sketch-rounds",
    "model",
    "ampc-coalition",
    "mia-loss",
    "mia-network",
    "mia-shadow",
    "generative",
    "gmi",
    "perturbation",
    "noise-line",
    "noise-data-free",
    "noise-exchange",
    "noise-softmax",
    "noise-factors",
    "noise-signs",
    "noise-shared-mask",
    "noise-membership",
    "seeds-reused",
    "seeds-weak",
    "imprint",
    "trap-weights",
    "sums-at-one-model",
    "sums-over-rounds",
)
