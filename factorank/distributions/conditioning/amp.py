"""AMP: complete partial rankings by repeated insertion (Lu and Boutilier)."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.factorized import FactorizedDistribution
from factorank.distributions.partial_orders import PartialOrders
from factorank.errors import DistributionError
from factorank.permutations import inverse


class AMP(PermutationDistribution):
    r"""A law on the orders that agree with each voter's partial order, close to a RIM given that order.

    The items of the reference are inserted one after the other, as under the RIM (a Mallows law is one), but
    only into the slots that the partial order allows: behind all items that must be above and before all that
    must be below. The probabilities of these slots are renormalised. Transitivity leaves at least one slot,
    so that the support is the set of linear extensions of the partial order (as far as the RIM reaches).

    ``sample`` and ``log_prob`` are those of this law, which is not the posterior
    :math:`P(x \mid \text{partial order})` itself. It is a proposal for it: the importance weight
    :math:`P(x)/Q(x)`, the product of the masses of the allowed slots, is at most one, and its mean over draws
    is an unbiased estimate of the probability that the RIM gives the partial order.

    Batch shape ``(voters,)``. Runs on the CPU, whatever device the partial orders are on; no gradients.

    Lu and Boutilier, "Effective sampling and learning for Mallows models with pairwise-preference data",
    JMLR 2014.

    Args:
        law: an unweighted Mallows, a generalized Mallows or a RIM, without batch dimensions.
        partial: one partial order a voter.

    >>> import factorank as fr
    >>> partial = fr.PartialOrders.from_orders(torch.tensor([[2, 1, -1]]), unranked="incomparable")
    >>> amp = AMP(fr.Mallows(torch.arange(3), phi=0.5), partial)
    >>> orders = amp.sample((1000,), generator=torch.Generator().manual_seed(0))
    >>> orders.shape, partial.agrees(orders).all()
    (torch.Size([1000, 1, 3]), tensor(True))
    """

    def __init__(self, law: PermutationDistribution, partial: PartialOrders) -> None:
        if law.batch_shape:
            raise DistributionError(f"AMP takes a law without batch dimensions, not {tuple(law.batch_shape)}")
        if law.n != partial.n:
            raise DistributionError(f"AMP has a law of {law.n} items and partial orders of {partial.n}")
        self.law, self.partial = law, partial
        self._insertions = insertion_table(law)
        super().__init__((len(partial),), partial.n)

    @property
    def device(self) -> torch.device:
        return self.partial.above.device

    def _parameters(self) -> dict[str, Any]:
        return {"law": self.law, "partial": self.partial}

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        raise DistributionError("AMP has one law for each voter; it does not expand")

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        return self.draw(shape.numel(), generator=generator)[0].view(*shape, *self.batch_shape, self.n)

    def draw(self, samples: int, *, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Orders ``(samples, voters, n)`` and their log-probabilities ``(samples, voters)``, in one pass."""
        nothing = np.empty((samples, len(self.partial), 0), dtype=np.int64)
        orders, log_proposal = self._complete(nothing, new_seed(generator))
        return orders.to(self.device), log_proposal.to(self.device)

    def _log_prob(self, order: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(order.shape[:-1], self.batch_shape)
        ranks = inverse(order, check=False).expand(*shape, self.n).reshape(-1, len(self.partial), self.n)
        _, log_proposal = self._complete(ranks.cpu().contiguous().numpy(), seed=0)
        return log_proposal.to(order.device).view(shape)

    def _complete(self, ranks: np.ndarray, seed: int) -> tuple[Tensor, Tensor]:
        """Completions and their log-probabilities: those with these ranks ``(samples, voters, n or 0)``."""
        from factorank.kernels.completions import fill_completions

        orders = np.empty((*ranks.shape[:2], self.n), dtype=np.int64)
        log_proposal = np.zeros(ranks.shape[:2])
        if orders.size:
            fill_completions(
                relations(self.partial.above), *self._insertions, ranks, seed, orders, log_proposal
            )
        return torch.from_numpy(orders), torch.from_numpy(log_proposal)


def relations(above: Tensor) -> np.ndarray:
    """Int8 ``(voters, n, n)``: at ``[v, a, b]`` 1 where voter v has b above a, 2 where below, else 0."""
    return (above.transpose(1, 2).to(torch.int8) + 2 * above.to(torch.int8)).cpu().contiguous().numpy()


def insertion_table(law: PermutationDistribution) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a law that is a RIM: reference ``(n,)``, cumulated insertion probabilities ``(n, n + 1)``, which
    start at 0, and their logarithms ``(n, n)``, not cumulated."""
    if not isinstance(law, FactorizedDistribution) or "insertion" not in law.code_names:
        raise DistributionError(
            "AMP inserts as a RIM does: it takes Mallows without weights, GeneralizedMallows or RIM, not"
            f" {law!r}"
        )
    logs = law._digits("insertion").detach().to("cpu", torch.float64).contiguous().numpy()
    reference = law._reference.detach().to("cpu", torch.int64).contiguous().numpy()
    return reference, cumulated(logs), logs


def cumulated(logs: np.ndarray) -> np.ndarray:
    """The sums of the probabilities before each slot, from their logarithms ``(*batch, n, n)``."""
    return np.concatenate([np.zeros_like(logs[..., :1]), np.exp(logs).cumsum(-1)], -1)


def effective_sample_size(log_weights: Tensor, dim: int = 0) -> Tensor:
    r"""Kish's :math:`(\sum w)^2 / \sum w^2` along ``dim``: how many equal weights would say as much.

    >>> effective_sample_size(torch.tensor([0.0, 0.0, -torch.inf, -torch.inf]))
    tensor(2.)
    """
    return (2 * log_weights.logsumexp(dim) - (2 * log_weights).logsumexp(dim)).exp().nan_to_num(0.0)


def new_seed(generator: torch.Generator | None) -> int:
    """A seed for the compiled loops, drawn from ``generator`` or torch's own."""
    device = "cpu" if generator is None else generator.device
    return int(torch.randint(2**62, (), generator=generator, device=device))
