import itertools
import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting import dispersion


def double(value):
    return torch.tensor(value, dtype=torch.float64)


def votes_of(n, count, seed):
    return fr.random_permutations(n, (count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [2, 3, 10, 50])
@pytest.mark.parametrize("phi", [1e-9, 1e-3, 0.2, 0.7, 0.99, 0.9999, 1 - 1e-7])
def test_the_moment_equation_is_solved(n, phi):
    # The expected distance, from the definition, in exact rational-free form: sums of positive terms.
    powers = np.array([phi**v for v in range(n)])
    expected = sum((np.arange(m) * powers[:m]).sum() / powers[:m].sum() for m in range(1, n + 1))
    solved = dispersion.solve(np.array([expected]), np.arange(n, 0, -1.0)[None])[0]
    assert solved == pytest.approx(phi, abs=1e-12, rel=1e-9)


def test_known_parameters_are_recovered():
    central = torch.tensor([3, 1, 4, 0, 5, 2, 7, 6])
    truth = fr.Mallows(central, double(0.6))
    votes = truth.sample((20_000,), generator=torch.Generator().manual_seed(0))
    law = fr.Mallows.fit(votes)
    assert torch.equal(law.central, central)
    assert float(law.phi) == pytest.approx(0.6, abs=0.005)
    assert law.report.exact
    assert law.report.converged
    total = law.log_prob(votes).sum()
    assert law.report.log_likelihood == pytest.approx(float(total), rel=1e-12)
    assert total >= truth.log_prob(votes).sum()
    assert law.report.aic == pytest.approx(2 - 2 * float(total))
    assert law.report.bic == pytest.approx(math.log(20_000) - 2 * float(total))


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_maximum_over_all_orders_and_dispersions(seed):
    votes = votes_of(4, 9, seed)
    law = fr.Mallows.fit(votes)
    grid = torch.linspace(0, 1, 201, dtype=torch.float64)
    for order in itertools.permutations(range(4)):
        values = fr.Mallows(torch.tensor(order), grid[:, None]).log_prob(votes).sum(-1)
        assert values.max() <= law.report.log_likelihood + 1e-9
    for phi in (float(law.phi) - 1e-4, float(law.phi) + 1e-4):
        near = fr.Mallows(law.central, double(min(phi, 1.0))).log_prob(votes).sum()
        assert near <= law.report.log_likelihood + 1e-12


def test_the_ends_of_the_scale():
    same = torch.tensor([[2, 0, 1]] * 5)
    law = fr.Mallows.fit(same)
    assert law.phi == 0
    assert law.central.tolist() == [2, 0, 1]
    assert law.report.log_likelihood == 0
    assert law.log_prob(same).sum() == 0
    every = torch.tensor(list(itertools.permutations(range(4))))
    law = fr.Mallows.fit(every)
    assert law.phi == 1
    assert law.report.log_likelihood == pytest.approx(-24 * math.log(24))
    single = fr.Mallows.fit(torch.zeros(3, 1, dtype=torch.int64))
    assert single.report.log_likelihood == 0


def test_weights_are_repetitions():
    votes, counts = votes_of(6, 8, 1), torch.tensor([3, 0, 1, 2, 5, 1, 0, 4])
    weighted = fr.Mallows.fit(votes, weights=counts)
    repeated = fr.Mallows.fit(votes.repeat_interleave(counts, 0))
    assert torch.equal(weighted.central, repeated.central)
    assert float(weighted.phi) == pytest.approx(float(repeated.phi), abs=1e-14)
    assert weighted.report.log_likelihood == pytest.approx(repeated.report.log_likelihood)
    assert weighted.report.rankings == 16


def test_a_fixed_central_order():
    votes = votes_of(5, 20, 2)
    central = torch.tensor([4, 2, 0, 1, 3])
    law = fr.Mallows.fit(votes, central=central)
    assert torch.equal(law.central, central)
    assert law.report.exact is None
    best = max(
        float(fr.Mallows(central, double(phi)).log_prob(votes).sum()) for phi in np.linspace(0.01, 1, 500)
    )
    assert law.report.log_likelihood >= best - 1e-9


@pytest.mark.parametrize("seed", range(3))
def test_the_weighted_law_is_the_maximum_over_all_orders(seed):
    places = torch.tensor([2.0, 1.0, 0.5, 1.0], dtype=torch.float64)
    votes = fr.Mallows(torch.tensor([2, 0, 3, 1]), double(0.5), weights=places).sample(
        (12,), generator=torch.Generator().manual_seed(seed)
    )
    law = fr.Mallows.fit(votes, place_weights=places)
    assert law.report.log_likelihood == pytest.approx(float(law.log_prob(votes).sum()))
    grid = torch.linspace(0.005, 1, 200, dtype=torch.float64)[:, None]
    for order in itertools.permutations(range(4)):
        values = fr.Mallows(torch.tensor(order), grid, weights=places).log_prob(votes).sum(-1)
        assert values.max() <= law.report.log_likelihood + 1e-9


def test_the_weighted_law_is_recovered_and_may_have_free_places():
    places = torch.tensor([3.0, 1.0, 0.5, 0.0, 1.0], dtype=torch.float64)
    truth = fr.Mallows(torch.tensor([2, 0, 4, 3, 1]), double(0.4), weights=places)
    votes = truth.sample((20_000,), generator=torch.Generator().manual_seed(5))
    law = fr.Mallows.fit(votes, place_weights=places)
    assert float(law.phi) == pytest.approx(0.4, abs=0.01)
    assert law.report.log_likelihood >= float(truth.log_prob(votes).sum())
    last_free = torch.tensor([[0, 1, 2], [0, 2, 1]])
    law = fr.Mallows.fit(last_free, place_weights=torch.tensor([1.0, 0.0, 1.0]))
    assert law.phi == 0
    assert law.report.log_likelihood == pytest.approx(-2 * math.log(2))
    torch.testing.assert_close(law.log_prob(last_free).sum(), double(-2 * math.log(2)))


def test_batches_of_votes_are_flattened():
    votes = votes_of(5, 12, 0)
    flat, batched = fr.Mallows.fit(votes), fr.Mallows.fit(votes.view(3, 4, 5).to(torch.int16))
    assert float(flat.phi) == float(batched.phi)
