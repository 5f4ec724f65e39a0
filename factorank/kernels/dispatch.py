"""Which fast path runs for what: the one switch, and the table of conditions.

A fast path computes the same as its plain twin. The functions of this module take what both need. They call
the fast one where its line in ``CONDITIONS`` holds and the plain one elsewhere, so that nothing outside of
the kernels branches on devices, Triton or autocast.

========= ================================================ ===============================================
path      fast                                             plain twin
========= ================================================ ===============================================
attention ``gpu.attention``: short lists in one kernel     ``attention.attend_packed``: products and a softmax
flash     ``attention.attend_by_torch``: torch's operator  ``attention.attend_packed``: the same
blocks    ``gpu.blocks``: a stack as one operator          ``models.transformer.Block``, one by one
cache     ``gpu.cache``: the next token through a stack    ``attention.BlockCache``: one by one
edges     ``gpu.edges``: all rounds as one operator        ``jigsaw.edges.EdgeRound``, one by one
sums      a product with a triangle of ones                a scan
update    ``gpu.optimizer``: clip, AdamW, average at once  torch's AdamW, then the average
capture   ``gpu.graphs``: the training step replayed       the step run eagerly
recording ``gpu.graphs``: a draw or a solution replayed    the function that computes it
codes     ``codes.cpu`` (numba), ``codes.cuda`` (CUDA C)   ``codes.reference``: plain torch
========= ================================================ ===============================================

The fast paths have first derivatives only. A second derivative raises an error; the plain twins have it.
Inside of ``torch.func`` (``grad``, ``vmap``, ``jvp``) and of forward-mode differentiation the plain twins of
the network run by themselves.

The operations on codes are an operator that torch itself dispatches by device; see ``codes``. They have no
line in ``CONDITIONS``, but ``plain`` holds for them too. Loops that numba compiles and that have no twin, as
that of ``assignment``, are called directly.
"""

import importlib.util
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from factorank.kernels.attention import BlockCache, Cache, attend_by_torch, attend_packed
from factorank.kernels.derivatives import is_transformed

Path = Literal[
    "attention", "flash", "blocks", "cache", "edges", "sums", "update", "capture", "recording", "codes"
]
NETWORK: tuple[Path, ...] = ("attention", "blocks", "cache", "edges")
"""The paths inside of a model's forward pass that are ours; "flash" is torch's."""
Parameters = Callable[[], Iterable[Tensor]]
"""Lists the weights of a path; it is called only where the path may run."""
TRITON = torch.version.cuda is not None and importlib.util.find_spec("triton") is not None
F32, BF16 = torch.float32, torch.bfloat16


class Facts(NamedTuple):
    """What the conditions depend on: properties of the tensors, and of where they are computed."""

    cuda: bool = False  # the tensor lies on a CUDA device
    triton: bool = False  # Triton is installed, and torch is built for CUDA
    generations: tuple[int, ...] = ()  # the major compute capability of every GPU of this machine
    dtype: torch.dtype = F32
    weights: torch.dtype | None = F32  # the type of all weights, or None if they differ or there are none
    autocast: torch.dtype | None = None  # to which CUDA's autocast narrows, or None where it is off
    rows: int = 1
    tokens: int = 1  # of each row
    width: int = 0
    head: int = 0  # the width of an attention head
    message: int = 0  # the width of a message between pieces
    keys_only: bool = True  # a mask says only which keys of a row any query and head may attend to
    single: bool = False  # tokens come one at a time
    grad: bool = False  # gradients are recorded
    compiling: bool = False  # torch.compile traces the code
    capturing: bool = False  # a CUDA graph is being captured on the current stream
    step_captured: bool = False  # the training step is run as a CUDA graph
    processes: int = 1  # how many train the same weights
    alone: bool = True  # no engine for several processes wraps the optimizer


