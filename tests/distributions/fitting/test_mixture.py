import itertools
import math

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.distributions.fitting.em import cluster_voters
from factorank.distributions.fitting.mixture_families import FAMILIES
from factorank.errors import FactorankError

N = 6
CENTRAL = torch.tensor([3, 1, 4, 0, 5, 2])


def generator(seed):
    return torch.Generator().manual_seed(seed)


def votes_of(law, count=1500, seed=0):
    return law.sample((count,), generator=generator(seed))


def truth(family):
    first, second = CENTRAL, CENTRAL.flip(0)
    if family == "mallows":
        parts = [fr.Mallows(first, 0.3), fr.Mallows(second, 0.5)]
    elif family == "generalized-mallows":
        phis = torch.tensor([1.0, 0.2, 0.3, 0.6, 0.4, 0.3])
        parts = [fr.GeneralizedMallows(first, phis), fr.GeneralizedMallows(second, phis.flip(0))]
    elif family == "rim":
        table = torch.rand(N, N, generator=generator(5)).tril() ** 3
        table = (table + 2 * torch.eye(N)) / (table + 2 * torch.eye(N)).sum(1, keepdim=True)
        parts = [fr.RIM(table, first), fr.RIM(table, second)]
    else:
        logits = torch.tensor([2.0, 1.0, 0.5, -0.5, -1.0, -2.0])
        parts = [fr.PlackettLuce(logits), fr.PlackettLuce(-logits)]
    return fr.Mixture([0.35, 0.65], parts)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("components", [1, 2, 3])
def test_the_likelihood_never_falls(family, components):
    votes = votes_of(truth(family), 400)
    law = fr.Mixture.fit(votes, components=components, family=family, restarts=2, generator=generator(1))
    history = law.report.history
    assert all(later >= earlier - 1e-9 * abs(earlier) for earlier, later in itertools.pairwise(history))
    assert history[-1] == law.report.log_likelihood
    assert law.report.log_likelihood == pytest.approx(float(law.log_prob(votes).sum()), rel=1e-10)
    assert float(law.weights.sum()) == pytest.approx(1)
    single = {"mallows": 1, "generalized-mallows": N - 1, "rim": 15, "plackett-luce": N - 1}[family]
    assert law.report.parameters == components * single + components - 1
    p, value = law.report.parameters, law.report.log_likelihood
    assert law.report.aic == pytest.approx(2 * p - 2 * value)
    assert law.report.bic == pytest.approx(p * math.log(400) - 2 * value)


@pytest.mark.parametrize("family", FAMILIES)
def test_two_components_are_recovered(family):
    law = truth(family)
    votes = votes_of(law)
    fitted = fr.Mixture.fit(votes, components=2, family=family, generator=generator(1))
    assert fitted.report.converged
    assert float(fitted.weights.min()) == pytest.approx(0.35, abs=0.04)
    assert fitted.report.log_likelihood >= float(law.log_prob(votes).sum())
    fresh = votes_of(law, 4000, seed=9)  # close to the truth as a law, however it is written
    gap = float((law.log_prob(fresh) - fitted.log_prob(fresh)).mean())
    assert abs(gap) < 0.04
    order = fitted.weights.argsort().tolist()
    if family == "mallows":
        for k, expected in zip(order, law.components, strict=True):
            assert torch.equal(fitted.components[k].central, expected.central)
            assert float(fitted.components[k].phi) == pytest.approx(float(expected.phi), abs=0.03)
    if family == "plackett-luce":
        for k, expected in zip(order, law.components, strict=True):
            torch.testing.assert_close(
                fitted.components[k].logits.float(), expected.logits, atol=0.35, rtol=0
            )


@pytest.mark.parametrize("family", FAMILIES)
def test_one_component_is_the_plain_fit(family):
    votes = votes_of(truth(family), 300)
    law = fr.Mixture.fit(votes, components=1, family=family)
    plain = {
        "mallows": fr.Mallows,
        "generalized-mallows": fr.GeneralizedMallows,
        "rim": fr.RIM,
        "plackett-luce": fr.PlackettLuce,
    }[family].fit(votes)
    assert law.report.log_likelihood == pytest.approx(plain.report.log_likelihood, abs=1e-4)
    torch.testing.assert_close(law.log_prob(votes), plain.log_prob(votes), atol=1e-3, rtol=0)


