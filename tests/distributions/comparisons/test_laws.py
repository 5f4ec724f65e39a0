"""Laws of comparisons: probabilities, gradients, fits against choix, brute force and known parameters."""

import choix
import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import chisquare

import factorank as fr
from factorank.distributions.comparisons.battles import collect, outcome_codes
from factorank.distributions.comparisons.links import DavidsonLink, Half, RaoKupperLink
from factorank.distributions.fitting.errors import FitError
from factorank.errors import DistributionError

LAWS = {
    "bradley-terry": lambda scores, **options: fr.BradleyTerry(scores, **options),
    "davidson": lambda scores, **options: fr.Davidson(scores, nu=0.7, **options),
    "rao-kupper": lambda scores, **options: fr.RaoKupper(scores, kappa=1.6, **options),
}
laws = pytest.mark.parametrize("name", LAWS)


def drawn(name, rows=3000, n=5, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    law = LAWS[name](torch.linspace(-1, 1, n, dtype=torch.float64), **options)
    pairs = torch.stack([torch.randperm(n, generator=generator)[:2] for _ in range(rows)])
    covariates = None
    if options:
        covariates = torch.randn(rows, 1, generator=generator, dtype=torch.float64).round(decimals=1)
    return law, pairs, covariates, law.sample(pairs, covariates=covariates, generator=generator)


@laws
def test_outcomes_sum_to_one_and_turn_with_the_pair(name):
    law = LAWS[name](torch.tensor([3.0, -20.0, 0.5, 40.0], dtype=torch.float64))
    pairs = torch.tensor([[a, b] for a in range(4) for b in range(4) if a != b])
    probs = law.log_probs(pairs).exp()
    torch.testing.assert_close(probs.sum(-1), torch.ones(12, dtype=torch.float64))
    torch.testing.assert_close(law.log_probs(pairs.flip(-1)).exp(), probs[:, [1, 0, 2]])


def test_probabilities_are_those_of_the_papers():
    worth = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)
    nu, kappa = 0.8, 1.7
    davidson, rao_kupper = fr.Davidson(worth.log(), nu=nu), fr.RaoKupper(worth.log(), kappa=kappa)
    a, b = worth[0], worth[2]
    total = a + b + nu * (a * b).sqrt()
    torch.testing.assert_close(
        davidson.log_probs([0, 2]).exp(), torch.stack([a, b, nu * (a * b).sqrt()]) / total
    )
    win, loss = a / (a + kappa * b), b / (kappa * a + b)
    torch.testing.assert_close(rao_kupper.log_probs([0, 2]).exp(), torch.stack([win, loss, 1 - win - loss]))
    bradley_terry = fr.BradleyTerry(worth.log())
    assert bradley_terry.log_prob([0, 2], 0).exp() == pytest.approx(float(a / (a + b)))
    assert bradley_terry.log_prob([0, 2], 2) == -torch.inf


@pytest.mark.parametrize("link", [Half, DavidsonLink, RaoKupperLink])
def test_derivatives_are_those_of_autograd(link):
    d = torch.linspace(-3, 3, 7, dtype=torch.float64).requires_grad_()
    t = torch.full((), 0.4, dtype=torch.float64).expand(7).clone().requires_grad_()
    at = link.derivatives(d, t)
    log = link.log_probs(d, t)
    for outcome in range(3):
        slope_d, slope_t = torch.autograd.grad(
            log[:, outcome].sum(), (d, t), create_graph=True, allow_unused=True
        )
        slope_t = torch.zeros_like(d) if slope_t is None else slope_t
        torch.testing.assert_close(at.d[:, outcome], slope_d)
        torch.testing.assert_close(at.t[:, outcome], slope_t)
        second = torch.autograd.grad(slope_d.sum(), (d, t), allow_unused=True, retain_graph=True)
        torch.testing.assert_close(at.dd[:, outcome], second[0])
        if link.tie_parameter:
            torch.testing.assert_close(at.dt[:, outcome], second[1])
            (bend,) = torch.autograd.grad(slope_t.sum(), t, retain_graph=True)
            torch.testing.assert_close(at.tt[:, outcome], bend)


@laws
def test_draws_agree_with_probabilities(name):
    law = LAWS[name](torch.tensor([0.3, -0.4]))
    draws = law.sample([0, 1], (20_000,), generator=torch.Generator().manual_seed(0))
    expected = law.log_probs([0, 1]).exp().double()
    kept = expected > 0
    counts = torch.bincount(draws, minlength=3).double()
    assert counts[~kept].sum() == 0
    assert chisquare(counts[kept], expected[kept] / expected.sum() * 20_000).pvalue > 1e-3


