"""Posteriors against sums over all orders and against integrals on a grid."""

import itertools
import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.votes import mallows_posterior, plackett_luce_posterior

G = torch.Generator


@pytest.mark.parametrize("distance", ["kendall", "footrule"])
def test_the_posterior_of_mallows_by_listing_all_centres(distance):
    orders = fr.Mallows([2, 0, 3, 1], 0.6).sample((12,), generator=G().manual_seed(0))
    votes = Rankings.from_orders(orders)
    posterior = mallows_posterior(
        votes, distance=distance, rate=0.3, draws=4000, generator=G().manual_seed(1)
    )
    every = torch.tensor(list(itertools.permutations(range(4))))

    def apart(first, second):
        if distance == "kendall":
            return fr.kendall(first, second).double()
        return (fr.inverse(first) - fr.inverse(second)).abs().sum(-1).double()

    total = apart(every[:, None], orders[None]).sum(1)  # of each centre to all votes
    unit = apart(every, torch.arange(4))
    grid = torch.linspace(1e-6, 4, 4001, dtype=torch.float64)
    logs = (
        torch.logsumexp(-grid[:, None] * total, 1)
        - 12 * torch.logsumexp(-grid[:, None] * unit, 1)
        - 0.3 * 4 * grid
    )
    density = (logs - logs.max()).exp()
    density /= torch.trapezoid(density, grid)
    assert posterior.mean == pytest.approx(float(torch.trapezoid(grid * density, grid)), rel=5e-3)
    mass = torch.cumulative_trapezoid(density, grid)
    for share in (0.1, 0.5, 0.9):
        assert posterior.quantile(share) == pytest.approx(
            float(grid[(mass > share).int().argmax()]), rel=0.02
        )
    # The centre: its marginal probabilities, from independent draws.
    weights = torch.softmax(-grid[:, None] * total, 1)
    centre = torch.trapezoid(density[:, None] * weights, grid, dim=0)
    expected = torch.zeros(4, 4, dtype=torch.float64)
    for order, probability in zip(every, centre, strict=True):
        expected[order, torch.arange(4)] += probability
    assert (posterior.place_probabilities() - expected).abs().max() < 5 * math.sqrt(0.25 / 4000)
    low, high = posterior.interval(0.9)
    inside = (grid >= low) & (grid <= high)
    assert float(torch.trapezoid(density * inside, grid)) == pytest.approx(0.9, abs=0.02)


def test_what_the_posterior_of_mallows_refuses():
    with pytest.raises(fr.FactorankError, match="for complete rankings"):
        mallows_posterior(Rankings.from_orders(torch.tensor([[0, 1, -1]])))
    with pytest.raises(fr.FactorankError, match="at most 20 items, not 21"):
        mallows_posterior(Rankings.from_orders(torch.arange(21)[None]))


def test_the_posterior_of_plackett_luce_by_an_integral():
    """Two items: one difference of logits, whose posterior is an integral over a line."""
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([7, 2]))
    posterior = plackett_luce_posterior(votes, penalty=0.5, draws=20_000, generator=G().manual_seed(0))
    difference = np.linspace(-15, 15, 30_001)
    # Two normal logits of variance 2 have a difference of variance 4.
    logs = -7 * np.log1p(np.exp(-difference)) - 2 * np.log1p(np.exp(difference)) - difference**2 / 8
    density = np.exp(logs - logs.max())
    density /= np.trapezoid(density, difference)
    mean = np.trapezoid(density * difference, difference)
    best = np.trapezoid(density * (difference > 0), difference)
    assert float(posterior.mean[0] - posterior.mean[1]) == pytest.approx(mean, abs=0.03)
    assert float(posterior.p_best()[0]) == pytest.approx(best, abs=0.01)
    low, high = posterior.intervals()[0]
    mass = np.cumsum(density) * (difference[1] - difference[0])
    assert low == pytest.approx(difference[(mass > 0.025).argmax()] / 2, abs=0.05)
    assert high == pytest.approx(difference[(mass > 0.975).argmax()] / 2, abs=0.05)
    assert posterior.effective > 10_000
    with pytest.raises(fr.FactorankError, match="penalty is above 0"):
        plackett_luce_posterior(votes, penalty=0.0)
