"""What the ratings of some items say of others, if users and items are points: a Gaussian posterior."""

import torch
from torch import Tensor, nn


class Taste(nn.Module):
    r"""Expected ratings of all items of a list, and their spread, from those that are known.

    .. math:: y_i = m_i + b + p \cdot q_i + \varepsilon, \quad b \sim N(0, \tau^2), \quad p \sim N(0, I),
        \quad \varepsilon \sim N(0, \sigma^2)

    with the means m and the factors q of the items, which do not learn. A network has this in its tokens
    from the start, instead of learning to solve equations. Where only the order of some items is known,
    the i-th best of r stands for a rating of ``levels`` at that relative place.

    Args:
        items: how many items there are.
        rank: the number of factors.
        levels: how many numbers say what the ratings of a list are, best first.
    """

    def __init__(self, items: int, rank: int, levels: int) -> None:
        super().__init__()
        self.register_buffer("items", torch.zeros(items + 1, 1 + rank))  # the last is an unknown item
        self.register_buffer("levels", torch.zeros(levels))
        self.register_buffer("noise", torch.ones(2))
        self.register_buffer("typical", torch.zeros(()))  # the deviation of an item of which nothing is known

    items: Tensor
    levels: Tensor
    noise: Tensor
    typical: Tensor

    @property
    def rank(self) -> int:
        return self.items.shape[-1] - 1

    def set(self, means: Tensor, factors: Tensor, levels: Tensor, noise: float, bias: float) -> None:
        """Take means ``(items,)``, factors ``(items, rank)``, the ratings of a list, best first, and the
        variances of the noise and of the bias."""
        self.items[:-1].copy_(torch.cat([means[:, None], factors], 1))
        self.items[-1, 0] = means.mean()
        self.levels.copy_(levels)
        self.noise.copy_(torch.tensor([noise, bias]))
        self.typical.copy_(factors.norm(dim=-1).mean() / noise**0.5)

    @torch.no_grad()
    def forward(self, ids: Tensor, first: Tensor | None, rated: Tensor | None) -> Tensor:
        """``(*batch, n, 2)``: what is expected of items ``(*batch, n)`` beyond their means and the bias, and
        how sure that is (its deviation), both in units of the noise.

        ``first (*batch,)`` items stand in the user's order, best first; ``rated (*batch, n)`` are ratings,
        NaN where they are not known. Ids from the number of items on are unknown items. In float32, whatever
        the model is in.
        """
        with torch.autocast(ids.device.type, enabled=False):
            noise, bias = self.noise.float()
            sigma, last = noise.sqrt(), len(self.items) - 1
            item = self.items[torch.where(ids < 0, last, ids).long().clamp(max=last)].float()
            mean, factors = item[..., 0], item[..., 1:] / sigma
            values = torch.full_like(mean, torch.nan) if rated is None else rated.float()
            if first is not None:
                values = torch.where(values.isnan(), self._by_place(first, ids.shape[-1]), values)
            known = ~values.isnan()
            left = torch.where(known, (values - mean) / sigma, 0)
            design = torch.cat([(bias.sqrt() / sigma).expand_as(mean)[..., None], factors], -1)
            here = design * known[..., None]
            unit = torch.eye(self.rank + 1, device=ids.device, dtype=here.dtype)
            spread = inverse(here.mT @ here + unit)
            point = spread @ (here.mT @ left[..., None])
            expected = (factors @ point[..., 1:, :]).squeeze(-1)
            deviation = ((factors @ spread[..., 1:, 1:]) * factors).sum(-1).clamp(min=0).sqrt()
            deviation = torch.where(ids >= last, self.typical.float(), deviation)
            return torch.stack([expected, deviation], -1)

    def _by_place(self, first: Tensor, n: int) -> Tensor:
        """What the ratings of the first items may be, ``(*batch, n)``, NaN for the others."""
        place, count = torch.arange(n, device=first.device), first[..., None]
        at = ((place + 0.5) / count.clamp(min=1) * len(self.levels) - 0.5).clamp(0, len(self.levels) - 1)
        low = at.long()
        high = (low + 1).clamp(max=len(self.levels) - 1)
        levels = self.levels.float()
        level = levels[low] + (at - low) * (levels[high] - levels[low])
        return torch.where(place < count, level, torch.nan)


def inverse(matrices: Tensor) -> Tensor:
    """The inverse of small positive definite matrices ``(*batch, d, d)``, by a sweep of each row.

    Plain operations on whole batches, so that a CUDA graph can record them; the library's solvers may wait
    for the device.

    >>> inverse(torch.tensor([[2.0, 1.0], [1.0, 1.0]]))
    tensor([[ 1., -1.],
            [-1.,  2.]])
    """
    swept = matrices.clone()
    for k in range(matrices.shape[-1]):
        column = swept[..., k].clone()
        pivot = column[..., k, None].clone()
        row = column / pivot
        swept -= column[..., :, None] * row[..., None, :]
        swept[..., k, :] = swept[..., k] = row
        swept[..., k, k] = -1 / pivot[..., 0]
    return -swept
