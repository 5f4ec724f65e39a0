"""The Plackett-Luce law: choose the best item, then the best of the rest, and so on."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, overload

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from factorank.distributions.base import PermutationDistribution
from factorank.distributions.davidson_luce import DavidsonLuce, fit_davidson_luce
from factorank.distributions.drawing import log_, map_uniform
from factorank.distributions.fitting.ballots import Votes, read_ballots
from factorank.distributions.fitting.checks import Unranked, check_counts, check_strength, check_unranked
from factorank.distributions.fitting.choice_fit import fit_choices, fit_features
from factorank.distributions.fitting.choices import choices_of, read_choices, tied_above
from factorank.distributions.fitting.errors import FitError
from factorank.distributions.fitting.mixture import MIXTURE_EM, fit_by_em
from factorank.distributions.fitting.mixture_families import PlackettLuceFamily
from factorank.distributions.parameters import as_reals, compact, finite_vector
from factorank.errors import DistributionError

LARGEST_SUBSETS = 12
"""The largest n for which entropy and marginals are summed exactly over the 2^n sets of items left."""


class PlackettLuce(PermutationDistribution):
    r"""Plackett and Luce's law.

    .. math:: P(X) = \prod_{i=0}^{n-1} \frac{\exp s_{X_i}}{\sum_{j \ge i} \exp s_{X_j}}

    with one real score s for each item. Adding a constant to all scores changes nothing. Entropy and
    marginals have no closed form: they are exact up to n = 12, by summing over the sets of items left, and
    estimated when ``samples=`` is given. The mean ranks are exact for every n.

    Args:
        logits: the scores, ``(*batch, n)``, finite.

    Plackett, "The analysis of permutations", 1975; Luce, "Individual choice behavior", 1959.

    >>> law = PlackettLuce(torch.tensor([0.0, 1.0, 2.0]))
    >>> law.log_prob(torch.tensor([[2, 1, 0], [0, 1, 2]])).exp()
    tensor([0.4863, 0.0242])
    >>> law.mode
    tensor([2, 1, 0])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"logits": finite_vector}
    logits: Tensor
    coefficients: Tensor | None = None
    """Of the features of the items, where logits were fitted as ``features @ coefficients``."""

    def __init__(self, logits: Sequence[Any] | Tensor, *, validate_args: bool | None = None) -> None:
        self.logits = as_reals(logits)
        if self.logits.ndim == 0:
            raise DistributionError("PlackettLuce takes logits (*batch, n), not a single number")
        super().__init__(self.logits.shape[:-1], self.logits.shape[-1], validate_args)

    @overload
    @classmethod
    def fit(
        cls,
        orders: Votes,
        weights: Tensor | None = None,
        *,
        unranked: Unranked | None = None,
        items: int | None = None,
        ties: Literal[False] = False,
        features: Any = None,
        penalty: float = 0.0,
        max_iterations: int = 100,
        tolerance: float = 1e-9,
    ) -> "PlackettLuce": ...

    @overload
    @classmethod
    def fit(
        cls,
        orders: Votes,
        weights: Tensor | None = None,
        *,
        unranked: Unranked | None = None,
        items: int | None = None,
        ties: Literal[True],
        features: Any = None,
        penalty: float = 0.0,
        max_iterations: int = 100,
        tolerance: float = 1e-9,
    ) -> DavidsonLuce: ...

    @classmethod
    def fit(
        cls,
        orders: Votes,
        weights: Tensor | None = None,
        *,
        unranked: Unranked | None = None,
        items: int | None = None,
        ties: bool = False,
        features: Any = None,
        penalty: float = 0.0,
        max_iterations: int = 100,
        tolerance: float = 1e-9,
    ) -> "PlackettLuce | DavidsonLuce":
        r"""The law of maximum likelihood, its logits of mean zero; ``law.report`` says how the fit went.

        The log-likelihood :math:`\sum_v w_v \sum_i θ_{x_i} - \log \sum_{j ≥ i} e^{θ_{x_j}}` is concave in the
        logits θ. It is climbed by Newton steps that are solved by conjugate gradients; one pass over the
        rankings gives the product of the Hessian with a vector, and a step that does not raise the likelihood
        is shortened until it does, so the ascent is monotone.

        The maximum exists, and is unique, exactly if every item beats every other one, at least through a
        chain of others (the graph of who was ever placed above whom is strongly connected; Ford, 1957). If
        not, a :class:`FitWarning` names the items, and the law returned comes within :math:`10^{-12}` a
        choice of the least upper bound: groups that always win are put 30 nats above those they beat, and
        each is fitted on its own.

        Items tied at the end of a ranking are those that were left when the choices ended. For ties above
        them EM sums over all orders of the tied items: a tie says that the order was not told. With
        ``ties=True`` a tie is an outcome of its own, and the fit is a :class:`DavidsonLuce`.

        Args:
            orders: ``(*batch, k)``; they may end in -1 if ``unranked`` is given. Or what
                :func:`factorank.read_rankings` returns, with its counts, ties and names.
            weights: of the rankings, ``(*batch,)``.
            unranked: how the items that an order leaves out are ranked: "below" the others (top-k lists) or
                "incomparable" (rankings of subsets).
            items: the number of items where the orders are shorter than that.
            ties: whether tied items were found equal, which has a probability of its own.
            features: of the items, ``(n, columns)``: the logits are then ``features @ law.coefficients``.
            penalty: λ of :math:`\tfrac{λ}{2} \sum_j θ_j^2` (or of the coefficients), which is taken off the
                log-likelihood: a normal prior, which makes the maximum finite and unique whatever the data.
            max_iterations: of Newton's method, or of EM where there are ties.
            tolerance: of the largest entry of the gradient, for each choice an item takes part in.

        Hunter, "MM algorithms for generalized Bradley-Terry models", 2004; Plackett, "The analysis of
        permutations", 1975.

        >>> law = PlackettLuce.fit(torch.tensor([[0, 1, 2], [0, 2, 1], [1, 0, 2], [2, 1, 0]]))
        >>> law.report.converged, law.logits.argmax().item()
        (True, 0)
        """
        check_strength("penalty", penalty)
        check_strength("tolerance", tolerance)
        check_counts(max_iterations=max_iterations)
        ascent: dict[str, Any] = {
            "penalty": penalty,
            "max_iterations": max_iterations,
            "tolerance": tolerance,
        }
        if ties:
            check_unranked(unranked)
            ballots = read_ballots(orders, weights, unranked and "incomparable", items)
            return fit_davidson_luce(ballots, below=unranked == "below", features=features, **ascent)
        names: tuple[str, ...] = ()
        if isinstance(orders, Tensor):
            data, n = read_choices(orders, weights, unranked, items)
            device = orders.device
        else:
            ballots = read_ballots(orders, weights, unranked, items)
            if ballots.above is not None or tied_above(ballots.ranks).any():
                if features is not None:
                    raise FitError(
                        "features of rankings with ties are fitted where {parameter=True}", parameter="ties"
                    )
                settings = MIXTURE_EM.changed(max_iterations=10 * max_iterations, tolerance=1e-10)
                family = PlackettLuceFamily(PlackettLuce, penalty=penalty)
                _, [law], report = fit_by_em(family, ballots, settings)
                law.report = report
                return law  # type: ignore[return-value]
            data, n = choices_of(ballots.ranks, ballots.weights), ballots.n
            device, names = ballots.device, ballots.items
        if features is None:
            fitted = fit_choices(data, n, names, **ascent)
        else:
            fitted = fit_features(data, features, n, **ascent)
        law = PlackettLuce(logits=torch.from_numpy(fitted.logits).to(device))
        law.report = fitted.report
        if fitted.coefficients is not None:
            law.coefficients = torch.from_numpy(fitted.coefficients).to(device)
        return law

    def _log_prob(self, order: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(order.shape, self.logits.shape)
        return chain_log_prob(self.logits.expand(shape).gather(-1, order.expand(shape)))

    def _sample(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        # In float64: in float32 one pair of times in 2^24 would be a tie.
        logits = compact(self.logits, 1).double()

        def ring(uniform: Tensor, out: Tensor) -> None:
            out.copy_(order_of_clocks(log_exponential_(uniform).sub_(logits)))

        return map_uniform(ring, (*shape, *self.logits.shape), logits.ndim, self.device, generator)

    @property
    def mode(self) -> Tensor:
        """The items by falling score; equal scores keep their order."""
        return self.logits.argsort(dim=-1, descending=True, stable=True)

    def _mean_ranks(self) -> Tensor:
        # Item i is behind j with probability sigmoid(s_j - s_i); its rank counts those before it.
        return torch.sigmoid(self.logits[..., None, :] - self.logits[..., :, None]).sum(-1) - 0.5

    def _entropy(self) -> Tensor:
        reached, choice = self._choices("entropy")
        logs = torch.where(choice > 0, choice, 1.0).log()
        uncertainty = -torch.where(choice > 0, choice * logs, 0.0).sum(-1)
        return (reached * uncertainty).sum(-1).expand(self.batch_shape)

    def _marginals(self) -> Tensor:
        reached, choice = self._choices("marginals")
        left = _members(self.n, self.device).sum(-1)
        place = torch.nn.functional.one_hot((self.n - left).clamp(max=self.n - 1), self.n)
        return torch.einsum("...s,...si,sp->...ip", reached, choice, place.to(choice.dtype)).expand(
            *self.batch_shape, self.n, self.n
        )

    def _choices(self, what: str) -> tuple[Tensor, Tensor]:
        """For each set of items: the probability that it is what is left at some time ``(*batch, 2^n)``, and
        that of each item to be chosen from it ``(*batch, 2^n, n)``."""
        n, logits = self.n, compact(self.logits, 1)
        if n > LARGEST_SUBSETS:
            raise DistributionError(
                f"{what} of PlackettLuce is exact for n <= {LARGEST_SUBSETS}, not n = {n};"
                " samples= gives an estimate"
            )
        member = _members(n, self.device)
        scores = torch.where(member, logits[..., None, :], -torch.inf)
        # Nothing is chosen from the empty set.
        scores = torch.where(member.any(-1, keepdim=True), scores, 0.0)
        choice = torch.where(member, scores.softmax(-1), 0.0)
        sets = torch.arange(2**n, device=self.device)
        larger = (sets[:, None] | 2 ** torch.arange(n, device=self.device)).masked_fill(member, 0)
        reached = torch.cat((torch.zeros_like(choice[..., :-1, 0]), torch.ones_like(choice[..., :1, 0])), -1)
        sizes = member.sum(-1)
        for size in reversed(range(n)):  # a set is reached from those with one item more
            here = sizes == size
            before = larger[here]
            taken = choice[..., before, torch.arange(n, device=self.device)]  # each item, from the set before
            step = torch.where(member[here], 0.0, reached[..., before] * taken).sum(-1)
            reached = reached.masked_scatter(here.expand_as(reached), step)
        return reached, choice


def _members(n: int, device: torch.device) -> Tensor:
    """Bool ``(2^n, n)``: which items a set holds."""
    return (torch.arange(2**n, device=device)[:, None] >> torch.arange(n, device=device)) & 1 == 1


def chain_log_prob(scores: Tensor) -> Tensor:
    """Log-probability that items are chosen in this order, from their scores ``(*batch, n)``, best first."""
    left = scores.flip(-1).logcumsumexp(-1).flip(-1)
    return (scores - left).sum(-1)


def listed_log_prob(logits: Tensor, orders: Tensor, unranked: str | None) -> Tensor:
    """The log-probability ``(rows,)``, float64, of orders ``(rows, k)`` that may end in -1, under one law.

    The listed items are chosen one after the other: among all items that are left with ``"below"``, among
    the listed alone with ``"incomparable"`` (where the orders are complete, the two are the same).
    """
    n, listed = len(logits), orders >= 0
    scores = logits.double()[orders.clamp(min=0)].masked_fill(~listed, -torch.inf)
    left = scores
    if unranked == "below" and not (bool(listed.all()) and orders.shape[1] == n):
        rest = torch.ones((len(orders), n + 1), dtype=torch.bool, device=orders.device)
        rest.scatter_(1, orders.where(listed, n), False)
        others = logits.double().expand(len(orders), -1).masked_fill(~rest[:, :n], -torch.inf)
        left = torch.cat([scores, others.logsumexp(1, keepdim=True)], 1)
    totals = left.flip(1).logcumsumexp(1).flip(1)[:, : orders.shape[1]]
    return (scores - totals).masked_fill(~listed, 0.0).sum(1)


def log_exponential_(uniform: Tensor) -> Tensor:
    """Turn float64 uniforms into logarithms of standard exponential times, in place."""
    return log_(log_(uniform.neg_(), np.log1p).neg_())


def order_of_clocks(times: Tensor) -> Tensor:
    """The items in the order in which their clocks ring, from the times, their logarithms or so."""
    if times.device.type == "cpu" and not torch.compiler.is_compiling():
        return torch.from_numpy(np.argsort(times.numpy(), axis=-1))  # several times faster than torch's
    return times.argsort(-1)
