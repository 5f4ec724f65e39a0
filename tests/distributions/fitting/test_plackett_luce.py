import itertools
import math
import warnings

import choix
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import factorank as fr
from factorank.distributions.fitting import choices


def choices_log_likelihood(logits, rows, n, below):
    """The definition: each listed item is chosen from all that are left."""
    total = 0.0
    for row in rows:
        listed = [item for item in row if item >= 0]
        left = set(range(n)) if below else set(listed)
        for item in listed:
            total += logits[item] - math.log(sum(math.exp(logits[other]) for other in left))
            left.remove(item)
    return total


def by_scipy(rows, n, below, penalty=0.0):
    def objective(logits):
        return -choices_log_likelihood(logits, rows, n, below) + penalty / 2 * (logits**2).sum()

    logits = minimize(objective, np.zeros(n), method="BFGS", options={"gtol": 1e-7}).x
    return torch.from_numpy(logits - logits.mean())


def sample(logits, count, seed):
    return fr.PlackettLuce(logits).sample((count,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("n", "count"), [(2, 50), (5, 40), (10, 300), (25, 200)])
def test_equals_choix(n, count):
    logits = torch.randn(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    votes = sample(logits, count, seed=0)
    law = fr.PlackettLuce.fit(votes)
    expected = torch.from_numpy(choix.ilsr_rankings(n, votes.tolist()))
    torch.testing.assert_close(law.logits, expected - expected.mean(), atol=1e-7, rtol=0)
    assert abs(float(law.logits.sum())) < 1e-9
    total = float(law.log_prob(votes).sum())
    assert law.report.log_likelihood == pytest.approx(total, rel=1e-12)
    assert total == pytest.approx(choix.log_likelihood_rankings(votes.tolist(), law.logits.numpy()), rel=1e-9)
    assert total >= float(fr.PlackettLuce(logits).log_prob(votes).sum())
    assert law.report.converged
    assert law.report.parameters == n - 1


def test_rankings_of_subsets_equal_choix():
    n, rng = 8, np.random.default_rng(0)
    logits = rng.normal(size=n)
    data = choix.generate_rankings(logits, 200, size=3)
    padded = torch.full((200, n), -1)
    padded[:, :3] = torch.tensor(np.array(data))
    law = fr.PlackettLuce.fit(padded, unranked="incomparable")
    short = fr.PlackettLuce.fit(padded[:, :3].contiguous(), items=n, unranked="incomparable")
    expected = torch.from_numpy(choix.ilsr_rankings(n, data))
    torch.testing.assert_close(law.logits, expected - expected.mean(), atol=1e-7, rtol=0)
    assert torch.equal(law.logits, short.logits)
    value = choices_log_likelihood(law.logits.tolist(), padded.tolist(), n, below=False)
    assert law.report.log_likelihood == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("below", [True, False])
def test_mixed_lengths_equal_a_plain_optimiser(below):
    n = 5
    votes = sample(torch.linspace(-1, 1, n), 40, seed=3)
    lengths = torch.randint(1 if below else 2, n + 1, (40,), generator=torch.Generator().manual_seed(0))
    rows = torch.where(torch.arange(n) < lengths[:, None], votes, -1)
    law = fr.PlackettLuce.fit(rows, unranked="below" if below else "incomparable")
    torch.testing.assert_close(law.logits, by_scipy(rows.tolist(), n, below), atol=1e-5, rtol=0)
    value = choices_log_likelihood(law.logits.tolist(), rows.tolist(), n, below)
    assert law.report.log_likelihood == pytest.approx(value, rel=1e-12)


def test_known_parameters_are_recovered_from_top_k_lists():
    logits = torch.linspace(-1.5, 1.5, 12, dtype=torch.float64)
    votes = sample(logits, 20_000, seed=1)
    law = fr.PlackettLuce.fit(torch.where(torch.arange(12) < 4, votes, -1), unranked="below")
    torch.testing.assert_close(law.logits, logits, atol=0.06, rtol=0)
    whole = fr.PlackettLuce.fit(votes)
    torch.testing.assert_close(whole.logits, logits, atol=0.03, rtol=0)


def test_weights_are_repetitions_and_zero_weights_do_not_exist():
    votes = sample(torch.zeros(4), 12, seed=2)
    counts = torch.tensor([1, 2, 0, 3, 1, 1, 1, 2, 1, 0, 1, 4])
    weighted = fr.PlackettLuce.fit(votes, weights=counts.double())
    repeated = fr.PlackettLuce.fit(votes.repeat_interleave(counts, 0))
    torch.testing.assert_close(weighted.logits, repeated.logits, atol=1e-8, rtol=0)
    with pytest.warns(fr.FitWarning, match="no maximum"):
        fr.PlackettLuce.fit(torch.tensor([[0, 1], [1, 0]]), weights=torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("penalty", [0.1, 2.0])
def test_a_penalty_is_a_normal_prior(penalty):
    rows = [[0, 1, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]]  # item 0 always wins
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        law = fr.PlackettLuce.fit(torch.tensor(rows), penalty=penalty)
    torch.testing.assert_close(law.logits, by_scipy(rows, 4, False, penalty), atol=1e-5, rtol=0)
    assert any("item 0" in text and text.endswith("; the penalty decides") for text in law.report.warnings)
    assert law.report.log_likelihood == pytest.approx(float(law.log_prob(torch.tensor(rows)).sum()))


def test_every_step_raises_the_likelihood():
    votes = sample(4 * torch.randn(9, generator=torch.Generator().manual_seed(0)), 60, seed=4)
    n, data = 9, choices.choices_of(fr.inverse(votes).numpy(), np.ones(len(votes)))
    start = np.random.default_rng(0).normal(size=n) * 6
    reached = [choices.climb(data, start.copy(), 0.0, steps, 1e-9).log_likelihood for steps in range(12)]
    assert all(later >= earlier for earlier, later in itertools.pairwise(reached))
    assert reached[-1] > reached[0]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([[0, 1, 2], [0, 2, 1]], ["above item 0", "below items 1, 2"]),
        ([[1, 2, 0], [2, 1, 0]], ["above items 1, 2", "below item 0"]),
        ([[2, 0, 1]], ["above item 2", "below item 1"]),
        ([[0, 1, 2, 3], [1, 0, 3, 2]], ["above items 0, 1", "below items 2, 3"]),
    ],
)
def test_no_maximum_is_named_and_the_supremum_is_reached(rows, names):
    orders = torch.tensor(rows)
    with pytest.warns(fr.FitWarning, match="no maximum") as caught:
        law = fr.PlackettLuce.fit(orders)
    for name in names:
        assert name in str(caught[0].message)
        assert any(name in text for text in law.report.warnings)
    assert law.logits.isfinite().all()
    assert abs(float(law.logits.mean())) < 1e-9
    total = float(law.log_prob(orders).sum())
    assert law.report.log_likelihood == pytest.approx(total, abs=1e-9)
    for seed in range(50):  # nothing is more likely, however far apart
        g = torch.Generator().manual_seed(seed)
        other = law.logits + torch.randn(orders.shape[1], generator=g, dtype=torch.float64) * 10 ** (
            seed % 4 - 2
        )
        assert float(fr.PlackettLuce(other).log_prob(orders).sum()) <= total + 1e-9


def test_the_warning_is_exact():
    """There is a maximum if and only if no split of the items has one side always above the other."""
    n = 4
    for seed in range(60):
        votes = fr.random_permutations(n, (2 + seed % 3,), generator=torch.Generator().manual_seed(seed))
        ranks = fr.inverse(votes)
        beaten = (ranks[:, :, None] < ranks[:, None, :]).any(0)
        bounded = all(
            beaten[list(low)][:, list(set(range(n)) - set(low))].any()
            for size in range(1, n)
            for low in itertools.combinations(range(n), size)
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            law = fr.PlackettLuce.fit(votes)
        assert bool(caught) == (not bounded)
        if bounded:
            expected = torch.from_numpy(choix.ilsr_rankings(n, votes.tolist()))
            torch.testing.assert_close(law.logits, expected - expected.mean(), atol=1e-6, rtol=0)


def test_items_that_are_never_compared():
    rows = torch.tensor([[0, 1, -1, -1], [1, 0, -1, -1], [2, 3, -1, -1], [3, 2, -1, -1], [3, 2, -1, -1]])
    with pytest.warns(fr.FitWarning, match="not determined.*items 2, 3 with the rest"):
        law = fr.PlackettLuce.fit(rows, unranked="incomparable")
    # Each group is fitted on its own, around zero.
    half = math.log(2) / 2
    torch.testing.assert_close(
        law.logits, torch.tensor([0, 0, -half, half], dtype=torch.float64), atol=1e-8, rtol=0
    )
    with pytest.warns(fr.FitWarning, match="item 2 with the rest"):
        fr.PlackettLuce.fit(torch.tensor([[0, 1, -1], [1, 0, -1]]), unranked="incomparable")


def test_top_k_lists_of_a_winner_say_what_is_unknown_below():
    rows = torch.tensor([[0, -1, -1]] * 3)
    with pytest.warns(fr.FitWarning, match="above item 0") as caught:
        law = fr.PlackettLuce.fit(rows, unranked="below")
    assert "below item 1; item 2" in str(caught[0].message)
    assert law.logits[0] - law.logits[1] == pytest.approx(30)
    assert float(law.logits[1]) == float(law.logits[2])
    assert law.report.log_likelihood == pytest.approx(0, abs=1e-9)


def test_a_fit_that_is_cut_short_says_so():
    votes = sample(torch.linspace(-2, 2, 8), 100, seed=0)
    with pytest.warns(fr.FitWarning, match="stopped after 1 iterations"):
        law = fr.PlackettLuce.fit(votes, max_iterations=1)
    assert not law.report.converged
    assert "NO, after 1 iteration" in str(law.report)


def test_far_apart_items_are_fitted():
    # One vote in 10^4 against: logits far from zero, a curvature that varies by as much.
    votes = torch.cat([torch.tensor([[0, 1, 2, 3]] * 10_000), torch.tensor([[3, 2, 1, 0]])])
    law = fr.PlackettLuce.fit(votes)
    expected = torch.from_numpy(choix.ilsr_rankings(4, votes.tolist(), max_iter=1000))
    torch.testing.assert_close(law.logits, expected - expected.mean(), atol=1e-4, rtol=0)


def test_one_item():
    law = fr.PlackettLuce.fit(torch.zeros(3, 1, dtype=torch.int64))
    assert law.logits.tolist() == [0]
    assert law.report.log_likelihood == 0