def test_a_richer_family_is_at_least_as_likely_from_the_same_start():
    votes = votes_of(truth("mallows"), 600)
    values = [
        fr.Mixture.fit(votes, components=2, family=family, generator=generator(3)).report.log_likelihood
        for family in ("mallows", "generalized-mallows")
    ]
    assert values[0] <= values[1]


def test_weights_are_repetitions():
    votes = votes_of(truth("mallows"), 60)
    counts = torch.arange(60) % 4
    first = fr.Mixture.fit(votes, counts, components=2, restarts=1, generator=generator(0))
    second = fr.Mixture.fit(
        votes.repeat_interleave(counts, 0), components=2, restarts=1, generator=generator(0)
    )
    assert first.report.log_likelihood == pytest.approx(second.report.log_likelihood)
    assert first.report.rankings == second.report.rankings == float(counts.sum())


def test_seeds_and_restarts():
    votes = votes_of(truth("mallows"), 200)
    first, second = (
        fr.Mixture.fit(votes, components=3, restarts=3, generator=generator(4)) for _ in range(2)
    )
    assert first.report == second.report
    assert len(first.report.restarts) == 3
    assert first.report.history[-1] == max(first.report.restarts)


def test_more_components_than_votes_can_fill():
    votes = torch.tensor([[0, 1, 2]] * 5 + [[2, 1, 0]] * 5)
    law = fr.Mixture.fit(votes, components=4, generator=generator(0))
    assert law.log_prob(votes).isfinite().all()
    assert law.report.log_likelihood == pytest.approx(10 * math.log(0.5), abs=1e-3)
    assert float(law.weights.sum()) == pytest.approx(1)
    same = fr.Mixture.fit(torch.tensor([[1, 0, 2]] * 3), components=2, generator=generator(0))
    assert same.report.log_likelihood == pytest.approx(0, abs=1e-6)


def test_an_empty_component_keeps_weight_zero():
    from factorank.distributions.fitting import mixture, mixture_families
    from factorank.distributions.fitting.ballots import read_ballots
    from factorank.distributions.fitting.em import EMSettings

    class Selfish(mixture_families.MallowsFamily):
        """All components but the first explain nothing."""

        def log_probs(self, rows, laws):
            logs = super().log_probs(rows, laws)
            logs[:, 1:] = -math.inf
            return logs

    votes = fr.random_permutations(4, (30,), generator=generator(0))
    settings = EMSettings(max_iterations=50, tolerance=1e-6, components=2, generator=generator(1))
    shares, laws, report = mixture.fit_by_em(Selfish(fr.Mallows), read_ballots(votes), settings)
    assert shares.tolist() == [1.0, 0.0]
    assert len(laws) == 2
    assert report.converged
    assert math.isfinite(report.log_likelihood)
    assert "1 of 2 components are empty" in report.warnings


@pytest.mark.parametrize("seed", range(3))
def test_many_starts_find_what_few_miss(seed):
    """Six groups of voters around orders far apart: the best start is at least as good as the truth."""
    centres = fr.random_permutations(7, (6,), generator=generator(seed))
    law = fr.Mixture(torch.ones(6), [fr.Mallows(centre, 0.35) for centre in centres])
    votes = votes_of(law, 900, seed)
    fitted = fr.Mixture.fit(votes, components=6, restarts=20, max_iterations=100, generator=generator(seed))
    assert fitted.report.log_likelihood > float(law.log_prob(votes).sum())
    assert fitted.report.starts == 20
    assert fitted.report.restarts[0] == pytest.approx(fitted.report.log_likelihood)
    assert "20; the best ended at" in str(fitted.report)


def test_stopping_early_is_said():
    law = fr.Mixture.fit(
        votes_of(truth("mallows"), 200), components=3, max_iterations=2, generator=generator(0)
    )
    assert not law.report.converged
    assert "NO, after 2 iterations" in str(law.report)
    assert any("still raised" in text for text in law.report.warnings)


def test_a_plackett_luce_component_without_maximum_is_named_and_a_penalty_helps():
    votes = torch.tensor([[0, 1, 2, 3]] * 30 + [[3, 2, 1, 0]] * 30)
    with pytest.warns(fr.FitWarning, match="no maximum") as caught:
        law = fr.Mixture.fit(votes, components=2, family="plackett-luce", generator=generator(0))
    assert {warning.filename for warning in caught} == {__file__}  # the line of the one who fits
    assert law.log_prob(votes).isfinite().all()
    assert any("no maximum" in text for text in law.report.warnings)
    tame = fr.Mixture.fit(votes, components=2, family="plackett-luce", penalty=0.5, generator=generator(0))
    assert not tame.report.warnings
    with pytest.warns(
        fr.FitWarning, match="in component 0 .* above item 0, and nothing else below items 1, 2"
    ):
        fr.Mixture.fit(torch.tensor([[0, 1, 2], [0, 2, 1]]), components=1, family="plackett-luce")
    assert float(torch.stack([part.logits for part in tame.components]).abs().max()) < 8
    history = tame.report.history
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(history))


