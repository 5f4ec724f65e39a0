"""Muon: changes the matrices between a network's first and last layers by orthogonalised gradients.

AdamW changes each number by its own gradients. As a matrix, such a change often has nearly low rank: a few
directions take most of it. Muon brings all singular values of the gradient's momentum to about one, so that
every direction moves.

References: Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024,
https://kellerjordan.github.io/posts/muon/; Liu et al., "Muon is scalable for LLM training", 2025,
https://arxiv.org/abs/2502.16982, for the scale of a change.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from factorank.errors import TrainingError
from factorank.training.optimizers.adamw import Named, TorchUpdate
from factorank.training.optimizers.average import Average
from factorank.training.settings import TrainSettings

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of x, x³ and x⁵: the slope at 0 is as steep as it can be while values of one stay near one (Jordan)."""
ITERATIONS = 5
SCALE = 0.2
"""With this factor times the root of the longer side, a change has about the size of AdamW's (Liu et al.)."""


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices for Muon: weights of the linear layers inside a ``ModuleList``, with how many are stacked.

    A ``ModuleList`` holds the repeated parts of a network, such as the blocks of a transformer. Embeddings,
    heads and first layers lie outside of such lists and are left to AdamW. Three matrices are stacked where
    one layer ``qkv`` makes queries, keys and values, else one.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 4)]))
    >>> [(tuple(weight.shape), stacked) for weight, stacked in hidden_matrices(model).items()]
    [((4, 4), 1)]
    """
    repeated = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    hidden: dict[nn.Parameter, int] = {}
    for name, layer in (named for part in repeated for named in part.named_modules()):
        if isinstance(layer, nn.Linear) and isinstance(layer.weight, nn.Parameter):
            packed = name.split(".")[-1] == "qkv" and layer.out_features == 3 * layer.in_features
            hidden[layer.weight] = 3 if packed else 1
    return hidden


def orthogonalised(matrices: Tensor) -> Tensor:
    r"""Bring the singular values of matrices ``(batch, rows, columns)`` to between about 0.7 and 1.2.

    The singular vectors stay. Five Newton–Schulz steps :math:`X \leftarrow aX + bXX^\top X + c(XX^\top)^2 X`
    take each singular value x to :math:`ax + bx^3 + cx^5`; those below 0.002 of the norm stay smaller. On
    CUDA they are in bfloat16. No more rows than columns is best: :math:`XX^\top` is the smaller product then.

    >>> matrices = torch.tensor([[[100.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    >>> orthogonalised(matrices).round(decimals=1)
    tensor([[[0.7000, 0.0000, 0.0000],
             [0.0000, 0.0000, 0.7000]]])
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(torch.promote_types(matrices.dtype, torch.float32))
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    if x.device.type == "cuda":
        x = x.bfloat16()
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


@dataclass(frozen=True)
class Hidden:
    """A weight that Muon changes."""

    name: str
    weight: nn.Parameter
    stacked: int
    """How many matrices it holds, one above the other along its rows."""
    momentum: Tensor

    @property
    def tall(self) -> bool:
        rows, columns = self.weight.shape
        return rows > self.stacked * columns

    def to_wide(self, values: Tensor) -> Tensor:
        """Values of the weight's shape as matrices ``(stacked, shorter, longer)``."""
        matrices = values.unflatten(0, (self.stacked, len(values) // self.stacked))
        return matrices.mT if self.tall else matrices

    def from_wide(self, matrices: Tensor) -> Tensor:
        """The inverse of :meth:`to_wide`; contiguous, so that torch changes many weights in one launch."""
        return (matrices.mT if self.tall else matrices).reshape(self.weight.shape).contiguous()


class Muon(TorchUpdate):
    r"""Muon for the ``hidden`` matrices, AdamW for the other weights.

    With gradient g and momentum :math:`m \leftarrow 0.95 m + g` the weight moves against
    :math:`g + 0.95 m`, orthogonalised, by :math:`0.2 \sqrt{\text{longer side}}` times the learning rate. All
    gradients are clipped together, and decay pulls at all matrices.
    """

    def __init__(
        self,
        named: Named,
        hidden: dict[nn.Parameter, int],
        device: torch.device,
        settings: TrainSettings,
        average: Average | None,
        *,
        capturable: bool = False,
    ) -> None:
        self.hidden = [
            Hidden(name, weight, hidden[weight], torch.zeros_like(weight))
            for name, weight in named
            if weight in hidden
        ]
        if not self.hidden:
            raise TrainingError(
                "{parameter='muon'} is for the matrices of repeated layers, and this model has none to train,"
                " that is no nn.Linear inside an nn.ModuleList; {parameter='adamw'} trains any model",
                parameter="optimizer",
            )
        others = [(name, weight) for name, weight in named if weight not in hidden]
        super().__init__(others, device, settings, average, capturable=capturable)
        self.named, self.weights = named, [weight for _, weight in named]

    @torch.no_grad()
    def change(self) -> None:
        super().change()
        reached = [hidden for hidden in self.hidden if hidden.weight.grad is not None]
        if not reached:
            return
        gradients = [hidden.weight.grad for hidden in reached if hidden.weight.grad is not None]
        momenta = [hidden.momentum for hidden in reached]
        weights: list[Tensor] = [hidden.weight for hidden in reached]
        torch._foreach_mul_(momenta, MOMENTUM)
        torch._foreach_add_(momenta, gradients)
        ahead = torch._foreach_add(gradients, momenta, alpha=MOMENTUM)  # Nesterov's: a step further
        groups: dict[tuple[int, ...], list[int]] = {}
        wide = [hidden.to_wide(value) for hidden, value in zip(reached, ahead, strict=True)]
        for i, matrices in enumerate(wide):
            groups.setdefault(tuple(matrices.shape[1:]), []).append(i)
        changes = list(ahead)
        for (_, longer), members in groups.items():  # matrices of one shape go through together
            change = orthogonalised(torch.cat([wide[i] for i in members]))
            change *= -SCALE * math.sqrt(longer) * self._lr
            for i, matrices in zip(members, change.split([len(wide[i]) for i in members]), strict=True):
                changes[i] = reached[i].from_wide(matrices)
        torch._foreach_mul_(weights, 1 - self._lr * self.settings.weight_decay)
        torch._foreach_add_(weights, changes)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {f"momentum/{hidden.name}": hidden.momentum for hidden in self.hidden}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        momenta = {f"momentum/{hidden.name}": hidden.momentum for hidden in self.hidden}
        for path, momentum in momenta.items():
            momentum.copy_(tensors[path])
        super().load_state({path: value for path, value in tensors.items() if path not in momenta})
