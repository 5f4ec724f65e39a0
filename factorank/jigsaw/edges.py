"""Attention between jigsaw pieces by how well their edges match."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.kernels import dispatch

SHARPNESS = (1.0, 3.0)
"""The exponents β at the start of training."""
HALF_LEVEL = (0.5 / 64) ** 2
"""The ε below which a mismatch of bytes means nothing: half a grey level, squared."""
DEPTH = 2
"""How many rows of pixels at an edge are compared."""


class EdgeAttention(nn.Module):
    r"""Attention from each piece to the pieces that fit beside it: right, left, below and above.

    The pixels just across an edge are extrapolated from the two rows of pixels before it, from both sides.
    The mismatch :math:`D_{ij}` of piece i and a piece j beside it is the mean square of the difference of the
    two extrapolations, under a learnt linear map. Piece i attends to piece j with weight

    .. math:: w_{ij} \propto \frac{(D_{ij} + \epsilon)^{-\beta}}{\sum_k (D_{kj} + \epsilon)^{-\beta}}.

    Powers of the mismatch do not depend on the contrast of a picture, so a faint sky is matched as sharply as
    a wall. The sum gives less weight to a piece that fits everywhere. Each direction has two learnt β. A
    token also gets the fit of its best neighbour, which is low for a piece at the border. After k ``rounds``
    a token depends on the pieces k steps away, and so on its place in the picture.

    The dot product of normed tokens, by which a transformer attends, learns such small differences late.
    Classical solvers are built on compatibilities of this kind: Gallagher, "Jigsaw puzzles with pieces of
    unknown orientation", 2012.
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
            tokens, weights, best_fit, self.rounds.parameters, message=self.value, plain=self._one_by_one
        )

    def _one_by_one(self, tokens: Tensor, weights: Tensor, best_fit: Tensor) -> Tensor:
        for edge_round in self.rounds:
            tokens = edge_round(tokens, weights, best_fit)
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
        after = (guess[0][:, None] * last).sum(-2) @ metric
        before = (guess[1][:, None] * first).sum(-2) @ metric
        middle = after.mean(-2, keepdim=True)  # keeps the difference, and the squares small
        after, before = after - middle, before - middle
        square = after.square().mean(-1)[..., :, None] + before.square().mean(-1)[..., None, :]
        mismatch = square - 2 / after.shape[-1] * (after @ before.transpose(-1, -2))
        itself = torch.eye(pixels.shape[-4], device=pixels.device, dtype=torch.bool)
        fit = -(mismatch.clamp(min=0) + HALF_LEVEL).log()
        return fit.masked_fill(itself, -20.0)


class EdgeRound(nn.Module):
    """One round: a token is updated from the values of the pieces beside it, and from how well they fit."""

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
        messages = mixed.movedim(-2, -4).flatten(-3)
        return tokens + self.down(F.gelu(self.up(torch.cat([normed, messages, best_fit], -1))))
