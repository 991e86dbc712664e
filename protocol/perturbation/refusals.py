"""Why well-known operations are refused, in words a user can act on."""

from __future__ import annotations

_NOT_HOMOGENEOUS = frozenset(
    (
        *("sigmoid", "tanh", "gelu", "silu", "mish", "relu6", "softplus", "elu", "selu", "celu", "hardtanh"),
        *("hardswish", "hardsigmoid", "logsigmoid", "softsign", "tanhshrink", "softshrink", "hardshrink"),
        *("glu", "rrelu", "exp", "log", "sqrt", "pow", "clamp"),
    )
)
_REASONS = {
    "layernorm": "divides by a norm over all channels, which ties every factor to one; use GroupNorm",
    "softmax": "softmax is not positively homogeneous; a softmax before the loss belongs to the loss",
    "logsoftmax": "softmax is not positively homogeneous; a softmax before the loss belongs to the loss",
    "multiheadattention": "attention passes through a softmax, which is not positively homogeneous",
    "alphadropout": "does not fill with zeros and shifts its input",
    "localresponsenorm": "divides by a norm plus a constant",
    "embedding": "looks up integers, so there is no input to scale",
    **dict.fromkeys(
        ("convtranspose1d", "convtranspose2d", "convtranspose3d"), "transposed convolutions are not supported"
    ),
    **dict.fromkeys(
        ("lstm", "gru", "rnn"), "recurrent layers share weights over time and use saturating gates"
    ),
}


def refusal_for(operation: str) -> str:
    plain = operation.lower().replace("_", "")
    if plain in _REASONS:
        return f"{operation}: {_REASONS[plain]}"
    if plain in _NOT_HOMOGENEOUS:
        return f"{operation} is not positively homogeneous, so a factor does not pass through it"
    return f"{operation} is not on the list of supported operations"
