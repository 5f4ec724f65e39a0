"""How well the borders of pieces match: a learned score for every pair of pieces and sides."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from factorank.jigsaw.photographs.views import BORDER, FACING, RIM, Views

HALF_LEVEL = 0.5 / 64
"""A difference below half a grey level means nothing."""
NEVER = -1e4
"""The score of a piece beside itself."""
PAIRS = {"cuda": 1 << 17, "cpu": 1 << 10}
"""How many pairs of borders are compared at once when no gradient is needed: what fits the caches."""


class Matches(NamedTuple):
    """Scores of one side of every piece against the opposite side of every piece."""

    scores: Tensor
    """Logits ``(*batch, first, second)`` that the second border continues the first."""
    first_none: Tensor
    """Logits ``(*batch, first)`` that nothing continues the first border."""
    second_none: Tensor
    """Logits ``(*batch, second)`` that the second border continues nothing."""
    draft: Tensor
    """The scores before pairs compete with each other. Training asks them for the truth as well."""

    def after_first(self) -> Tensor:
        """Log-probabilities ``(*batch, first, second + 1)`` of what continues each first border."""
        return torch.cat([self.scores, self.first_none[..., None]], -1).log_softmax(-1)

    def before_second(self) -> Tensor:
        """Log-probabilities ``(*batch, second, first + 1)`` of what each second border continues."""
        scores = torch.cat([self.scores.transpose(-1, -2), self.second_none[..., None]], -1)
        return scores.log_softmax(-1)


Border = tuple[Tensor, Tensor, Tensor]
"""Features ``(*batch, n, t, features)``, log-gains and a summary of borders in one role."""


class BorderMatching(nn.Module):
    r"""Scores of all pairs of borders.

    A network of convolutions along the border gives features :math:`a_i(t)` of a border as the first one and
    :math:`b_j(t)` as the second. A pair is compared place by place: the rectified :math:`(a_i(t) + b_j(t))
    g_i h_j` with learned gains is mixed and averaged over t, and the logarithm of its mean square is taken
    besides, which does not depend on the contrast of the picture. Part of the features is linear in the
    pixels and computed in full precision: one grey level decides in a sky. Distances without learning,
    ``Views.steps``, are where the scores start.

    The pairs then compete: a score is seen beside the sum over all candidates of both borders.
    """

    def __init__(self, width: int = 96, features: int = 32, context: int = 64, channels: int = 8) -> None:
        super().__init__()
        self.features, self.channels = features, channels
        linear = torch.randn(features, BORDER, 3) * (3 * BORDER) ** -0.5
        # One map for each role, in which a border is the first or the second; they start as a difference.
        self.linear = nn.Parameter(torch.stack([linear, -linear]))
        self.start = nn.Conv1d(BORDER, width, 5, padding=2)
        self.context = nn.Linear(context, width)
        self.sides = nn.Parameter(torch.zeros(4, width))
        self.blocks = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.heads = nn.ModuleList(nn.Conv1d(width, features, 1) for _ in range(2))
        self.gains = nn.ModuleList(nn.Linear(width + 3, features) for _ in range(2))
        self.pooled = nn.ModuleList(nn.Linear(width, 64) for _ in range(2))
        self.mix = nn.Linear(features, features)
        self.pair = nn.Linear(2 * features + 2, 64)
        self.sharpness = nn.Parameter(torch.full((channels,), 3.0))
        self.score = nn.Linear(64, channels)
        self.compete = nn.Sequential(nn.Linear(3 * channels, 48), nn.GELU(), nn.Linear(48, 1))
        self.none = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * channels + 64, 32), nn.GELU(), nn.Linear(32, 1)) for _ in range(2)
        )
        with torch.no_grad():
            for head, gain in zip(self.heads, self.gains, strict=True):
                head.get_parameter("weight").mul_(0.1)
                weight = gain.get_parameter("weight").zero_()
                weight[:, -1] = -0.5  # starts as one over the root of each border's own change

    def upright(self, views: Views, context: Tensor) -> tuple[Matches, Matches]:
        """Matches of right with left borders, and of bottom with top borders, ``(*batch, n, n)`` each.

        ``context`` ``(*batch, n, 4, width)`` are features of the turned pieces.
        """
        borders, pieces = views.borders, views.borders.shape[-4]
        same = torch.eye(pieces, dtype=torch.bool, device=borders.device)
        across, down = (
            self._match(
                self._border(borders[..., first, :, :], context[..., first, :], self.sides[first], 0),
                self._border(borders[..., second, :, :], context[..., second, :], self.sides[second], 1),
                views.steps[..., axis, :, :, :],
                same,
            )
            for axis, (first, second) in enumerate(FACING)
        )
        return across, down

    def turned(self, views: Views, context: Tensor) -> Matches:
        """Matches of every side of every piece with every other, ``(*batch, 4 n, 4 n)``: symmetric."""
        borders, context = views.borders.flatten(-4, -3), context.flatten(-3, -2)
        piece = torch.arange(borders.shape[-3], device=borders.device) // 4
        first, second = (self._border(borders, context, None, role) for role in range(2))
        matches = self._match(first, second, views.steps[..., 0, :, :, :], piece[:, None] == piece)
        none = (matches.first_none + matches.second_none) / 2
        scores, draft = (x + x.transpose(-1, -2) for x in (matches.scores, matches.draft))
        return Matches(scores / 2, none, none, draft / 2)

    def _border(self, borders: Tensor, context: Tensor, side: Tensor | None, role: int) -> Border:
        # The second border is read in the view of the first: from the other end.
        borders = borders.flip(-1) if role else borders
        shape = borders.shape[:-2]
        flat = borders.flatten(0, -3)
        change = _change(flat)
        hidden = self.start(flat) + self.context(context).flatten(0, -2)[..., None]
        if side is not None:
            hidden = hidden + side[:, None]
        for block in self.blocks:
            hidden = hidden + block(F.gelu(hidden))
        hidden = F.gelu(hidden)
        with torch.autocast(borders.device.type, enabled=False):
            exact = F.conv1d(flat, self.linear[role], padding=1)
        features = exact + self.heads[role](hidden).float()
        mean = hidden.mean(-1)
        gain = self.gains[role](torch.cat([mean.float(), change], -1)).float()
        pooled = self.pooled[role](mean)
        features = features.transpose(-1, -2)
        return features.unflatten(0, shape), gain.unflatten(0, shape), pooled.unflatten(0, shape)

    def _match(self, first: Border, second: Border, steps: Tensor, same: Tensor) -> Matches:
        one = self._compare(first, second, steps)  # (*batch, first, second, channels)
        one = one - self.sharpness * steps.sum(-1, keepdim=True)
        one = one.masked_fill(same[..., None], NEVER)
        rows, columns = one.logsumexp(-2), one.logsumexp(-3)
        beside = [one, one - rows[..., :, None, :], one - columns[..., None, :, :]]
        seen = torch.cat([x.clamp(min=-40) / 4 for x in beside], -1)
        with torch.autocast(steps.device.type, enabled=False):
            scores = (self.compete(seen)[..., 0] + one[..., 0]).masked_fill(same, NEVER)
        none = []
        for role, (best, total, border) in enumerate(
            ((one.amax(-2), rows, first[2]), (one.amax(-3), columns, second[2]))
        ):
            seen = torch.cat([best / 4, total / 4, border.float()], -1)
            none.append(self.none[role](seen).float()[..., 0])
        return Matches(scores, none[0], none[1], one[..., 0])

    def _compare(self, first: Border, second: Border, steps: Tensor) -> Tensor:
        """Scores ``(*batch, first, second, channels)``, in parts that fit into memory."""
        if torch.is_grad_enabled() and self.training:
            result: Tensor = checkpoint(self._pairs, *first, *second, steps, use_reentrant=False)
            return result
        if torch.compiler.is_exporting():
            return self._pairs(*first, *second, steps)  # in one part: a graph holds for any number of pieces
        rows, batch = first[0].shape[-3], first[0].shape[:-3].numel()
        part = max(1, PAIRS.get(first[0].device.type, 1 << 15) // (max(1, batch) * second[0].shape[-3]))
        parts = []
        for start in range(0, rows, part):
            chosen = slice(start, start + part)
            features, gains, sums = first
            some = features[..., chosen, :, :], gains[..., chosen, :], sums[..., chosen, :]
            parts.append(self._pairs(*some, *second, steps[..., chosen, :, :]))
        return torch.cat(parts, -3)

    def _pairs(
        self,
        a: Tensor,
        gain_a: Tensor,
        sum_a: Tensor,
        b: Tensor,
        gain_b: Tensor,
        sum_b: Tensor,
        steps: Tensor,
    ) -> Tensor:
        gain = (gain_a[..., :, None, :] + gain_b[..., None, :, :]).clamp(-6, 6).exp()
        difference = (a[..., :, None, :, :] + b[..., None, :, :, :]) * gain[..., None, :]
        square = (difference.square().mean(-2) + 1e-4).log()
        mixed = F.relu(self.mix(F.relu(difference))).mean(-2)
        with torch.autocast(a.device.type, enabled=False):
            seen = self.pair(torch.cat([mixed.float(), square, steps], -1))
            seen = seen + sum_a.float()[..., :, None, :] + sum_b.float()[..., None, :, :]
            return self.score(F.gelu(seen))


def _change(borders: Tensor) -> Tensor:
    """Logarithms of the mean change of borders ``(borders, BORDER, t)``: across, along, and both."""
    depth = borders.unflatten(1, (-1, 3))
    across = (depth[:, RIM] - depth[:, RIM + 1]).abs().mean((-2, -1))
    along = depth[:, RIM].diff(dim=-1).abs().mean((-2, -1))
    return torch.stack([across, along, (across + along) / 2], -1).add(HALF_LEVEL).log()
