"""The facts that the choice between a fast path and its plain twin depends on, and how they are gathered."""

import importlib.util
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

TRITON = torch.version.cuda is not None and importlib.util.find_spec("triton") is not None


class Facts(NamedTuple):
    """What the conditions depend on: properties of the tensors, and of where they are computed."""

    cuda: bool = False
    """The tensor lies on a CUDA device."""
    triton: bool = False
    """Triton is installed, and torch is built for CUDA."""
    generations: tuple[int, ...] = ()
    """The major compute capability of every GPU of this machine."""
    dtype: torch.dtype = torch.float32
    weights: torch.dtype | None = torch.float32
    """The type of all weights, or None if they differ or there are none."""
    autocast: torch.dtype | None = None
    """The type to which CUDA's autocast narrows, or None where it is off."""
    rows: int = 1
    tokens: int = 1
    """Of each row."""
    width: int = 0
    head: int = 0
    """The width of an attention head."""
    message: int = 0
    """The width of a message between pieces."""
    keys_only: bool = True
    """The mask, if there is one, says only which keys of a row any query and head may attend to."""
    single: bool = False
    """Tokens come one at a time."""
    grad: bool = False
    """Gradients are recorded."""
    compiling: bool = False
    """``torch.compile`` traces the code."""
    capturing: bool = False
    """A CUDA graph is being captured on the current stream."""
    step_captured: bool = False
    """The training step is run as a CUDA graph."""
    processes: int = 1
    """How many train the same weights."""
    alone: bool = True
    """No engine for several processes wraps the optimizer."""


def attention_facts(qkv: Tensor, mask: Tensor | None) -> Facts:
    """Of packed queries, keys and values ``(rows, tokens, 3, heads, head width)``."""
    rows, tokens, _, _, head = qkv.shape
    keys_only = _over_keys(mask, rows)
    return Facts(qkv.is_cuda, TRITON, rows=rows, tokens=tokens, head=head, keys_only=keys_only)


def block_facts(x: Tensor, heads: int, mask: Tensor | None = None) -> Facts:
    """Of a stack of blocks on ``(rows, tokens, width)``, but for their weights."""
    rows, tokens, width = x.shape
    return Facts(
        cuda=x.is_cuda,
        triton=TRITON,
        dtype=x.dtype,
        autocast=_autocast(),
        rows=rows,
        tokens=tokens,
        width=width,
        head=width // heads,
        keys_only=_over_keys(mask, rows),
        compiling=torch.compiler.is_compiling(),
    )


def edge_facts(tokens: Tensor, message: int) -> Facts:
    """Of rounds of edge attention on ``(*batch, n, width)``, but for their weights."""
    n, width = tokens.shape[-2:]
    return Facts(
        cuda=tokens.is_cuda,
        triton=TRITON,
        generations=_generations(tokens),
        autocast=_autocast(),
        tokens=n,
        width=width,
        message=message,
    )


def common_dtype(tensors: Sequence[Tensor]) -> torch.dtype | None:
    """The type of all tensors, or None if they differ or there are none."""
    if not tensors or any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        return None
    return tensors[0].dtype


def _over_keys(mask: Tensor | None, rows: int) -> bool:
    return mask is None or (mask.ndim == 4 and mask.shape[:3] == (rows, 1, 1))


def _autocast() -> torch.dtype | None:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


def _generations(x: Tensor) -> tuple[int, ...]:
    if not x.is_cuda:
        return ()
    from factorank.kernels.gpu.machine import GENERATIONS  # an import, so that compiled code need not ask

    return GENERATIONS
