"""Which piece fits beside which: attention between jigsaw pieces by how well their edges match."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.kernels import dispatch

SHARPNESS = (1.0, 3.0)
"""The exponents that learning begins with."""
HALF_LEVEL = (0.5 / 64) ** 2
"""Mismatch below which pixels in bytes cannot tell edges apart: half a grey level, squared."""
DEPTH = 2
"""How many rows of pixels at an edge are looked at."""


class EdgeAttention(nn.Module):
    r"""Tells each piece about the pieces that fit beside it: right, left, below and above.

    The pixels just across an edge are guessed from the two rows of pixels before it, from both sides. The
    mismatch :math:`D_{ij}` of piece i and a piece j beside it is the mean square of the difference of the two
    guesses, under a linear map that is learnt, and piece i listens to piece j with weight

    .. math:: w_{ij} \propto \frac{(D_{ij} + \epsilon)^{-\beta}}{\sum_k (D_{kj} + \epsilon)^{-\beta}}.

    Powers of the mismatch do not depend on the contrast of a picture, so that a faint sky is matched as
    sharply as a wall; the sum lets a piece that fits everywhere count for less. β is learnt, two of them for
    each direction. How well the best piece fits is told too: beside a piece at the border none does. After
    k ``rounds`` a piece has heard of those k steps away, and so where in the picture it lies.

    A dot product of normed tokens, which is what a transformer attends with, finds such small differences
    late. Compatibilities of this kind are what classical solvers are built on: Gallagher, "Jigsaw puzzles
    with pieces of unknown orientation", 2012.
    """

    def __init__(self, piece: int, channels: int, width: int, value: int = 16, rounds: int = 1) -> None:
        super().__init__()
        self.depth = min(DEPTH, piece)
        guess = torch.tensor([1.5, -0.5]) if self.depth > 1 else torch.ones(1)
        self.guess = nn.Parameter(guess.expand(2, 2, -1).clone())  # axis, side, row
        self.metric = nn.Parameter(torch.eye(piece * channels).expand(2, -1, -1).clone())
        self.log_sharpness = nn.Parameter(torch.tensor(SHARPNESS).log().expand(4, -1).clone())
        self.value = value
        self.rounds = nn.ModuleList(EdgeRound(width, value) for _ in range(rounds))

    def forward(self, tokens: Tensor, pixels: Tensor) -> Tensor:
        """Tokens ``(*batch, n, width)`` after all rounds; pixels ``(*batch, n, piece, piece, channels)``."""
        with torch.autocast(pixels.device.type, enabled=False):
            fit = self.fits(pixels.float())  # (*batch, directions, n, n)
            sharp = self.log_sharpness.float().exp()[:, :, None, None] * fit[..., None, :, :]
            best_fit = sharp.logsumexp(-1) / 8  # (*batch, directions, exponents, n), of about unit size
            weights = (sharp - sharp.logsumexp(-2, keepdim=True)).softmax(-1)
        tokens = tokens.float()  # what the rounds add up to stays in full precision under autocast
        best_fit = best_fit.movedim(-1, -3).flatten(-2)
        return dispatch.edge_rounds(
            tokens,
            weights,
            best_fit,
            self.rounds.parameters,
            message=self.value,
            plain=self._one_by_one,
        )

    def _one_by_one(self, tokens: Tensor, weights: Tensor, best_fit: Tensor) -> Tensor:
        for listen in self.rounds:
            tokens = listen(tokens, weights, best_fit)
        return tokens

    def fits(self, pixels: Tensor) -> Tensor:
        """How well piece j fits beside piece i, ``(*batch, 4, n, n)``: right, left, below, above.

        It is :math:`-\\log(D + \\epsilon)`, and low for a piece beside itself.
        """
        across = self._fit(pixels.transpose(-3, -2), 0)  # rows of pixels become columns
        down = self._fit(pixels, 1)
        return torch.stack([across, across.transpose(-1, -2), down, down.transpose(-1, -2)], -3)

    def _fit(self, pixels: Tensor, axis: int) -> Tensor:
        """How well piece j fits after piece i along the first axis of its pixels: ``(*batch, n, n)``."""
        last = pixels.flip(-3)[..., : self.depth, :, :].flatten(-2)
        first = pixels[..., : self.depth, :, :].flatten(-2)
        guess, metric = self.guess.float()[axis], self.metric.float()[axis]
        one = (guess[0][:, None] * last).sum(-2) @ metric
        other = (guess[1][:, None] * first).sum(-2) @ metric
        middle = one.mean(-2, keepdim=True)  # takes nothing from the difference, and digits from the squares
        one, other = one - middle, other - middle
        square = one.square().mean(-1)[..., :, None] + other.square().mean(-1)[..., None, :]
        mismatch = square - 2 / one.shape[-1] * (one @ other.transpose(-1, -2))
        itself = torch.eye(pixels.shape[-4], device=pixels.device, dtype=torch.bool)
        fit = -(mismatch.clamp(min=0) + HALF_LEVEL).log()
        return fit.masked_fill(itself, -20.0)


class EdgeRound(nn.Module):
    """One round of listening: a token takes in what the pieces beside it say, and how well they fit."""

    def __init__(self, width: int, value: int) -> None:
        super().__init__()
        self.value, mixes = value, 4 * len(SHARPNESS)
        self.norm = nn.LayerNorm(width)
        self.values = nn.Linear(width, 4 * value, bias=False)
        self.up = nn.Linear(width + mixes * value + mixes, width)
        self.down = nn.Linear(width, width)
        for linear in (self.values, self.up, self.down):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(self, tokens: Tensor, weights: Tensor, best_fit: Tensor) -> Tensor:
        """Weights ``(*batch, directions, exponents, n, n)``, and ``best_fit`` ``(*batch, n, mixes)``."""
        normed = self.norm(tokens)
        values = self.values(normed).unflatten(-1, (4, 1, self.value)).movedim(-4, -2)
        mixed = weights @ values  # (*batch, directions, exponents, n, value)
        heard = mixed.movedim(-2, -4).flatten(-3)
        return tokens + self.down(F.gelu(self.up(torch.cat([normed, heard, best_fit], -1))))
