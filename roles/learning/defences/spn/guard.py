"""Secret polarization network: a private head whose loss perturbs the gradients of the shared layers.

A network is features, then a head. Beside the shared head sits a private one, linear, from the same features
to `bits` numbers v; each class has a private code t of `bits` signs. A party minimises

    alpha1 * loss(outputs, label) + alpha2 * sum over bits of max(margin - v_k t_k, 0),

averaged over the batch, with t the code of the sample's class. Only the network travels. The private head and
the codes are drawn once from the party's own randomness; the head is trained along from round to round and
never leaves the party. With a margin of at least 1 the second term bounds the number of bits in which the
signs of v and t differ.

The private head starts in the range of the network it belongs to: the paper draws all weights of DLNet, the private
ones too, from [-0.3, 0.3]. The perturbation is proportional to that range, so alpha2 means little without it: torch's
usual range, one over the root of the width, is half of DLNet's at 48 features and halves what alpha2 does.

A repeated call of the same round starts from the head that round started from, and gives the same bytes.

The paper sums over all classes where this page takes the true one (its definition of the loss says so), and
states alpha1 + alpha2 = 1 in one place and alpha1 = 1 in another: both can be set, alpha1 = 1 is the default.

Implements specs/defences.md, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.defences.guard import Guard, Party, RoundWork
from veilsum.roles.learning.defences.packing import pack, unpack
from veilsum.roles.learning.defences.private import PrivateKey
from veilsum.roles.learning.training.loop import Objective, trainable

Codes = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class PrivateHead:
    """The weights of the private head, as plain arrays."""

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]

    @classmethod
    def draw(cls, key: PrivateKey, bits: int, width: int, reach: float | None = None) -> PrivateHead:
        """Uniform in [-reach, reach]; without one, in the usual range of a linear layer."""
        numbers = 2 * key.stream("spn-head").uniform(bits * (width + 1)) - 1
        scaled = (numbers * (1 / np.sqrt(width) if reach is None else reach)).astype(np.float32)
        return cls(scaled[: bits * width].reshape(bits, width), scaled[bits * width :])

    @classmethod
    def of(cls, layer: nn.Linear) -> PrivateHead:
        return cls(layer.weight.detach().cpu().numpy().copy(), layer.bias.detach().cpu().numpy().copy())

    def layer(self, device: torch.device) -> nn.Linear:
        bits, width = self.weight.shape
        # Made without initialisation, so that the generator of the network's dropout is left alone.
        layer = nn.Linear(width, bits, device="meta").to_empty(device=device)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(self.weight))
            layer.bias.copy_(torch.from_numpy(self.bias))
        return layer


class Polarized(nn.Module):
    """The shared network with the private head beside it; `features` is what last entered the shared head."""

    def __init__(self, shared: nn.Module, head: nn.Linear, private: nn.Linear) -> None:
        super().__init__()
        self.shared = shared
        self.private = private
        self.features: torch.Tensor | None = None
        head.register_forward_pre_hook(self._remember)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.shared(inputs)
        return outputs

    def polarization(self) -> torch.Tensor:
        """The private head's numbers for the last batch."""
        assert self.features is not None
        private: torch.Tensor = self.private(self.features)
        return private

    def _remember(self, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.features = inputs[0]


class SpnGuard(Guard):
    """`codes` has a row for each class; `head` is the private head as the last round left it."""

    def __init__(self, bits: int, alpha1: float, alpha2: float, margin: float, key: PrivateKey) -> None:
        self._bits = bits
        self._alpha1, self._alpha2, self._margin = alpha1, alpha2, margin
        self._key = key
        self._round = -1

    def attach(self, party: Party) -> None:
        if party.feed.samples.labels is None:
            raise LocalProtocolError("defence spn: codes belong to classes, and this task has none")
        head = shared_head(party.network)
        classes = max(2, head.out_features, int(party.feed.samples.labels.max()) + 1)
        self.codes = draw_codes(self._key, classes, self._bits)
        reach = getattr(party.network, "head_reach", None)
        self.head = PrivateHead.draw(self._key, self._bits, head.in_features, reach)
        self.head_before = self.head

    def prepare(
        self, module: nn.Module, objective: Objective, work: RoundWork
    ) -> tuple[nn.Module, Objective]:
        if work.round != self._round:
            self.head_before = self.head
        head = shared_head(work.network)
        device = head.weight.device
        polarized = Polarized(module, head, self.head_before.layer(device))
        codes = torch.from_numpy(self.codes).to(device)

        def dual(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            loss = self._alpha1 * objective(module, inputs, targets)
            if not self._alpha2:
                return loss
            assert isinstance(module, Polarized)
            private = polarization_loss(module.polarization(), codes[targets], self._margin)
            return loss + self._alpha2 * private.mean()

        return polarized, dual

    def finish(self, module: nn.Module, gradients: Sequence[torch.Tensor] | None, work: RoundWork) -> None:
        polarized = next(part for part in module.modules() if isinstance(part, Polarized))
        if gradients is not None:
            by_parameter = dict(zip(map(id, trainable(module)), gradients, strict=True))
            with torch.no_grad():
                for parameter in polarized.private.parameters():
                    parameter.sub_(by_parameter[id(parameter)], alpha=work.learning_rate)
        self.head, self._round = PrivateHead.of(polarized.private), work.round

    def state(self) -> bytes:
        heads = [
            array.tobytes() for head in (self.head_before, self.head) for array in (head.weight, head.bias)
        ]
        return pack([self._round, *self.head_before.weight.shape, *heads])

    def restore(self, state: bytes) -> None:
        content = unpack(state, "defence spn: the stored private head")
        try:
            round_, bits, width, *arrays = content
            numbers = [np.frombuffer(array, dtype=np.float32) for array in arrays]
        except (ValueError, TypeError) as error:
            raise LocalProtocolError("defence spn: the stored private head is incomplete") from error
        sizes = [self.head_before.weight.size, self.head_before.bias.size]
        if (bits, width) != self.head_before.weight.shape or [one.size for one in numbers] != 2 * sizes:
            raise LocalProtocolError(
                f"defence spn: the stored private head is {bits} x {width}, this model needs "
                f"{self.head_before.weight.shape[0]} x {self.head_before.weight.shape[1]}: model or bits have changed"
            )
        before, after = (
            PrivateHead(numbers[at].reshape(bits, width).copy(), numbers[at + 1].copy()) for at in (0, 2)
        )
        self._round, self.head_before, self.head = int(round_), before, after


def polarization_loss(private: torch.Tensor, codes: torch.Tensor, margin: float) -> torch.Tensor:
    """Per sample, the sum over bits of max(margin - v t, 0)."""
    return (margin - private * codes).clamp_min(0).sum(dim=-1)


def draw_codes(key: PrivateKey, classes: int, bits: int) -> Codes:
    """A row of random signs for each class, no two rows the same."""
    if classes > 2**bits:
        raise LocalProtocolError(
            f"defence spn: {bits} bits give {2**bits} codes for {classes} classes: use at least "
            f"bits={(classes - 1).bit_length()}"
        )
    stream = key.stream("spn-codes")
    rows: dict[bytes, Codes] = {}
    while len(rows) < classes:
        row = stream.signs(bits).astype(np.float32)
        rows.setdefault(row.tobytes(), row)
    return np.stack(list(rows.values()))


def shared_head(network: nn.Module) -> nn.Linear:
    """The last linear layer: `network.head`, or the last layer of a sequence."""
    head = getattr(network, "head", None)
    if head is None and isinstance(network, nn.Sequential) and len(network):
        head = network[-1]
    if not isinstance(head, nn.Linear):
        raise LocalProtocolError(
            "defence spn needs a model with a penultimate layer: give it a linear layer named `head`, or make "
            "it a Sequential that ends with a linear layer"
        )
    return head
