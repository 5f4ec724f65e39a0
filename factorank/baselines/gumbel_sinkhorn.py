"""Gumbel-Sinkhorn networks: Sinkhorn's algorithm turns a matrix of scores into almost a permutation."""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.types import _size

from factorank.assignment import best_assignment
from factorank.baselines.ordering import OrderingModel
from factorank.distributions.drawing import standard_gumbel
from factorank.errors import ModelError
from factorank.kernels.gpu.graphs import replayed
from factorank.models.network import evaluating
from factorank.permutations import cannot_check


class GumbelSinkhorn(OrderingModel):
    r"""A Gumbel-Sinkhorn network: the order of the pieces of a context.

    Every piece's token gives a score s for each place. In training, Gumbel noise g is added and Sinkhorn's
    algorithm turns the scores into an almost doubly stochastic matrix P, place by piece,

    .. math:: P = \mathrm{Sinkhorn}((s + g) / \tau).

    The loss is the squared error of the pieces that P puts at each place,
    :math:`\sum_i \| \sum_j P_{ij} x_j - x_{X_i} \|^2`, in mean over the numbers of a piece: it needs a
    context that is one tensor of pieces ``(*batch, n, …)``; bytes count as 0 to 1. The mode is the best
    assignment under s, and a sample that under s + g.

    See :class:`factorank.baselines.ordering.OrderingModel` for the first arguments and for orders.

    Args:
        temperature: τ of Sinkhorn's algorithm, in training.
        iterations: its rounds, each over the rows and then the columns.
        gumbel: the scale of the noise, in training and in samples.

    Mena, Belanger, Linderman and Snoek, "Learning latent permutations with Gumbel-Sinkhorn networks", 2018,
    https://arxiv.org/abs/1802.08665.

    >>> import factorank as fr
    >>> numbers = torch.rand(64, 4, 1)
    >>> model = GumbelSinkhorn(4, encoder=torch.nn.Linear(1, 16), width=16, depth=1, heads=2)
    >>> result = fr.train(model, (numbers.argsort(-2).squeeze(-1), numbers), steps=3, device="cpu")
    >>> model.mode(numbers).shape, model.sample(numbers, (10,)).shape
    (torch.Size([64, 4]), torch.Size([10, 64, 4]))
    """

    kind: ClassVar[str] = "gumbel-sinkhorn"

    def __init__(
        self,
        *args: Any,
        temperature: float = 1.0,
        iterations: int = 20,
        gumbel: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if not temperature > 0 or iterations < 1 or not gumbel >= 0:
            raise ModelError(
                "the temperature is above 0, the iterations are 1 or more and the scale of the noise is 0 or"
                f" more, not {temperature=}, {iterations=}, {gumbel=}"
            )
        self.temperature, self.iterations, self.gumbel = temperature, iterations, gumbel

    def scores(self, tokens: Tensor) -> Tensor:
        """The scores s, place by piece, ``(*batch, n, n)``, of tokens ``(*batch, n, width)``."""
        rows = tokens.reshape(-1, self.n, self.width)
        scores: Tensor = self.head(self.network(rows))  # piece by place
        return scores.transpose(-1, -2).view(*tokens.shape[:-2], self.n, self.n)

    def noise(
        self, batch: torch.Size, *, device: torch.device | str, generator: torch.Generator | None = None
    ) -> tuple[Tensor, ...]:
        # With generator=None in the call the compiler refuses batches of any size.
        options: dict[str, Any] = {"device": device} | ({} if generator is None else {"generator": generator})
        return (torch.rand((*batch, self.n, self.n), **options),)

    def _loss(self, order: Tensor, tokens: Tensor, context: Any, noise: tuple[Tensor, ...]) -> Tensor:
        if not isinstance(context, Tensor) or context.shape[: order.ndim] != order.shape:
            shown = tuple(context.shape) if isinstance(context, Tensor) else type(context).__name__
            raise ModelError(f"the loss takes one tensor of pieces {(*order.shape, '…')}, not {shown}")
        pieces = context.reshape(*order.shape, context.shape[order.ndim :].numel()).float()
        pieces = pieces / 255 if context.dtype == torch.uint8 else pieces
        noisy = self.scores(tokens) + self.gumbel * standard_gumbel(noise[0])
        log_matrix = sinkhorn(noisy / self.temperature, self.iterations, check=False)
        with torch.autocast(order.device.type, enabled=False):
            placed = log_matrix.exp() @ pieces
        target = pieces.gather(-2, order[..., None].expand_as(pieces))
        return (placed - target).square().mean(-1).sum(-1)

    @torch.no_grad()
    def sample(
        self, context: Any, sample_shape: _size = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Orders ``(*sample_shape, *batch, n)``: the best assignment under scores with fresh noise."""
        with evaluating(self):
            scores = self.scores(self.tokens(context))
        uniform = torch.rand((*sample_shape, *scores.shape), device=scores.device, generator=generator)
        return best_assignment(scores + self.gumbel * standard_gumbel(uniform))

    @torch.no_grad()
    def mode(self, context: Any) -> Tensor:
        """The best assignment under the scores: orders ``(*batch, n)``."""
        with evaluating(self):
            return best_assignment(self.scores(self.tokens(context)))

    @torch.no_grad()
    def solve(self, context: Tensor, *, beam: int | None = None) -> Tensor:
        def scores(pieces: Tensor) -> Tensor:
            return self.scores(self.tokens(pieces))

        with evaluating(self):
            return best_assignment(replayed(self, "scores", scores, context, len(context) * self.n))

    def config(self) -> dict[str, Any]:
        own = {"temperature": self.temperature, "iterations": self.iterations, "gumbel": self.gumbel}
        return super().config() | own


def sinkhorn(scores: Tensor, iterations: int = 20, check: bool = True) -> Tensor:
    """The logarithm of the matrix that Sinkhorn's algorithm gives for ``exp(scores)``: ``(*batch, n, n)``.

    Rows and then columns are divided by their sums, again and again; the limit is doubly stochastic. For
    scores / τ with τ to 0, and as many iterations as it takes, it becomes the best assignment's permutation
    matrix. Sinkhorn, "A relationship between arbitrary positive matrices and doubly stochastic matrices",
    1964. Scores of −∞ stay out where every row and column has others; ``check=False`` does not look.

    >>> sinkhorn(torch.tensor([[2.0, 0.0], [0.0, 0.0]])).exp()
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """
    if check and (scores.dim() < 2 or scores.shape[-1] != scores.shape[-2] or not scores.is_floating_point()):
        kind = f"{scores.dtype} of shape {tuple(scores.shape)}"
        raise ModelError(f"scores must be floating, (*batch, n, n), not {kind}", parameter="scores")
    if check and iterations < 0:
        raise ModelError(f"iterations must be at least 0, not {iterations}", parameter="iterations")
    log_matrix = scores
    for _ in range(iterations):
        log_matrix = log_matrix - log_matrix.logsumexp(-1, keepdim=True)
        log_matrix = log_matrix - log_matrix.logsumexp(-2, keepdim=True)
    if check and not cannot_check(scores):
        _refuse(scores.isnan() | scores.isposinf(), "must be less than infinity")
        _refuse(log_matrix.isnan(), "must leave no row or column empty")
    return log_matrix


def _refuse(wrong: Tensor, problem: str) -> None:
    if bool(wrong.any()):
        matrix = int(wrong.flatten(0, -3).any((-1, -2)).nonzero()[0]) if wrong.dim() > 2 else 0
        raise ModelError(f"scores {problem}, unlike those of matrix {matrix}", parameter="scores")