@laws
@pytest.mark.parametrize("effects", [False, True])
def test_the_fit_is_the_maximum(name, effects):
    options = {"effects": torch.tensor([0.4], dtype=torch.float64)} if effects else {}
    law, pairs, covariates, outcomes = drawn(name, **options)
    fitted = type(law).fit(pairs, outcomes, covariates=covariates)
    assert fitted.report.converged
    assert (fitted.scores - law.scores).abs().max() < 5 * fitted.standard_errors().max()
    if effects:
        assert fitted.effects[0] == pytest.approx(0.4, abs=0.2)
    scores = fitted.scores.clone().requires_grad_()
    tie = {key: getattr(fitted, key).clone().requires_grad_() for key in ("nu", "kappa") if hasattr(law, key)}
    again = type(law)(scores, effects=fitted.effects, **tie)
    total = again.log_prob(pairs, outcomes, covariates).sum()
    assert total.item() == pytest.approx(fitted.report.log_likelihood, abs=1e-8)
    slopes = torch.autograd.grad(total, [scores, *tie.values()])
    assert max(slope.abs().max() for slope in slopes) < 1e-3


def test_the_fit_agrees_with_choix_and_plackett_luce():
    _, pairs, _, outcomes = drawn("bradley-terry", rows=800)
    won = torch.where(outcomes[:, None] == 0, pairs, pairs.flip(-1))
    fitted = fr.BradleyTerry.fit(pairs, outcomes)
    theirs = choix.opt_pairwise(5, won.tolist(), alpha=0, method="Newton-CG", tol=1e-12)
    np.testing.assert_allclose(fitted.scores.numpy(), theirs - theirs.mean(), atol=1e-5)
    lists = fr.PlackettLuce.fit(won, unranked="incomparable", items=5)
    torch.testing.assert_close(fitted.scores, lists.logits, atol=1e-7, rtol=0)


def test_ties_are_half_a_win_for_each():
    _, pairs, _, outcomes = drawn("davidson", rows=600)
    twice = torch.cat([pairs, pairs])
    halves = torch.cat([torch.where(outcomes == 2, 0, outcomes), torch.where(outcomes == 2, 1, outcomes)])
    one = fr.BradleyTerry.fit(pairs, outcomes)
    two = fr.BradleyTerry.fit(twice, halves, weights=torch.full((1200,), 0.5))
    torch.testing.assert_close(one.scores, two.scores)
    assert one.report.log_likelihood == pytest.approx(two.report.log_likelihood)


def test_features_and_penalty_against_scipy():
    _, pairs, _, outcomes = drawn("davidson", rows=400)
    features = np.array([[0.0, 1.0], [1.0, 0.5], [2.0, -1.0], [3.0, 2.0], [4.5, 0.0]])

    def negative(parameters, penalty):
        law = fr.Davidson(torch.from_numpy(features @ parameters[:2]), nu=float(np.exp(parameters[2])))
        return -float(law.log_prob(pairs, outcomes).sum()) + penalty / 2 * float(
            parameters[:2] @ parameters[:2]
        )

    for penalty in (0.0, 3.0):
        theirs = minimize(negative, np.zeros(3), (penalty,), tol=1e-12)
        ours = fr.Davidson.fit(pairs, outcomes, features=features, penalty=penalty)
        np.testing.assert_allclose(ours.coefficients, theirs.x[:2], atol=1e-4)
        assert float(ours.nu) == pytest.approx(np.exp(theirs.x[2]), abs=1e-4)


@laws
def test_standard_errors_are_those_of_repeated_data(name):
    fits = []
    for seed in range(60):
        law, pairs, _, outcomes = drawn(name, rows=500, n=3, seed=seed)
        fits.append(type(law).fit(pairs, outcomes))
    spread = torch.stack([fit.scores for fit in fits]).std(0)
    for kind in ("information", "sandwich"):
        stated = torch.stack([fit.standard_errors(kind) for fit in fits]).mean(0)
        assert ((stated / spread - 1).abs() < 0.35).all()
    refits = fits[0].fitted.refits(300, torch.Generator().manual_seed(0))
    torch.testing.assert_close(refits.std(0), fits[0].standard_errors(), rtol=0.2, atol=0)
    short = fits[0].fitted.refits(300, torch.Generator().manual_seed(0), one_step=True)
    torch.testing.assert_close(short.std(0), fits[0].standard_errors(), rtol=0.2, atol=0)


