"""Why well-known operations are refused, and what to do instead.

Implements specs/perturbation.md, section 7.
"""

from __future__ import annotations

_WAY_OUT = "or accept it unperturbed with barrier='unit'"
_NOT_HOMOGENEOUS = frozenset(
    (
        *("sigmoid", "tanh", "gelu", "silu", "mish", "relu6", "softplus", "elu", "selu", "celu", "hardtanh"),
        *("hardswish", "hardsigmoid", "logsigmoid", "softsign", "tanhshrink", "softshrink", "hardshrink"),
        *("glu", "rrelu", "threshold", "exp", "log", "sqrt", "square", "pow", "sign"),
        *("clamp", "clampmin", "clampmax"),
    )
)
_SOFTMAX = "softmax is not positively homogeneous; a softmax before the loss belongs to the loss"
_CHANNEL_NORM = "divides by a norm over all channels, which ties every factor to one; use GroupNorm"
_COMPARISON = "a comparison has no factor; use relu, leaky_relu or amax in place of masks"
_REASONS = {
    "layernorm": _CHANNEL_NORM,
    "rmsnorm": _CHANNEL_NORM,
    "softmax": _SOFTMAX,
    "logsoftmax": _SOFTMAX,
    "multiheadattention": "attention passes through a softmax, which is not positively homogeneous; use convolutions",
    "alphadropout": "does not fill with zeros and shifts its input; use Dropout",
    "localresponsenorm": "divides by a norm plus a constant; use GroupNorm",
    "embedding": "looks up integers, so there is no input to scale; look up before the model",
    "detach": "cuts the gradient, which then cannot be recovered; leave it out",
    **dict.fromkeys(("gt", "ge", "lt", "le", "eq", "ne", "where"), _COMPARISON),
    **dict.fromkeys(("max", "min"), "returns positions too, or mixes samples; use amax over dimensions"),
    **dict.fromkeys(("chunk", "split"), "returns several tensors; take slices"),
    **dict.fromkeys(
        ("convtranspose1d", "convtranspose2d", "convtranspose3d"),
        f"transposed convolutions are not supported; use a convolution, {_WAY_OUT}",
    ),
    **dict.fromkeys(
        ("lstm", "gru", "rnn"),
        "recurrent layers share weights over time and use saturating gates; use convolutions over time",
    ),
}


def refusal_for(operation: str) -> str:
    plain = operation.lower().replace("_", "")
    if plain in _REASONS:
        return f"{operation}: {_REASONS[plain]}"
    if plain in _NOT_HOMOGENEOUS:
        return (
            f"{operation} is not positively homogeneous, so a factor does not pass through it; "
            f"use ReLU, LeakyReLU or PReLU, {_WAY_OUT}"
        )
    return f"{operation} is not on the list of supported operations; use those of specs/perturbation.md, {_WAY_OUT}"
