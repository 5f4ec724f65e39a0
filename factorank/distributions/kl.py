"""Kullback-Leibler divergences between laws: in closed form, by enumeration, or estimated."""

import math
from contextlib import suppress

import torch
from torch import Tensor
from torch.distributions import register_kl

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.factorized import FactorizedDistribution, code_sizes, expected, times_log
from factorank.distributions.mallows import Mallows
from factorank.distributions.parameters import compact, permutation, relative_to
from factorank.distributions.places import insertion_precedence
from factorank.distributions.uniform import Uniform
from factorank.errors import DistributionError


@register_kl(PermutationDistribution, PermutationDistribution)
def _kl(p: PermutationDistribution, q: PermutationDistribution) -> Tensor:
    """The divergence of q from p in nats, ``(*batch,)``.

    Exact in closed form or, where all orders can be listed, by their probabilities. Else, where p estimates
    its entropy or draws more than the permutations (inline codes), the estimate that
    ``p.estimate("kl_divergence", other=q)`` gives with its error.

    Closed forms: any law from :class:`Uniform`, by its entropy; the uniform law from a factorized one; two
    factorized laws with one code and one reference, position by position; and a factorized law from a
    Mallows law around another order, through the expected distance.
    """
    if p.n != q.n:
        raise DistributionError(f"a divergence is between laws over as many items, not {p.n} and {q.n}")
    wider = [law for law in (p, q) if law.support is not permutation]
    if len(wider) == 1:
        raise DistributionError(
            f"a divergence is between laws of the same orders, but {wider[0]!r} can leave the permutations,"
            " or has lists that may be shorter"
        )
    if wider:
        return p.estimate("kl_divergence", other=q).value
    shape = torch.broadcast_shapes(p.batch_shape, q.batch_shape)
    if isinstance(q, Uniform):
        with suppress(DistributionError):  # an entropy that is neither exact nor estimated
            return (math.lgamma(q.n + 1) - p.entropy()).expand(shape)
    if isinstance(q, FactorizedDistribution):
        if isinstance(p, Uniform):
            # Whatever the reference, the digits of a uniform order are uniform on their domains.
            sizes = code_sizes(q.code_name, q.n, q.device)[:, None]
            possible = torch.arange(q.n, device=q.device) < sizes
            uniform = torch.where(possible, -sizes.to(q._table.dtype).log(), -math.inf)
            return _from_tables(uniform, q._table).expand(shape)
        if isinstance(p, FactorizedDistribution):
            if bool((compact(p._reference, 1) == compact(q._reference, 1)).all()):
                for name in p.code_names:
                    if name in q.code_names:
                        return _from_tables(p._digits(name), q._digits(name)).expand(shape)
            elif isinstance(q, Mallows) and q.weights is None and "insertion" in p.code_names:
                cross_entropy = q._log_normaliser - times_log(expected_kendall(p, q.central), q.phi)
                return cross_entropy - p.entropy()
    if p.enumerable and q.exact:
        orders, log_p = (p if p.batch_shape == shape else p.expand(shape))._enumerated("the divergence")
        rows = orders.view(len(orders), *(1 for _ in shape), p.n)
        more = torch.where(log_p == -math.inf, 0, log_p - q._log_prob(rows).expand(len(orders), *shape))
        return (log_p.exp() * more).sum(0)
    if "entropy" in p.estimates:
        return p.estimate("kl_divergence", other=q).value
    raise NotImplementedError(
        f"there is no closed form for the divergence of {q!r} from {p!r}, and no exact sum over all orders;"
        " p.estimate('kl_divergence', other=q) estimates it, with an error, where q has a log_prob"
    )


def expected_kendall(law: FactorizedDistribution, order: Tensor) -> Tensor:
    """The expected Kendall distance of a draw from a RIM, Mallows or generalized Mallows law to ``order``.

    ``(*batch,)``. Sums over the pairs of items the probability that the law has them the other way round.

    >>> import factorank as fr
    >>> expected_kendall(fr.Mallows(torch.arange(3), phi=1.0), torch.arange(3))
    tensor(1.5000)
    """
    if "insertion" not in law.code_names:
        raise DistributionError(f"{law!r} is no repeated insertion model: the distance has no closed form")
    before = insertion_precedence(law._digits("insertion", log=False))
    places = relative_to(order, law._reference)  # where the items of the reference stand in `order`
    agree = places[..., :, None] < places[..., None, :]
    pairs = torch.ones(law.n, law.n, dtype=torch.bool, device=before.device).triu(1)
    return torch.where(pairs, torch.where(agree, 1 - before, before), 0.0).sum((-1, -2))


def _from_tables(p_table: Tensor, q_table: Tensor) -> Tensor:
    """The divergence of two laws with independent digits, from their log-probabilities."""
    return expected(*torch.broadcast_tensors(p_table, p_table - q_table))