def test_judges_that_repeat_themselves_are_no_more_battles():
    _, pairs, _, outcomes = drawn("davidson", rows=300, n=3)
    judges = torch.arange(300).repeat(4)
    copied = fr.Davidson.fit(pairs.repeat(4, 1), outcomes.repeat(4), groups=judges)
    alone = fr.Davidson.fit(pairs, outcomes)
    torch.testing.assert_close(copied.scores, alone.scores)
    torch.testing.assert_close(copied.standard_errors("sandwich"), alone.standard_errors("sandwich"))
    torch.testing.assert_close(2 * copied.standard_errors(), alone.standard_errors())
    spread = copied.fitted.refits(400, torch.Generator().manual_seed(0)).std(0)
    torch.testing.assert_close(spread, alone.standard_errors("sandwich"), rtol=0.2, atol=0)


def test_a_judge_for_each_comparison_is_the_same_as_none():
    _, pairs, _, outcomes = drawn("davidson", rows=200, n=3)
    away = torch.randn(200, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    alone, judged = (
        fr.Davidson.fit(pairs, outcomes, covariates=away, groups=groups).fitted.covariance("sandwich")
        for groups in (None, torch.arange(200))
    )
    torch.testing.assert_close(judged, alone)


def test_counts_are_as_good_as_rows():
    _, pairs, _, outcomes = drawn("rao-kupper", rows=500)
    key = torch.cat([pairs, outcomes[:, None]], 1)
    unique, counts = key.unique(dim=0, return_counts=True)
    rows = fr.RaoKupper.fit(pairs, outcomes)
    kinds = fr.RaoKupper.fit(unique[:, :2], unique[:, 2], weights=counts)
    torch.testing.assert_close(rows.scores, kinds.scores)
    torch.testing.assert_close(rows.covariance(), kinds.covariance())
    sparse = collect(pairs.numpy() * 1000, outcomes.numpy())  # too many items for a table
    dense = collect(pairs.numpy(), outcomes.numpy())
    assert (sparse.first == dense.first * 1000).all()
    assert (sparse.counts == dense.counts).all()


@pytest.mark.parametrize(
    ("pairs", "outcomes", "message"),
    [
        ([[0, 1], [0, 1]], [0, 0], "nothing else is ever placed above item 0"),
        ([[0, 1], [1, 0], [2, 3], [3, 2]], [0, 0, 0, 0], "no battle compares items 2, 3 with the rest"),
        ([[0, 0]], [0], "row 0 holds 0 twice"),
        ([[0, 1]], [3], "row 0 holds"),
        ([[0, 1]], [0.7], "row 0 holds"),
        ([[0, 1]], ["x"], "'model_a', 'model_b' or 'tie'"),
        ([[0, -1]], [0], "row 0 holds -1"),
        ([[0, 1, 2]], [0], r"pairs are integers \(rows, 2\)"),
        ([[0.0, 1.0]], [0], r"pairs are integers \(rows, 2\)"),
        ([[0, 1]], [0, 1], "one outcome a comparison"),
    ],
)
def test_what_cannot_be_fitted_is_named(pairs, outcomes, message):
    with pytest.raises(FitError, match=message):
        fr.BradleyTerry.fit(pairs, outcomes)


def test_a_penalty_settles_what_has_no_maximum():
    law = fr.BradleyTerry.fit([[0, 1], [0, 1]], [0, 0], penalty=1.0)
    assert law.scores[0] > 0 > law.scores[1]
    with pytest.raises(FitError, match="every comparison is a tie"):
        fr.Davidson.fit([[0, 1]], [2])
    with pytest.raises(FitError, match="weights are finite and at least 0, but row 1 holds -1"):
        fr.Davidson.fit([[0, 1], [1, 0]], [0, 0], weights=[1, -1])
    with pytest.raises(FitError, match="linearly dependent"):
        fr.Davidson.fit([[0, 1], [1, 0]], [0, 0], covariates=[[1, 2], [2, 4]])


def test_without_ties_the_laws_agree():
    _, pairs, _, outcomes = drawn("bradley-terry", rows=300)
    one = fr.BradleyTerry.fit(pairs, outcomes)
    for law in (fr.Davidson.fit(pairs, outcomes), fr.RaoKupper.fit(pairs, outcomes)):
        torch.testing.assert_close(law.scores, one.scores)
        assert law.report.parameters == one.report.parameters
    assert (fr.Davidson.fit(pairs, outcomes).nu, fr.RaoKupper.fit(pairs, outcomes).kappa) == (0, 1)


def test_bad_arguments_are_refused():
    law = fr.Davidson([0.0, 1.0])
    for wrong in (lambda: law.log_prob([0, 2], 0), lambda: law.log_prob([0, 1], 3)):
        with pytest.raises(DistributionError):
            wrong()
    for wrong in (lambda: law.log_prob([0.0, 1.0], 0), lambda: law.log_probs([0, 1], [1.0])):
        with pytest.raises(DistributionError):
            wrong()
    for wrong in (lambda: fr.RaoKupper([0.0], kappa=0.5), lambda: fr.Davidson([0.0], nu=-1)):
        with pytest.raises(DistributionError):
            wrong()
    with pytest.raises(DistributionError, match="was not fitted"):
        law.standard_errors()
    assert outcome_codes(torch.tensor([1, 0]), 2).tolist() == [1, 0]


@pytest.mark.parametrize("law", [fr.Davidson, fr.RaoKupper])
def test_ties_of_items_against_scipy_and_known_parameters(law):
    name = "nu" if law is fr.Davidson else "kappa"
    ties = torch.tensor([1.5, 2.5, 1.2, 2.0], dtype=torch.float64)
    truth = law(torch.tensor([0.5, 0.0, -0.5, 0.0], dtype=torch.float64), ties)
    generator = torch.Generator().manual_seed(0)
    pairs = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(4000)])
    worth = truth.log_probs([1, 3]).exp()
    product = (ties[1] * ties[3]).sqrt()
    torch.testing.assert_close(worth, law(truth.scores, product).log_probs([1, 3]).exp())
    outcomes = truth.sample(pairs, generator=generator)
    fitted = law.fit(pairs, outcomes, item_ties=True)
    assert fitted.report.parameters == 7
    assert ((getattr(fitted, name) / ties).log().abs() < 0.3).all()
    scores = fitted.scores.clone().requires_grad_()
    free = getattr(fitted, name).clone().requires_grad_()
    total = law(scores, free).log_prob(pairs, outcomes).sum()
    assert total.item() == pytest.approx(fitted.report.log_likelihood)
    assert max(slope.abs().max() for slope in torch.autograd.grad(total, (scores, free))) < 1e-3
    assert total > law.fit(pairs, outcomes).report.log_likelihood
    # The covariance is the inverse of minus the Hessian, for scores of mean zero.
    covariance = fitted.fitted.covariance()
    parameters = torch.cat([fitted.scores, getattr(fitted, name).log()])
    hessian = torch.autograd.functional.hessian(
        lambda p: -law(p[:4], p[4:].exp()).log_prob(pairs, outcomes).sum(), parameters
    )
    wanted = torch.linalg.pinv(hessian, rtol=1e-9, hermitian=True)
    torch.testing.assert_close(covariance, wanted, atol=1e-6, rtol=1e-4)
    groups = fitted.fitted.covariance("sandwich")
    alone = law.fit(pairs, outcomes, item_ties=True, groups=torch.arange(4000))
    torch.testing.assert_close(groups, alone.fitted.covariance("sandwich"))


