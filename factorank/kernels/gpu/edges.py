"""All rounds of edge attention as one operator, on GPUs and in bfloat16: see ``edge_kernels``.

One launch forward and two backward, whatever the number of rounds, besides those that gather the parameters
and four batched products for the gradients of the matrices and of the best fits.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
import triton
from torch import Tensor

from factorank.kernels.derivatives import first_derivative_only
from factorank.kernels.gpu import edge_kernels as kernels

VALUE, DIRECTIONS, MIXES = 16, 4, 8
"""The width of a message, and how many a token sends and hears."""
PER_ROUND = 7
"""Parameters of a round: gain and shift; weight to the values; weight and bias up; weight and bias down."""
ALIGNED = 8
"""A row of attention weights is padded to a multiple of this, so that it is loaded 16 bytes at a time."""
SPLITS = 8
"""Into how many parts the sum over tokens is split for the gradients of the parameters."""
TOGETHER = 4
"""Rounds whose messages are one product in the gradient of the attention weights."""
STAGES = 1
"""Products that are 16 wide have read out of bounds in loops that load ahead."""
EPS = 1e-5
"""Of the norms, as torch has it."""
TILE, WARPS = 64, 4
"""Tokens of a tile of whole lists, and the warps that share it."""


def apply(x: Tensor, weights: Tensor, best_fit: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Rounds of ``(*batch, n, width)``; ``parameters`` are PER_ROUND for each round.

    Attention weights ``(*batch, directions, exponents, n, n)``, and ``best_fit`` ``(*batch, n, mixes)``.
    """
    n, width = x.shape[-2:]
    weights = F.pad(weights, (0, -n % ALIGNED)).to(torch.bfloat16)
    rows = (
        x.reshape(-1, n, width),
        weights.reshape(-1, MIXES, n, weights.shape[-1]),
        best_fit.float().reshape(-1, n, MIXES),
    )
    save = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*rows, *parameters))
    y: Tensor = _Rounds.apply(*rows, save, *parameters)
    return y.view(x.shape)