def test_smoothing_keeps_every_order_possible():
    votes = votes_of(truth("rim"), 30)
    law = fr.Mixture.fit(votes, components=2, family="rim", smoothing=0.5, generator=generator(0))
    assert law.log_prob(votes_of(truth("rim"), 500, seed=3)).isfinite().all()
    history = law.report.history
    assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(history))


def test_no_bar_without_a_terminal(capsys):
    fr.Mixture.fit(votes_of(truth("mallows"), 50), components=2, progress=True, generator=generator(0))
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def cut(votes, seed=0):
    """The votes with a random number of their last places, but never all, turned to -1."""
    kept = torch.randint(1, votes.shape[1], (len(votes), 1), generator=generator(seed))
    return votes.masked_fill(torch.arange(votes.shape[1]) >= kept, -1)


def subsets(votes, size, seed=0):
    """Each vote's order of a random subset of the items, as it stands."""
    chosen = torch.rand(votes.shape, generator=generator(seed)).argsort(1) < size
    return votes[chosen].view(len(votes), size)


@pytest.mark.parametrize("unranked", ["below", "incomparable"])
def test_plackett_luce_components_are_recovered_from_partial_rankings(unranked):
    law = truth("plackett-luce")
    votes = votes_of(law, 6000)
    votes = cut(votes) if unranked == "below" else subsets(votes, 4)
    options = {"components": 2, "family": "plackett-luce", "unranked": unranked, "items": N, "restarts": 2}
    fitted = fr.Mixture.fit(votes, generator=generator(1), **options)
    history = fitted.report.history
    assert all(later >= earlier - 1e-9 * abs(earlier) for earlier, later in itertools.pairwise(history))
    assert fitted.report.converged
    assert float(fitted.weights.min()) == pytest.approx(0.35, abs=0.05)
    for k, expected in zip(fitted.weights.argsort().tolist(), law.components, strict=True):
        torch.testing.assert_close(fitted.components[k].logits.float(), expected.logits, atol=0.35, rtol=0)


@pytest.mark.parametrize("unranked", ["below", "incomparable"])
def test_one_component_of_partial_rankings_is_the_plain_fit(unranked):
    votes = cut(votes_of(truth("plackett-luce"), 500))
    plain = fr.PlackettLuce.fit(votes, unranked=unranked)
    law = fr.Mixture.fit(votes, components=1, family="plackett-luce", unranked=unranked)
    assert law.report.log_likelihood == pytest.approx(plain.report.log_likelihood, abs=1e-3)
    torch.testing.assert_close(law.components[0].logits, plain.logits, atol=1e-2, rtol=0)


def test_complete_rankings_need_no_word_on_items_left_out():
    votes = votes_of(truth("plackett-luce"), 200)
    first, second = (
        fr.Mixture.fit(
            votes, components=2, family="plackett-luce", restarts=1, generator=generator(0), unranked=unranked
        )
        for unranked in (None, "below")
    )
    assert first.report.log_likelihood == pytest.approx(second.report.log_likelihood, abs=1e-6)


@pytest.mark.parametrize("unranked", ["below", "incomparable"])
def test_the_likelihood_of_partial_rankings(unranked):
    from factorank.distributions.partial_orders import PartialOrders

    votes = cut(votes_of(truth("plackett-luce"), 200))
    law = fr.Mixture.fit(
        votes,
        components=2,
        family="plackett-luce",
        unranked=unranked,
        penalty=0.1,
        generator=generator(0),
    )
    every = fr.permutation_at(torch.arange(math.factorial(N)), N)
    partial = PartialOrders.from_orders(votes, unranked=unranked)
    agrees = partial.agrees(every[:, None].expand(-1, len(partial), -1))
    summed = law.log_prob(every)[:, None].masked_fill(~agrees, -math.inf).logsumexp(0)
    assert law.report.log_likelihood == pytest.approx(float(summed.sum()), rel=1e-9)