CONDITIONS: dict[Path, Callable[[Facts], bool]] = {
    "attention": lambda f: (
        f.cuda and f.triton and f.keys_only and f.tokens <= 64 and f.head in (16, 32, 64)
    ),
    "flash": lambda f: True,
    "blocks": lambda f: (
        f.cuda and f.triton and f.autocast == BF16 and f.dtype == f.weights == F32 and f.keys_only
        and 1 <= f.tokens <= 64 and f.width in (64, 128) and f.head in (16, 32)
        # For large batches the compiler's separate kernels measured faster.
        and not (f.compiling and f.rows * f.tokens > 24_576)
    ),
    "cache": lambda f: f.single and not f.grad and CONDITIONS["blocks"](f),
    "edges": lambda f: (
        f.cuda and f.triton and f.autocast == BF16 and f.weights == F32
        and 1 <= f.tokens <= 64 and f.width in (64, 128) and f.message == 16
        # The tiles are made for the registers and the shared memory of these GPUs.
        and all(generation in (9, 10) for generation in f.generations)
    ),
    "sums": lambda f: f.cuda and f.width <= 64,
    "update": lambda f: f.cuda and f.triton and f.step_captured and f.alone and f.weights == F32,
    "capture": lambda f: f.cuda and f.processes == 1,
    # Beyond so many tokens the device takes longer than the host, which then need not be relieved.
    "recording": lambda f: f.cuda and f.rows * f.tokens <= 2**17 and not f.capturing,
}  # fmt: skip
"""Where each fast path runs. The constants are those that the kernels are written and measured for."""


@contextmanager
def plain(*paths: Path) -> Iterator[None]:
    """Inside, only the plain twins run: of these paths, or of all if none is named.

    They are slower and have every derivative, as a penalty on a gradient needs:

    >>> import factorank as fr
    >>> model = fr.PermutationModel(4, "lehmer", width=8, depth=1, heads=2)
    >>> orders = fr.random_permutations(4, (16,))
    >>> with fr.plain():
    ...     gradients = torch.autograd.grad(model.loss(orders).mean(), model.parameters(), create_graph=True)
    >>> sum(gradient.square().sum() for gradient in gradients).backward()

    The switch holds for the thread that enters it, and blocks may nest. Compiled code cannot tell threads
    apart: it runs the plain twins for as long as any thread is inside. Enter the block outside of it.
    """
    global _off
    entries = [(threading.get_ident(), path) for path in paths or get_args(Path)]
    with _lock:
        _off = (*_off, *entries)
    try:
        yield
    finally:
        with _lock:
            rest = list(_off)
            for entry in entries:
                rest.remove(entry)
            _off = tuple(rest)


def is_plain(path: Path) -> bool:
    """Whether ``plain`` keeps to the plain twin of a path here and now."""
    if not _off:
        return False
    if torch.compiler.is_compiling():
        return any(name == path for _, name in _off)
    return (threading.get_ident(), path) in _off


def switched_off() -> tuple[str, ...]:
    """The paths that ``plain`` turns off in this thread."""
    return tuple(sorted({name for thread, name in _off if thread == threading.get_ident()}))


def runs_fast(path: Path, facts: Facts) -> bool:
    """Whether the fast path is taken."""
    fast = not is_plain(path) and CONDITIONS[path](facts)
    return fast and not ((path == "flash" or path in NETWORK) and is_transformed())


def attention(
    qkv: Tensor, mask: Tensor | None = None, *, causal: bool = False, dropout: float = 0.0
) -> Tensor:
    """Attention of the tokens of each row to one another: as ``attention.attend_packed``."""
    rows, tokens, _, _, head = qkv.shape
    keys_only = _over_keys(mask, rows)
    facts = Facts(qkv.is_cuda, TRITON, rows=rows, tokens=tokens, head=head, keys_only=keys_only)
    if not dropout and runs_fast("attention", facts):
        from factorank.kernels.gpu import attention as short

        return short.attention(qkv, None if mask is None else mask[:, 0, 0], causal)
    attend = attend_by_torch if runs_fast("flash", facts) else attend_packed
    return attend(qkv, mask, causal=causal, dropout=dropout)


def blocks(
    x: Tensor,
    parameters: Parameters,
    mask: Tensor | None,
    *,
    heads: int,
    causal: bool,
    dropout: float,
    plain: Callable[[Tensor, Tensor | None, bool], Tensor],
) -> Tensor:
    """A stack of transformer blocks on ``(rows, tokens, width)``; ``plain(x, mask, causal)`` is its twin.

    ``parameters()`` are those of all blocks, in the order of :class:`factorank.models.transformer.Block`.
    """
    weights = _weights("blocks", block_facts(x, heads, mask), parameters)
    if weights is None:
        return plain(x, mask, causal)
    from factorank.kernels.gpu import blocks as fused

    present = None if mask is None else mask[:, 0, 0].contiguous()
    return fused.apply(x, weights, present, heads=heads, causal=causal, dropout=dropout)


