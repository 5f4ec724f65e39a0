"""A mixture of Mallows laws over the lists of a catalogue, given the observed order."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from factorank.baselines.rankers.baseline import BaselineRanker, Grid
from factorank.data.ratings import Ratings, order_of
from factorank.distributions import Mallows
from factorank.distributions.fitting.dispersion import log_normaliser, solve

ROUNDS = 25
LONGEST = 20
"""Items of the lists that the mixture is fitted to, at most."""
USERS = 4_000
"""Users that it is fitted to, at most."""
LISTS = 6
"""Lists of each user that it is fitted to."""
PRIOR = 20.0
"""How many appearances at the mean each item is counted to have had in each component."""


class MallowsMixture(BaselineRanker):
    r"""Every user belongs to one of several components; each has a consensus of the catalogue and a spread.

    A Mallows law of a thousand items implies a law of a list of a few that has no closed form, and it cannot
    be fitted to such lists at this size. So the law here is that of the list: component c ranks any m items
    by Mallows around its consensus, restricted to them,

    .. math:: P_c(X) = \phi_c(m)^{d(X, \text{consensus}_c)} / Z_m(\phi_c(m)),

    with d the Kendall distance and :math:`\phi_c(m)` such that the expected share of pairs that disagree with
    the consensus is the same for every m, as it is for random lists of the same users. EM fits weights,
    consensus (by mean place, Borda's rule: Kemeny's is out of reach at this size, so the likelihood need not
    rise at every step) and spread to random lists of the training users, ties in them broken at random.

    Given the observed order of r items, the posterior of a component is proportional to its weight and to its
    probability of that order. Within a component unobserved items rank by its consensus, whatever the
    observations: exchanging two that disagree with it takes no order further from the consensus. So the score
    of an item is minus its expected place in the list,
    :math:`-\sum_c P(c \mid \text{observed}) E_c[\text{place}]`.

    Lu and Boutilier, "Effective sampling and learning for Mallows models with pairwise-preference data",
    2014 (for mixtures of Mallows laws from partial rankings).
    """

    name = "mallows-mixture"
    reads = "order"
    learned: ClassVar[Grid] = {"components": (1, 4, 16)}

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def learn(self, train: Ratings, components: int = 4) -> None:
        generator = torch.Generator(train.device).manual_seed(self.seed)
        n = min(LONGEST, int(train.lengths.median()))
        users = train.users_with(n)
        chosen = torch.randperm(len(users), generator=torch.Generator().manual_seed(self.seed))[:USERS]
        users = users[chosen.sort().values.to(users.device)]
        items, relevance = train.lists(n, users.repeat_interleave(LISTS), generator)
        listed = items.gather(1, order_of(relevance, generator)).cpu()  # the items of each list, best first
        self.weights, self.consensus, self.share = mixture(listed, train.item_count, components, self.seed)

    def _scores(self, items: Tensor, r: int, observed: Tensor, generator: torch.Generator | None) -> Tensor:
        listed = items.clamp(min=0).cpu()
        posterior = self.posterior(listed[:, :r].gather(1, observed.cpu()))
        places = torch.zeros(items.shape, dtype=torch.float64)
        for c, phi in enumerate(dispersions(self.share, items.shape[1])):
            rank = self.consensus[c][listed].argsort(dim=-1, descending=True, stable=True).argsort(-1)
            expected = Mallows(torch.arange(items.shape[1]), float(phi)).mean_ranks().double()
            places += posterior[:, c : c + 1] * expected[rank]
        return -places.float().to(items.device)

    def posterior(self, listed: Tensor) -> Tensor:
        """P(component | observed items ``(batch, r)``, best first), float64 ``(batch, components)``."""
        distance = disagreements(listed, self.consensus)
        return (log_probs(distance, self.share, listed.shape[1]) + self.weights.double().log()).softmax(1)


def mixture(listed: Tensor, item_count: int, components: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """EM on lists ``(users * LISTS, n)`` of items, best first, those of a user together: the weights
    ``(k,)``, for each component scores of all items ``(k, items)``, and the share of pairs that disagree."""
    n = listed.shape[1]
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand((len(listed) // LISTS, components), generator=generator) ** 4
    shares = shares / shares.sum(1, keepdim=True)
    for _ in range(ROUNDS if components > 1 else 1):
        each = shares.repeat_interleave(LISTS, 0)
        weights, consensus = shares.mean(0), consensus_scores(listed, each, item_count)
        distance = disagreements(listed, consensus)
        share = (each * distance).sum(0) / (each.sum(0) * max(n * (n - 1) / 2, 1))
        fit = log_probs(distance, share, n).view(-1, LISTS, components).sum(1)
        shares = (fit + weights.double().log()).softmax(1).float()
    return weights, consensus, share


def log_probs(distance: Tensor, share: Tensor, m: int) -> Tensor:
    """The log-probability, under each component, of lists of m items by their distances: ``(lists, k)``."""
    log_phi = np.log(np.maximum(dispersions(share, m), 1e-6))
    log_z = log_normaliser(-log_phi[:, None], np.arange(1, m + 1)[None]).sum(1)
    return distance * torch.from_numpy(log_phi) - torch.from_numpy(log_z)


def dispersions(share: Tensor, m: int) -> np.ndarray:
    """φ of Mallows laws of m items under which these shares ``(k,)`` of all pairs should disagree."""
    if m < 2:
        return np.ones(len(share))
    return solve(share.double().numpy() * (m * (m - 1) / 2), np.tile(np.arange(1.0, m + 1), (len(share), 1)))


def consensus_scores(listed: Tensor, shares: Tensor, item_count: int) -> Tensor:
    """By component, the mean height of each item over the lists ``(lists, n)`` where it stands, 1 at the top
    and -1 at the end, by the shares ``(lists, k)`` that lists have in the component: ``(k, items)``."""
    height = torch.linspace(1, -1, listed.shape[1]).expand(listed.shape).reshape(-1)
    sums, counts = torch.zeros((2, shares.shape[1], item_count))
    for c in range(shares.shape[1]):
        share = shares[:, c : c + 1].expand(listed.shape).reshape(-1)
        sums[c].index_add_(0, listed.reshape(-1), share * height)
        counts[c].index_add_(0, listed.reshape(-1), share)
    everybody = sums.sum(0) / counts.sum(0).clamp(min=1e-9)
    return (sums + PRIOR * everybody) / (counts + PRIOR)


def disagreements(listed: Tensor, consensus: Tensor) -> Tensor:
    """How many pairs of each list ``(lists, m)``, best first, each consensus ``(k, items)`` of scores puts
    the other way round: ``(lists, k)``."""
    from factorank.kernels.fitting import count_inversions

    total = np.empty((len(listed), len(consensus)), dtype=np.int64)
    count_inversions(listed.numpy(), consensus.numpy(), total)
    return torch.from_numpy(total)