def test_pseudo_counts_are_battles_with_an_imagined_item():
    _, pairs, _, outcomes = drawn("bradley-terry", rows=60)
    more = torch.tensor([[item, 5] for item in range(5)]).repeat(2, 1)
    whole = fr.BradleyTerry.fit(
        torch.cat([pairs, more]),
        torch.cat([outcomes, torch.tensor([0] * 5 + [1] * 5)]),
        weights=torch.cat([torch.ones(60), torch.full((10,), 0.5)]),
    )
    ours = fr.BradleyTerry.fit(pairs, outcomes, pseudo_count=0.5)
    theirs = whole.scores[:5] - whole.scores[:5].mean()
    torch.testing.assert_close(ours.scores, theirs, atol=1e-6, rtol=0)
    never_lost = fr.BradleyTerry.fit([[0, 1], [0, 1]], [0, 0], pseudo_count=0.5)
    assert 0 < never_lost.scores[0] < 5
    with pytest.raises(FitError, match="pseudo_count=0 and a penalty"):
        fr.BradleyTerry.fit(pairs, outcomes, pseudo_count=1.0, features=np.eye(5)[:, :4])


def test_what_ties_do_not_determine_is_refused():
    with pytest.raises(FitError, match="scores go apart for ever; a penalty above 0 settles it"):
        fr.Davidson.fit([[0, 1], [0, 2], [0, 2], [2, 0]], [2, 0, 2, 2])
    with pytest.raises(FitError, match=r"item 2 never tied.*item_ties=False has one for all"):
        fr.Davidson.fit([[0, 1], [0, 1], [1, 2], [2, 0]], [2, 0, 0, 0], item_ties=True)
    with pytest.raises(FitError, match="no tie parameter: item_ties=False"):
        fr.BradleyTerry.fit([[0, 1], [0, 1]], [1, 0], item_ties=True)
    with pytest.raises(DistributionError, match="one for each of the 2 items, not shape"):
        fr.Davidson([0.0, 1.0], nu=torch.ones(3))