def test_mallows_takes_padded_orders_as_partial_orders():
    votes = cut(votes_of(truth("mallows"), 60))
    first = fr.Mixture.fit(votes, components=2, unranked="below", generator=generator(0), restarts=1)
    partial = fr.PartialOrders.from_orders(votes)
    second = fr.Mixture.fit(partial, components=2, generator=generator(0), restarts=1)
    assert first.report == second.report
    whole = votes_of(truth("mallows"), 60)
    law = fr.Mixture.fit(whole, components=1, unranked="below")
    assert law.report == fr.Mixture.fit(whole, components=1).report


def test_what_is_refused_of_partial_rankings():
    votes = cut(votes_of(truth("plackett-luce"), 20))
    with pytest.raises(FactorankError, match="say unranked='below'"):
        fr.Mixture.fit(votes, components=2, family="plackett-luce")
    chain = fr.PartialOrders.from_preferences([(0, 0, 1), (0, 2, 3)], 4)
    with pytest.raises(FactorankError, match="takes rankings, with ties and items left out, not partial"):
        fr.Mixture.fit(chain, components=2, family="plackett-luce")
    with pytest.raises(FactorankError, match="items= goes with unranked="):
        fr.Mixture.fit(votes, components=2, items=6)


def test_a_start_is_where_em_begins():
    votes = votes_of(truth("mallows"), 300)
    fitted = fr.Mixture.fit(votes, components=2, generator=generator(0))
    again = fr.Mixture.fit(votes, components=2, start=fitted)
    assert again.report.log_likelihood >= fitted.report.log_likelihood - 1e-9
    assert again.report.iterations <= 2
    assert [law.central.tolist() for law in again.components] == [
        law.central.tolist() for law in fitted.components
    ]
    with pytest.raises(FactorankError, match="start has 2 components, but 3 are fitted"):
        fr.Mixture.fit(votes, components=3, start=fitted)


def exact_likelihood(law, partial):
    every = fr.permutation_at(torch.arange(math.factorial(partial.n)), partial.n)
    agrees = partial.agrees(every[:, None].expand(-1, len(partial), -1))
    return float(law.log_prob(every).double()[:, None].masked_fill(~agrees, -math.inf).logsumexp(0).sum())


@pytest.mark.parametrize("family", FAMILIES)
def test_ties_are_summed_over(family):
    """The likelihood of tied votes is that of all orders that agree with them, for every family."""
    votes = votes_of(truth(family), 150)
    ranks = fr.inverse(votes) // 2
    ranking = fr.votes.Rankings([f"item {i}" for i in range(N)], ranks)
    options = {"smoothing": 0.1} if family == "rim" else {"penalty": 0.1} if family == "plackett-luce" else {}
    law = fr.Mixture.fit(ranking, components=2, family=family, restarts=2, generator=generator(0), **options)
    partial = fr.PartialOrders.from_ranks(ranks)
    assert law.report.log_likelihood == pytest.approx(exact_likelihood(law, partial), rel=1e-9)
    assert law.report.items[0] == "item 0"
    history = law.report.history
    assert all(later >= earlier - 1e-9 * abs(earlier) for earlier, later in itertools.pairwise(history))


@pytest.mark.parametrize("family", ["mallows", "generalized-mallows", "rim"])
def test_particles_stand_for_orders_that_are_too_many(family, monkeypatch):
    """With no order listed, particles come close to the exact likelihood, and their error says how close."""
    from factorank.distributions.fitting import completed

    votes = subsets(votes_of(truth(family), 150), 3)
    partial = fr.PartialOrders.from_orders(votes, unranked="incomparable", items=N)
    monkeypatch.setattr(completed, "MOST_LISTED", 1)
    options = {"smoothing": 0.5} if family == "rim" else {}
    law = fr.Mixture.fit(
        partial, components=2, family=family, restarts=1, max_iterations=8, samples=30,
        generator=generator(0), **options,
    )  # fmt: skip
    error = law.report.standard_error
    assert 0 < error < 3
    assert abs(law.report.log_likelihood - exact_likelihood(law, partial)) < 4 * error + 0.3


def test_few_centres_are_tried_for_each_cluster():
    """Each costs a pass over the votes: one for the first cluster, two or so for each further one."""
    asked, places = [], np.arange(12.0)

    def distances_to(voter):
        asked.append(voter)
        return np.abs(places - places[voter])

    label, distance = cluster_voters(distances_to, np.ones(12), 2, torch.Generator().manual_seed(0))
    assert len(asked) == 1 + 2
    assert set(label.tolist()) == {0, 1}
    assert (distance <= np.abs(places - places[asked[0]])).all()
