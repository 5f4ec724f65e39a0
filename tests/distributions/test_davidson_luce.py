"""Davidson and Luce's law of rankings with ties: enumeration, gradients, published tables, recovery."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import chisquare

import factorank as fr
from factorank.distributions import FitError, FitWarning
from factorank.errors import DistributionError


def weak_orders(n):
    """All rankings with ties of n items, as ranks."""
    every = itertools.product(range(n), repeat=n)
    return torch.tensor([ranks for ranks in every if set(ranks) == set(range(max(ranks) + 1))])


def by_definition(ranks, logits, ties):
    """The probability of one ranking, by listing the sets that could be chosen."""
    worth, left, result = np.exp(logits), [j for j, rank in enumerate(ranks) if rank >= 0], 1.0

    def weight(chosen):
        return ties[len(chosen) - 1] * np.prod(worth[list(chosen)]) ** (1 / len(chosen))

    while left:
        best = min(ranks[j] for j in left)
        chosen = [j for j in left if ranks[j] == best]
        sizes = range(1, min(len(left), len(ties)) + 1)
        total = sum(weight(each) for size in sizes for each in itertools.combinations(left, size))
        result *= weight(chosen) / total if len(chosen) <= len(ties) else 0.0
        left = [j for j in left if j not in chosen]
    return result


LAWS = [
    fr.DavidsonLuce(torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64), [0.7]),
    fr.DavidsonLuce(torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64), [0.7, 0.0, 0.3]),
    fr.DavidsonLuce(torch.tensor([100.0, -200.0, 50.0, 0.0], dtype=torch.float64), [0.7, 2.0]),
]


@pytest.mark.parametrize("law", LAWS)
def test_it_is_the_definition_and_sums_to_one(law):
    ranks = weak_orders(4)
    probs = law.log_prob(ranks).exp()
    assert probs.sum().item() == pytest.approx(1)
    ties = [1.0, *law.prevalence.tolist()]
    wanted = [by_definition(row, law.logits.numpy(), ties) for row in ranks.tolist()]
    np.testing.assert_allclose(probs, wanted, atol=1e-12)
    some = torch.tensor([[0, -1, 0, 1], [1, -1, -1, 0], [-1, -1, -1, -1]])
    wanted = [by_definition(row, law.logits.numpy(), ties) for row in some.tolist()]
    np.testing.assert_allclose(law.log_prob(some).exp(), wanted, atol=1e-12)


def test_without_ties_it_is_plackett_luce_and_of_pairs_davidson():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64)
    orders = torch.tensor(list(itertools.permutations(range(4))))
    torch.testing.assert_close(
        fr.DavidsonLuce(logits).log_prob(fr.inverse(orders)), fr.PlackettLuce(logits).log_prob(orders)
    )
    pairs = fr.DavidsonLuce(logits, [0.8]).log_prob(
        torch.tensor([[0, 1, -1, -1], [1, 0, -1, -1], [0, 0, -1, -1]])
    )
    torch.testing.assert_close(pairs, fr.Davidson(logits, nu=0.8).log_probs([0, 1]))


def test_gradients():
    ranks = torch.tensor([[0, 0, 1, 2], [1, 0, 0, 0], [0, -1, 1, 0]])
    logits = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    ties = torch.tensor([0.5, 0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: fr.DavidsonLuce(a, b).log_prob(ranks), (logits, ties))


def test_draws_agree_with_probabilities():
    law = fr.DavidsonLuce([0.5, 0.0, -0.5], [0.8, 0.4])
    ranks = weak_orders(3)
    draws = law.sample((4000,), generator=torch.Generator().manual_seed(0))
    counts = (draws[:, None] == ranks).all(-1).sum(0)
    assert counts.sum() == 4000
    expected = law.log_prob(ranks).exp().double()
    assert chisquare(counts, expected / expected.sum() * 4000).pvalue > 1e-3


def test_known_parameters_are_recovered():
    law = fr.DavidsonLuce(torch.tensor([1.0, 0.5, 0.0, -0.5, -1.0], dtype=torch.float64), [0.6, 0.3])
    ranks = law.sample((3000,), generator=torch.Generator().manual_seed(1))
    fitted = fr.PlackettLuce.fit(fr.Rankings(list("abcde"), ranks), ties=True)
    assert fitted.report.converged
    errors = fitted.covariance.diagonal().sqrt()
    assert ((fitted.logits - law.logits).abs() < 4 * errors[:5]).all()
    assert ((fitted.prevalence.log() - law.prevalence.log()).abs() < 4 * errors[5:]).all()
    assert fitted.report.errors == pytest.approx(fitted.standard_errors().tolist())
    total = fitted.log_prob(ranks).sum()
    assert total.item() == pytest.approx(fitted.report.log_likelihood)
    assert total > law.log_prob(ranks).sum()


def test_puddings_as_published():
    """Davidson (1970), and the overview of the R package PlackettLuce."""
    first = [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]
    second = [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]
    won = [19, 16, 19, 18, 23, 19, 13, 16, 16, 17, 18, 22, 13, 14, 11]
    lost = [22, 19, 19, 23, 19, 20, 19, 20, 15, 14, 21, 20, 18, 19, 21]
    tied = [16, 12, 10, 13, 9, 15, 18, 12, 17, 16, 12, 12, 10, 18, 12]
    ranks = torch.full((45, 6), -1)
    for row, (a, b) in enumerate(zip(first, second, strict=True)):
        for part, places in enumerate(((0, 1), (1, 0), (0, 0))):
            ranks[15 * part + row, [a, b]] = torch.tensor(places)
    votes = fr.Rankings(list("123456"), ranks, torch.tensor(won + lost + tied))
    law = fr.PlackettLuce.fit(votes, ties=True, unranked="incomparable")
    worth = [0.1388005, 0.1729985, 0.1617420, 0.1653930, 0.1586805, 0.2023855]
    np.testing.assert_allclose(law.logits.softmax(0), worth, atol=3e-5)  # theirs was stopped early
    assert law.prevalence.item() == pytest.approx(0.7468147, abs=2e-5)
    errors = [0.121949, 0.121818, 0.126823, 0.122003, 0.127054, 0.126594, 0.082499]
    np.testing.assert_allclose(law.covariance.diagonal().sqrt(), errors, atol=2e-5)
    assert -2 * law.report.log_likelihood == pytest.approx(1619.4, abs=0.05)


def test_salads_with_features_as_published():
    """Critchlow and Fligner's salads (1991), and the R package's model of them by two acids."""
    ranks = ["0123", "1023", "1032", "1203", "2013", "2031", "2310", "3012", "3021", "3102", "3201", "3210"]
    ranks = torch.tensor([[int(place) for place in row] for row in ranks])
    counts = torch.tensor([2, 1, 2, 1, 2, 1, 1, 11, 6, 3, 1, 1])
    acids = [[0.5, 0], [0.5, 10], [1.0, 0], [0, 10]]
    law = fr.PlackettLuce.fit(fr.inverse(ranks), counts, features=acids)
    tied = fr.PlackettLuce.fit(fr.Rankings(list("ABCD"), ranks, counts), ties=True, features=acids)
    for fitted in (law, tied):
        np.testing.assert_allclose(fitted.coefficients, [3.27431, 0.27392], atol=5e-4)
        np.testing.assert_allclose(fitted.report.errors, [0.57650, 0.04505], atol=1e-4)
        assert -2 * fitted.report.log_likelihood == pytest.approx(152.9, abs=0.05)
    logits = torch.tensor(acids, dtype=torch.float64) @ law.coefficients
    torch.testing.assert_close(law.logits, logits - logits.mean())
    assert "coefficient of each feature" in str(law.report)


@pytest.mark.parametrize("penalty", [0.0, 2.0])
@pytest.mark.parametrize("below", [False, True])
def test_top_lists_penalty_and_features_against_scipy(penalty, below):
    orders = fr.PlackettLuce(torch.tensor([1.0, 0.3, 0.0, -0.5])).sample(
        (60,), generator=torch.Generator().manual_seed(0)
    )
    ranks = fr.inverse(orders)
    tied = torch.where(ranks > 2, -1, ranks.clamp(min=1) - 1)  # the first two tie, the last is left out
    ranks = torch.where(torch.arange(60)[:, None] % 3 == 0, tied, torch.where(ranks > 2, -1, ranks))
    features = np.array([[1.0, 0.0], [0.5, 1.0], [0.0, 2.0], [-1.0, 0.5]])
    votes = fr.Rankings(list("abcd"), ranks)

    def negative(parameters):
        logits, ties = features @ parameters[:2], [1.0, np.exp(parameters[2])]
        total = -penalty / 2 * parameters[:2] @ parameters[:2]
        for row in ranks.tolist():
            listed = [3 if rank < 0 else rank for rank in row] if below else row
            total += np.log(by_definition(listed, logits, ties))
        return -total

    theirs = minimize(negative, np.zeros(3), tol=1e-10)
    ours = fr.PlackettLuce.fit(
        votes, ties=True, features=features, penalty=penalty, unranked="below" if below else "incomparable"
    )
    np.testing.assert_allclose(ours.coefficients, theirs.x[:2], atol=1e-4)
    assert ours.prevalence.log().item() == pytest.approx(theirs.x[2], abs=1e-4)


def test_faults_are_named():
    with pytest.raises(DistributionError, match="prevalence of 0 or more"):
        fr.DavidsonLuce([0.0, 1.0], [-1.0])
    with pytest.raises(DistributionError, match=r"ranks \(\*batch, 2\), not \(3,\)"):
        fr.DavidsonLuce([0.0, 1.0]).log_prob(torch.tensor([0, 1, 2]))
    with pytest.raises(DistributionError, match="600 nats apart"):
        fr.DavidsonLuce([0.0, 1000.0])
    with pytest.raises(DistributionError, match="not fitted"):
        fr.DavidsonLuce([0.0, 1.0]).standard_errors()
    votes = fr.Rankings(["x", "y", "z"], torch.tensor([[0, 1, 1], [0, 1, 2], [0, 2, 1]]))
    with pytest.raises(FitError, match=r"above item 'x'.*a penalty above 0 settles it"):
        fr.PlackettLuce.fit(votes, ties=True)
    assert fr.PlackettLuce.fit(votes, ties=True, penalty=1.0).logits.argmax() == 0
    always = fr.Rankings(["x", "y", "z"], torch.tensor([[0, 0, 1], [0, 1, 0], [1, 0, 0]]))
    with pytest.raises(FitError, match="every choice is a tie"):
        fr.PlackettLuce.fit(always, ties=True)
    with pytest.raises(FitError, match=r"features are numbers \(items, columns\), 3 rows"):
        fr.PlackettLuce.fit(votes, ties=True, features=[[1.0]])
    with pytest.raises(FitError, match="linearly dependent"):
        fr.PlackettLuce.fit(torch.tensor([[0, 1, 2], [1, 2, 0]]), features=[[1.0], [1.0], [1.0]])
    tied = fr.Rankings(["x", "y", "z"], torch.tensor([[0, 0, 1], [1, 0, 2]]))
    with pytest.raises(FitError, match="fitted where ties=True"):
        fr.PlackettLuce.fit(tied, features=[[1.0], [2.0], [0.0]])
    with pytest.warns(FitWarning, match="stopped after 3 iterations"):
        fr.PlackettLuce.fit(torch.tensor([[0, 1, 2]]), features=[[2.0], [1.0], [0.0]], max_iterations=3)


def test_the_spread_of_the_logits_is_limited_not_their_height():
    fr.DavidsonLuce(torch.tensor([900.0, 901.0, 1500.0]), [0.5])
    fr.DavidsonLuce(torch.tensor([-901.0, -900.0]), [0.5])
    with pytest.raises(DistributionError, match="at most 600 nats apart"):
        fr.DavidsonLuce(torch.tensor([-301.0, 300.0]), [0.5])
