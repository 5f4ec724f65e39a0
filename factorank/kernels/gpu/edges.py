"""All rounds of edge attention as one operator, on GPUs and in bfloat16: see ``edge_kernels``.

One launch forward and two backward, whatever the number of rounds, besides those that gather the parameters
and four batched products for the gradients of the weights and of what was found.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from factorank.kernels.gpu import edge_kernels as kernels

VALUE, DIRECTIONS, MIXES = 16, 4, 8
"""How wide a message is, and how many a token says and hears."""
PER_ROUND = 7
"""Parameters of a round: gain and shift; weight to the values; weight and bias up; weight and bias down."""
ALIGNED = 8
"""A row of weights is padded to a multiple of this, so that it is loaded 16 bytes at a time."""
SPLITS = 8
"""In how many parts the tokens are summed over at once for the gradients of the parameters."""
TOGETHER = 4
"""Rounds whose messages are one product in the gradient of the weights."""
STAGES = 1
"""Products that are 16 wide were seen to read out of bounds in loops that load ahead."""


def forward_tile(n: int) -> tuple[int, int]:
    """Tokens of a tile of whole lists of n, and the warps that share it."""
    return 64, 4


def backward_tile(n: int) -> tuple[int, int]:
    """The same backward."""
    return 64, 4


def weights_tile(n: int) -> tuple[int, int]:
    """The same for the gradient of the weights."""
    return (32, 2) if n <= 16 else (64, 4)


def apply(
    x: Tensor, weights: Tensor, found: Tensor, parameters: Sequence[Tensor], eps: float = 1e-5
) -> Tensor:
    """Rounds of ``(*batch, n, width)``; ``parameters`` are PER_ROUND for each round.

    Weights ``(*batch, directions, exponents, n, n)``, and ``found`` ``(*batch, n, mixes)``.
    """
    n, width = x.shape[-2:]
    weights = F.pad(weights, (0, -n % ALIGNED)).to(torch.bfloat16)
    rows = (
        x.reshape(-1, n, width),
        weights.reshape(-1, MIXES, n, weights.shape[-1]),
        found.float().reshape(-1, n, MIXES),
    )
    save = torch.is_grad_enabled() and any(one.requires_grad for one in (*rows, *parameters))
    made: Tensor = _Rounds.apply(*rows, eps, save, *parameters)
    return made.view(x.shape)


def _forward(
    x: Tensor, weights: Tensor, found: Tensor, parameters: list[Tensor], eps: float, save: bool
) -> list[Tensor]:
    """The result, and what the backward pass needs, as in ``_kept``."""
    rows, n, width = x.shape
    x, weights, found = x.contiguous(), weights.contiguous(), found.contiguous()
    result = torch.empty_like(x)
    kept = [x.new_empty(shape, dtype=dtype) for shape, dtype in _kept(x, parameters, save)]
    matrices, vectors = kept[-2:]
    _gather(parameters, matrices, vectors)
    if rows:
        block, warps = forward_tile(n)
        kernels.forward[(triton.cdiv(rows, block // n),)](
            x, result, weights, found, matrices, vectors, *kept[:-2],
            rows * n, len(parameters) // PER_ROUND, eps,
            N=n, PADDED=weights.shape[-1], WIDTH=width, BLOCK=block, SAVE=save,
            num_warps=warps, num_stages=STAGES,
        )  # fmt: skip
    return [result, *kept]


def _backward(gradient: Tensor, weights: Tensor, saved: list[Tensor]) -> list[Tensor]:
    """The gradients of x, of the weights and of what was found, and of the parameters."""
    plains, scales, inputs, values, ups, actives, matrices, vectors = saved
    rows, n, width = gradient.shape
    rounds, tokens = len(inputs), rows * n
    if rows == 0:
        return [torch.zeros_like(one) for one in _backward_shapes(gradient, weights, saved)]
    gradient, weights = gradient.contiguous(), weights.contiguous()
    of_x = torch.empty_like(gradient)
    of_change, of_up = torch.empty_like(ups), torch.empty_like(ups)
    of_heard, of_values = ups.new_empty((rounds, tokens, MIXES * VALUE)), torch.empty_like(values)
    block, warps = backward_tile(n)
    tiles = triton.cdiv(rows, block // n)
    sums = gradient.new_empty((rounds, tiles, 4 * width))
    kernels.backward[(tiles,)](
        gradient, of_x, weights, matrices, vectors, plains, scales, ups, of_change, of_up,
        of_heard, of_values, sums, tokens, rounds, N=n, PADDED=weights.shape[-1], WIDTH=width, BLOCK=block,
        num_warps=warps, num_stages=STAGES,
    )  # fmt: skip
    block, warps = weights_tile(n)
    # What rows are padded with is written only where a tile is one list.
    whole = weights.shape[-1] == n or block // n == 1
    of_weights = torch.empty_like(weights) if whole else torch.zeros_like(weights)
    kernels.through_weights[(triton.cdiv(rows, block // n), DIRECTIONS)](
        of_heard, values, of_weights, tokens, rounds, N=n, PADDED=weights.shape[-1], BLOCK=block,
        TOGETHER=TOGETHER, num_warps=warps, num_stages=STAGES,
    )  # fmt: skip
    to_values = _products(of_values, inputs[:, :, :width])
    up, down = _products(of_up, inputs), _products(of_change, actives)
    of_found = _product(of_up, _from_found(matrices)).sum(0).view(rows, n, MIXES)
    vector = sums.sum(1).view(rounds, 4, width)
    gradients = [of_x, of_weights, of_found]
    for i in range(rounds):
        gain, shift, up_bias, down_bias = vector[i]
        gradients += [gain, shift, to_values[i], up[i], up_bias, down[i], down_bias]
    return gradients


def _kept(x: Tensor, parameters: list[Tensor], save: bool) -> list[tuple[tuple[int, int, int], torch.dtype]]:
    """Shapes and types of what a forward pass makes on its way, for each round.

    Normed streams, and the inverse of the deviation they had; the same with gain and shift, and what was
    heard and found; values; what goes into the GELU and what comes out; then the weights and the vectors
    among the parameters.
    """
    width, rounds = x.shape[-1], len(parameters) // PER_ROUND
    tokens = x.shape[0] * x.shape[1] if save else 0
    wide = (width + MIXES * VALUE + MIXES, DIRECTIONS * VALUE, width, width)
    shapes = [((rounds, tokens, width), torch.bfloat16), ((rounds, tokens, 1), torch.float32)]
    shapes += [((rounds, tokens, one), torch.bfloat16) for one in wide]
    rows = DIRECTIONS * VALUE + wide[0] + width
    return [*shapes, ((rounds, rows, width), torch.bfloat16), ((rounds, 4, width), torch.float32)]


def _gather(parameters: list[Tensor], matrices: Tensor, vectors: Tensor) -> None:
    """The parameters where the kernels look for them: weights in bfloat16, and gains, shifts and biases."""
    wide = [one for one in parameters if one.ndim == 2]
    parts = matrices.view(-1).split([one.numel() for one in wide])
    torch._foreach_copy_([part.view(one.shape) for part, one in zip(parts, wide, strict=True)], wide)
    torch.cat([one for one in parameters if one.ndim == 1], out=vectors.view(-1))


def _from_found(matrices: Tensor) -> Tensor:
    """The part of the weights up that what was found goes through: ``(rounds, width, mixes)``."""
    rounds, _, width = matrices.shape
    wide = width + MIXES * VALUE + MIXES
    up = matrices[:, DIRECTIONS * VALUE : DIRECTIONS * VALUE + wide].reshape(rounds, width, wide)
    return up[:, :, -MIXES:].contiguous()


def _products(a: Tensor, b: Tensor) -> Tensor:
    """``a^T b`` of narrow ``(rounds, tokens, …)`` for each round, summed and left in float32."""
    rounds, tokens, _ = a.shape
    splits = next(parts for parts in range(SPLITS, 0, -1) if tokens % parts == 0)
    a, b = (one.unflatten(1, (splits, -1)).flatten(0, 1) for one in (a, b))
    return _product(a.mT, b).unflatten(0, (rounds, splits)).sum(1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b, out_dtype=torch.float32)


_library = torch.library.Library("factorank", "FRAGMENT")
_library.define(
    "edge_rounds(Tensor x, Tensor weights, Tensor found, Tensor[] parameters, float eps, bool save)"
    " -> Tensor[]"
)
_library.define("edge_rounds_backward(Tensor gradient, Tensor weights, Tensor[] saved) -> Tensor[]")
_library.impl("edge_rounds", _forward, "CUDA")
_library.impl("edge_rounds_backward", _backward, "CUDA")


@torch.library.register_fake("factorank::edge_rounds", lib=_library)
def _forward_shapes(x, weights, found, parameters, eps, save):  # type: ignore[no-untyped-def]
    kept = _kept(x, parameters, save)
    return [x.new_empty(x.shape), *(x.new_empty(shape, dtype=dtype) for shape, dtype in kept)]


@torch.library.register_fake("factorank::edge_rounds_backward", lib=_library)
def _backward_shapes(gradient, weights, saved):  # type: ignore[no-untyped-def]
    rows, n, width = gradient.shape
    vector, matrix = (width,), (width, width)
    each = [vector, vector, (DIRECTIONS * VALUE, width), (width, saved[2].shape[-1]), vector, matrix, vector]
    shapes = [(rows, n, width), (rows, n, MIXES), *each * len(saved[0])]
    of_x, *rest = (gradient.new_empty(shape) for shape in shapes)
    return [of_x, weights.new_empty(weights.shape), *rest]


class _Rounds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weights, found, eps, save, *parameters):  # type: ignore[no-untyped-def]
        made = torch.ops.factorank.edge_rounds(x, weights, found, list(parameters), eps, save)
        ctx.save_for_backward(weights, *made[1:])
        return made[0]

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        weights, *saved = ctx.saved_tensors
        of_x, of_weights, of_found, *rest = torch.ops.factorank.edge_rounds_backward(gradient, weights, saved)
        return of_x, of_weights, of_found, None, None, *rest
