"""The base class of the neural baselines: an encoder of the pieces, a network over their tokens, files."""

import os
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.errors import ModelError
from factorank.models.context import build_context, context_config
from factorank.models.saving import read_module, rebuilt, write_module
from factorank.models.transformer import Transformer
from factorank.permutations import check_integer, check_permutation

FORMAT, VERSION = "factorank-baseline", 1


class OrderingModel(nn.Module):
    """A model that puts the pieces of its context into order.

    The context lists n pieces in any arrangement, ``(*batch, n, …)``, and ``order[i]`` is the index in this
    list of the piece that belongs at place i: ``context[order]`` is the list put in order. (In a jigsaw
    puzzle the places are the slots; the slot of each piece is ``factorank.inverse(order)``.)

    :func:`factorank.train` trains the subclasses, which add ``sample`` and ``mode``.

    Args:
        n: the number of pieces.
        encoder: a module from the context to tokens ``(*batch, n, width)``, one for each piece.
        width, depth, heads, dropout: of the transformer over these tokens.
    """

    kind: ClassVar[str]
    """The name of the class in the files of a model."""
    default_beam: ClassVar[int | None] = None
    """The width of the beam of :meth:`solve` unless another is passed; None for models without a beam."""

    def __init__(
        self,
        n: int,
        encoder: nn.Module,
        width: int = 128,
        depth: int = 7,
        heads: int = 8,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ModelError(f"a model orders at least 1 piece, not {n!r}")
        if width % heads or depth < 1:
            raise ModelError(
                f"the width is a multiple of the heads, the depth 1 or more, not {width=}, {heads=}, {depth=}"
            )
        self.n, self.width, self.depth, self.heads, self.dropout = n, width, depth, heads, dropout
        self.encoder = encoder
        self.network = Transformer(width, depth, heads, dropout)
        self.head = ScoreHead(width, n)

    def noise(
        self, batch: torch.Size, *, device: torch.device | str, generator: torch.Generator | None = None
    ) -> tuple[Tensor, ...]:
        """The random numbers of :meth:`loss` for a batch of that shape, by row.

        For a compiled loss, which cannot take a generator: draw them outside and pass them in.
        """
        raise NotImplementedError

    def loss(
        self,
        order: Tensor,
        context: Any,
        *,
        generator: torch.Generator | None = None,
        noise: tuple[Tensor, ...] | None = None,
    ) -> Tensor:
        """The loss of each order ``(*batch, n)`` given its context: ``(*batch,)``.

        Tensor operations only, no synchronisation: it can be compiled whole and captured in a CUDA graph.
        Random numbers come from the generator, unless :meth:`noise` drew them before. Orders are checked on
        the CPU when not compiled; elsewhere rows with items outside the range give NaN.
        """
        tokens = self.tokens(context)
        batch = tokens.shape[:-2]
        check_integer(order, "the model takes orders")
        if order.shape != (*batch, self.n):
            raise ModelError(
                f"the model orders {self.n} pieces and the context has the batch shape {tuple(batch)},"
                f" but the orders have shape {tuple(order.shape)}"
            )
        if order.device.type == "cpu" and not torch.compiler.is_compiling():
            check_permutation(order, "the model takes")
        order = order.to(torch.int64)
        fault = ((order < 0) | (order >= self.n)).any(-1)
        if noise is None:
            noise = self.noise(batch, device=order.device, generator=generator)
        losses = self._loss(order.clamp(0, self.n - 1), tokens, context, noise)
        return torch.where(fault, torch.nan, losses)

    def _loss(self, order: Tensor, tokens: Tensor, context: Any, noise: tuple[Tensor, ...]) -> Tensor:
        """:meth:`loss` of orders inside the range, with the tokens of the context and all random numbers."""
        raise NotImplementedError

    def forward(self, order: Tensor, context: Any, **options: Any) -> Tensor:
        """The same as :meth:`loss`: wrappers that hook into ``forward`` train through it."""
        return self.loss(order, context, **options)

    @property
    def nfe(self) -> int:
        """How many network evaluations :meth:`solve` takes."""
        return 1

    def solve(self, context: Tensor, *, beam: int | None = None) -> Tensor:
        """The modes ``(batch, n)`` of contexts that are one tensor ``(batch, n, …)``.

        On a GPU the work is replayed when contexts of that shape come again.
        """
        raise NotImplementedError

    def tokens(self, context: Any) -> Tensor:
        """The encoder's tokens ``(*batch, n, width)`` of a context."""
        tokens = self.encoder(context)
        if not isinstance(tokens, Tensor) or tokens.ndim < 2 or tokens.shape[-2:] != (self.n, self.width):
            shape = tuple(tokens.shape) if isinstance(tokens, Tensor) else type(tokens).__name__
            raise ModelError(
                f"{type(self.encoder).__name__} gave {shape}, not tokens (*batch, {self.n}, {self.width}),"
                " one for each piece"
            )
        return tokens

    def config(self) -> dict[str, Any]:
        """The arguments that rebuild the model, without its weights, as JSON can hold them."""
        sizes = {name: getattr(self, name) for name in ("n", "width", "depth", "heads", "dropout")}
        return sizes | {"encoder": context_config(self.encoder)}

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``config.json`` into a folder, both or neither."""
        write_module(self, folder, FORMAT, VERSION, {"kind": self.kind, **self.config()})

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], encoder: nn.Module | None = None) -> Self:
        """Load what :meth:`save_pretrained` wrote, in eval mode.

        An encoder is rebuilt from its registered name (:func:`factorank.register_context`), or passed in.
        ``OrderingModel.from_pretrained`` loads a model of any kind.
        """
        folder = Path(folder)
        wanted = ("kind", "n", "encoder")
        settings, weights = read_module(folder, FORMAT, VERSION, wanted, "a baseline of factorank")
        kind = settings.pop("kind")
        kinds = {each.kind: each for each in (cls.__subclasses__() if cls is OrderingModel else [cls])}
        if kind not in kinds:
            raise ModelError(f"{folder} holds a model of kind {kind!r}, not {' or '.join(map(repr, kinds))}")
        described = settings.pop("encoder")
        return rebuilt(
            lambda: kinds[kind](encoder=encoder or build_context(described), **settings), weights, folder
        )


class ScoreHead(nn.Module):
    """Scores ``(*rows, n)`` of tokens ``(*rows, width)``, in float32 also under autocast."""

    def __init__(self, width: int, n: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, n)
        nn.init.normal_(self.linear.weight, std=0.1 * width**-0.5)  # near the uniform law at first
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(self.norm(hidden.float()), self.linear.weight, self.linear.bias)