def _forward(
    x: Tensor, weights: Tensor, best_fit: Tensor, parameters: list[Tensor], save: bool
) -> list[Tensor]:
    """The result, and what the backward pass needs, as in ``_kept``."""
    rows, n, width = x.shape
    x, weights, best_fit = x.contiguous(), weights.contiguous(), best_fit.contiguous()
    result = torch.empty_like(x)
    kept = [x.new_empty(shape, dtype=dtype) for shape, dtype in _kept(x, parameters, save)]
    matrices, vectors = kept[-2:]
    _gather(parameters, matrices, vectors)
    if rows:
        kernels.forward[(triton.cdiv(rows, TILE // n),)](
            x, result, weights, best_fit, matrices, vectors, *kept[:-2],
            rows * n, len(parameters) // PER_ROUND, EPS, N=n, PADDED=weights.shape[-1], WIDTH=width,
            BLOCK=TILE, SAVE=save, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
    return [result, *kept]


def _backward(grad_y: Tensor, weights: Tensor, saved: list[Tensor]) -> list[Tensor]:
    """The gradients of x, of the attention weights, of the best fits, and of the parameters."""
    plains, scales, inputs, values, ups, actives, matrices, vectors = saved
    rows, n, width = grad_y.shape
    rounds, tokens = len(inputs), rows * n
    if rows == 0:
        return [torch.zeros_like(empty) for empty in _backward_shapes(grad_y, weights, saved)]
    grad_y, weights = grad_y.contiguous(), weights.contiguous()
    grad_x = torch.empty_like(grad_y)
    grad_change, grad_up = torch.empty_like(ups), torch.empty_like(ups)
    grad_heard, grad_values = ups.new_empty((rounds, tokens, MIXES * VALUE)), torch.empty_like(values)
    tiles = triton.cdiv(rows, TILE // n)
    sums = grad_y.new_empty((rounds, tiles, 4 * width))
    kernels.backward[(tiles,)](
        grad_y, grad_x, weights, matrices, vectors, plains, scales, ups, grad_change, grad_up,
        grad_heard, grad_values, sums, tokens, rounds, N=n, PADDED=weights.shape[-1], WIDTH=width, BLOCK=TILE,
        num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    block, warps = (32, 2) if n <= 16 else (TILE, WARPS)
    # The padding of a row is written only where a tile is one list.
    whole = weights.shape[-1] == n or block // n == 1
    grad_weights = torch.empty_like(weights) if whole else torch.zeros_like(weights)
    kernels.weights_backward[(triton.cdiv(rows, block // n), DIRECTIONS)](
        grad_heard, values, grad_weights, tokens, rounds, N=n, PADDED=weights.shape[-1], BLOCK=block,
        TOGETHER=TOGETHER, num_warps=warps, num_stages=STAGES,
    )  # fmt: skip
    to_values = _products(grad_values, inputs[:, :, :width])
    up, down = _products(grad_up, inputs), _products(grad_change, actives)
    grad_best_fit = _product(grad_up, _from_best_fit(matrices)).sum(0).view(rows, n, MIXES)
    vector = sums.sum(1).view(rounds, 4, width)
    gradients = [grad_x, grad_weights, grad_best_fit]
    for i in range(rounds):
        gain, shift, up_bias, down_bias = vector[i]
        gradients += [gain, shift, to_values[i], up[i], up_bias, down[i], down_bias]
    return gradients


def _kept(x: Tensor, parameters: list[Tensor], save: bool) -> list[tuple[tuple[int, int, int], torch.dtype]]:
    """Shapes and types of what a forward pass stores, for each round.

    Normed streams, and the inverse of their deviation; the inputs of the product up: normed streams with gain
    and shift, what was heard, and the best fits; values; what goes into the GELU and what comes out. Then the
    matrices and the vectors among the parameters.
    """
    width, rounds = x.shape[-1], len(parameters) // PER_ROUND
    tokens = x.shape[0] * x.shape[1] if save else 0
    wide = (width + MIXES * VALUE + MIXES, DIRECTIONS * VALUE, width, width)
    shapes = [((rounds, tokens, width), torch.bfloat16), ((rounds, tokens, 1), torch.float32)]
    shapes += [((rounds, tokens, size), torch.bfloat16) for size in wide]
    rows = DIRECTIONS * VALUE + wide[0] + width
    return [*shapes, ((rounds, rows, width), torch.bfloat16), ((rounds, 4, width), torch.float32)]


def _gather(parameters: list[Tensor], matrices: Tensor, vectors: Tensor) -> None:
    """Copy the parameters to where the kernels read them: matrices in bfloat16; gains, shifts and biases."""
    wide = [parameter for parameter in parameters if parameter.ndim == 2]
    parts = matrices.view(-1).split([matrix.numel() for matrix in wide])
    views = [part.view(matrix.shape) for part, matrix in zip(parts, wide, strict=True)]
    torch._foreach_copy_(views, wide)
    torch.cat([parameter for parameter in parameters if parameter.ndim == 1], out=vectors.view(-1))


def _from_best_fit(matrices: Tensor) -> Tensor:
    """The part of the matrices up that the best fits go through: ``(rounds, width, mixes)``."""
    rounds, _, width = matrices.shape
    wide = width + MIXES * VALUE + MIXES
    up = matrices[:, DIRECTIONS * VALUE : DIRECTIONS * VALUE + wide].reshape(rounds, width, wide)
    return up[:, :, -MIXES:].contiguous()


def _products(a: Tensor, b: Tensor) -> Tensor:
    """``a^T b`` of narrow ``(rounds, tokens, …)`` for each round, summed and left in float32."""
    rounds, tokens, _ = a.shape
    splits = next(parts for parts in range(SPLITS, 0, -1) if tokens % parts == 0)
    a, b = (tensor.unflatten(1, (splits, -1)).flatten(0, 1) for tensor in (a, b))
    return _product(a.mT, b).unflatten(0, (rounds, splits)).sum(1)


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b, out_dtype=torch.float32)


_library = torch.library.Library("factorank", "FRAGMENT")
_library.define(
    "edge_rounds(Tensor x, Tensor weights, Tensor best_fit, Tensor[] parameters, bool save) -> Tensor[]"
)
_library.define("edge_rounds_backward(Tensor grad_y, Tensor weights, Tensor[] saved) -> Tensor[]")
_library.impl("edge_rounds", _forward, "CUDA")
_library.impl("edge_rounds_backward", _backward, "CUDA")


@torch.library.register_fake("factorank::edge_rounds", lib=_library)
def _forward_shapes(x, weights, best_fit, parameters, save):  # type: ignore[no-untyped-def]
    kept = _kept(x, parameters, save)
    return [x.new_empty(x.shape), *(x.new_empty(shape, dtype=dtype) for shape, dtype in kept)]


@torch.library.register_fake("factorank::edge_rounds_backward", lib=_library)
def _backward_shapes(grad_y, weights, saved):  # type: ignore[no-untyped-def]
    rows, n, width = grad_y.shape
    vector, matrix = (width,), (width, width)
    each = [vector, vector, (DIRECTIONS * VALUE, width), (width, saved[2].shape[-1]), vector, matrix, vector]
    shapes = [(rows, n, width), (rows, n, MIXES), *each * len(saved[0])]
    grad_x, *rest = (grad_y.new_empty(shape) for shape in shapes)
    return [grad_x, weights.new_empty(weights.shape), *rest]


class _Rounds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weights, best_fit, save, *parameters):  # type: ignore[no-untyped-def]
        y, *kept = torch.ops.factorank.edge_rounds(x, weights, best_fit, list(parameters), save)
        ctx.save_for_backward(weights, *kept)
        return y

    @staticmethod
    @first_derivative_only
    def backward(ctx, grad_y):  # type: ignore[no-untyped-def]
        weights, *saved = ctx.saved_tensors
        grad_x, grad_weights, grad_best_fit, *rest = torch.ops.factorank.edge_rounds_backward(
            grad_y, weights, saved
        )
        return grad_x, grad_weights, grad_best_fit, None, *rest
