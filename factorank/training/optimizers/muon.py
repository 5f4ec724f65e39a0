"""Muon: the matrices between a network's first and last layers, changed by gradients made orthogonal.

AdamW changes each number by its own gradients. Taken as a matrix, such a change is often nearly of low rank:
a few directions take most of it. Muon brings all singular values of the gradient's momentum to about one, so
that every direction moves.

References: Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024,
https://kellerjordan.github.io/posts/muon/; Liu et al., "Muon is scalable for LLM training", 2025,
https://arxiv.org/abs/2502.16982, for the scale of a change.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from factorank.errors import TrainingError
from factorank.training.optimizers.adamw import Named, Rule, TorchUpdate

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of x, x³ and x⁵: the slope at 0 is as steep as it can be while ones stay near one (Jordan)."""
ITERATIONS = 5
SCALE = 0.2
"""Times the root of the longer side, the numbers of a change are about as large as AdamW's (Liu et al.)."""


def hidden_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices for Muon: weights of the linear layers of repeated parts, which lie in a ``ModuleList``.

    These are the blocks of a transformer, say; embeddings, heads and first layers are not among them as long
    as they lie outside of such lists. The number tells how many matrices are stacked in a weight: three where
    queries, keys and values are made by one layer ``qkv``, else one.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ModuleList([nn.Linear(4, 4)]))
    >>> [(tuple(weight.shape), stacked) for weight, stacked in hidden_matrices(model).items()]
    [((4, 4), 1)]
    """
    repeated = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    found: dict[nn.Parameter, int] = {}
    for name, layer in (named for part in repeated for named in part.named_modules()):
        if isinstance(layer, nn.Linear) and isinstance(layer.weight, nn.Parameter):
            packed = name.split(".")[-1] == "qkv" and layer.out_features == 3 * layer.in_features
            found[layer.weight] = 3 if packed else 1
    return found


def orthogonalised(matrices: Tensor) -> Tensor:
    r"""Matrices ``(batch, rows, columns)`` with their singular values brought to between about 0.7 and 1.2.

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
    """How many matrices it holds, one above the other."""
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
        """Back again; contiguous, which lets torch change many weights in one launch."""
        return (matrices.mT if self.tall else matrices).reshape(self.weight.shape).contiguous()


class Muon(TorchUpdate):
    r"""Muon for the rule's ``hidden`` matrices, AdamW for the other weights.

    With gradient g and momentum :math:`m \leftarrow 0.95 m + g` the weight moves against
    :math:`g + 0.95 m`, orthogonalised, by :math:`0.2 \sqrt{\text{longer side}}` times the learning rate. All
    gradients are clipped together, and decay pulls at all matrices.
    """

    def __init__(self, named: Named, device: torch.device, rule: Rule, *, capturable: bool) -> None:
        chosen = rule.hidden or {}
        self.hidden = [
            Hidden(name, weight, chosen[weight], torch.zeros_like(weight))
            for name, weight in named
            if weight in chosen
        ]
        if not self.hidden:
            raise TrainingError(
                "optimizer='muon' is for the matrices of repeated layers, and this model has none to train,"
                " that is no nn.Linear inside an nn.ModuleList; optimizer='adamw' trains any model"
            )
        others = [(name, weight) for name, weight in named if weight not in chosen]
        super().__init__(others, device, rule, capturable=capturable)
        self.named, self.weights = named, [weight for _, weight in named]
        self._decay = rule.weight_decay

    @torch.no_grad()
    def change(self) -> None:
        super().change()
        reached = [(one, one.weight.grad) for one in self.hidden if one.weight.grad is not None]
        if not reached:
            return
        gradients = [gradient for _, gradient in reached]
        momenta = [one.momentum for one, _ in reached]
        weights: list[Tensor] = [one.weight for one, _ in reached]
        torch._foreach_mul_(momenta, MOMENTUM)
        torch._foreach_add_(momenta, gradients)
        ahead = torch._foreach_add(gradients, momenta, alpha=MOMENTUM)  # Nesterov's: a step further
        groups: dict[tuple[int, ...], list[int]] = {}
        wide = [one.to_wide(value) for (one, _), value in zip(reached, ahead, strict=True)]
        for i, matrices in enumerate(wide):
            groups.setdefault(tuple(matrices.shape[1:]), []).append(i)
        changes = list(ahead)
        for (_, longer), members in groups.items():  # matrices of one shape go through together
            made = orthogonalised(torch.cat([wide[i] for i in members]))
            made *= -SCALE * math.sqrt(longer) * self._lr
            for i, matrices in zip(members, made.split([len(wide[i]) for i in members]), strict=True):
                changes[i] = reached[i][0].from_wide(matrices)
        torch._foreach_mul_(weights, 1 - self._lr * self._decay)
        torch._foreach_add_(weights, changes)

    def state(self) -> dict[str, Tensor]:
        return super().state() | {f"momentum/{one.name}": one.momentum for one in self.hidden}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        momenta = {f"momentum/{one.name}": one.momentum for one in self.hidden}
        for path, momentum in momenta.items():
            momentum.copy_(tensors[path])
        super().load_state({path: value for path, value in tensors.items() if path not in momenta})