def cache(
    like: Tensor,
    parameters: Parameters,
    blocks: Iterable[Callable[..., Tensor]],
    *,
    heads: int,
    capacity: int,
    single: bool,
) -> Cache:
    """An empty cache of ``blocks`` for tokens like these ``(rows, 1, width)``, and room for ``capacity``.

    ``single``: the tokens come one at a time.
    """
    facts = block_facts(like, heads)._replace(single=single, grad=torch.is_grad_enabled())
    weights = _weights("cache", facts, parameters)
    if weights is None:
        return BlockCache(blocks, capacity)
    from factorank.kernels.gpu.cache import FusedCache

    return FusedCache(weights, heads, capacity)


def edge_rounds(
    tokens: Tensor,
    weights: Tensor,
    best_fit: Tensor,
    parameters: Parameters,
    *,
    message: int,
    plain: Callable[[Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """Rounds of edge attention on ``(*batch, n, width)``; ``plain(tokens, weights, best_fit)`` is their twin.

    ``parameters()`` are those of all rounds, in the order of :class:`factorank.jigsaw.edges.EdgeRound`.
    """
    (n, width), cuda = tokens.shape[-2:], tokens.is_cuda
    generations: tuple[int, ...] = ()
    if cuda:
        from factorank.kernels.gpu.machine import GENERATIONS as generations  # compiled code need not ask
    facts = Facts(cuda, TRITON, generations, autocast=_autocast(), tokens=n, width=width, message=message)
    matrices = _weights("edges", facts, parameters)
    if matrices is None:
        return plain(tokens, weights, best_fit)
    from factorank.kernels.gpu import edges

    return edges.apply(tokens, weights, best_fit, matrices)


def cumulative_sums(x: Tensor) -> Tensor:
    """The sums of the first 1, 2, … elements of each row of ``(*batch, width)``, to the same shape."""
    width = x.shape[-1]
    if runs_fast("sums", Facts(x.is_cuda, width=width)):
        return x @ torch.ones((width, width), dtype=x.dtype, device=x.device).triu()
    return x.cumsum(-1)


def fuses_update(weights: Sequence[Tensor], *, captured: bool, alone: bool) -> bool:
    """Whether ``gpu.optimizer`` updates the weights in a training step; see ``Facts`` for the arguments."""
    dtype = _common_dtype(weights) if all(weight.is_contiguous() for weight in weights) else None
    cuda = all(weight.is_cuda for weight in weights)
    return runs_fast("update", Facts(cuda, TRITON, weights=dtype, step_captured=captured, alone=alone))


def captures_step(device: torch.device, processes: int) -> bool:
    """Whether a training step may be run as a CUDA graph."""
    return runs_fast("capture", Facts(device.type == "cuda", processes=processes))


def records(device: torch.device, tokens: int) -> bool:
    """Whether work on so many tokens is recorded and replayed as a CUDA graph here and now."""
    cuda = device.type == "cuda"
    capturing = cuda and torch.cuda.is_current_stream_capturing()
    return runs_fast("recording", Facts(cuda, tokens=tokens, capturing=capturing))


def _weights(path: Path, facts: Facts, parameters: Parameters) -> list[Tensor] | None:
    """The parameters of the fast path, or None where it does not run.

    They are listed last, since that takes longer than the rest.
    """
    if not runs_fast(path, facts):
        return None
    weights = list(parameters())
    return weights if runs_fast(path, facts._replace(weights=_common_dtype(weights))) else None


def block_facts(x: Tensor, heads: int, mask: Tensor | None = None) -> Facts:
    """Of a stack of blocks on ``(rows, tokens, width)``, but for their weights."""
    rows, tokens, width = x.shape
    return Facts(
        x.is_cuda, TRITON, dtype=x.dtype, autocast=_autocast(), rows=rows, tokens=tokens, width=width,
        head=width // heads, keys_only=_over_keys(mask, rows), compiling=torch.compiler.is_compiling(),
    )  # fmt: skip


def _common_dtype(tensors: Sequence[Tensor]) -> torch.dtype | None:
    return tensors[0].dtype if len({tensor.dtype for tensor in tensors}) == 1 else None


def _over_keys(mask: Tensor | None, rows: int) -> bool:
    return mask is None or (mask.ndim == 4 and mask.shape[:3] == (rows, 1, 1))


def _autocast() -> torch.dtype | None:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None


_lock = threading.Lock()
_off: tuple[tuple[int, Any], ...] = ()
"""The threads that are inside of ``plain``, each with a path that it turns off there."""
