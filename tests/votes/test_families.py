"""Families by name: what each is fitted to, what is refused, and refits to voters drawn with replacement."""

import math
from dataclasses import replace

import pytest
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.votes import FAMILIES, FitSettings, bootstrap, family_of, fit_family
from factorank.votes.families import MIXED

G = torch.Generator


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fitted_law_is_of_its_family(name):
    votes = Rankings.from_orders(torch.tensor([[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0]]))
    settings = FitSettings(restarts=1, max_iterations=5, smoothing=1.0, penalty=0.1)
    assert family_of(fit_family(name, votes, settings, G().manual_seed(0))) == name


@pytest.mark.parametrize("name", FAMILIES)
def test_all_families_are_fitted_to_rankings_that_leave_items_out(name):
    votes = Rankings.from_orders(torch.tensor([[0, 1, -1], [1, 0, 2], [2, -1, -1]]))
    settings = FitSettings(
        unranked="below", family="plackett-luce", penalty=0.1, smoothing=0.1, restarts=1, max_iterations=5
    )
    assert family_of(fit_family(name, votes, settings, G().manual_seed(0))) == name


def test_other_names_and_laws_are_refused():
    votes = Rankings.from_orders(torch.tensor([[0, 1, 2]]))
    with pytest.raises(fr.FactorankError, match="there is no family 'gauss'; there are uniform, mallows,"):
        fit_family("gauss", votes)
    with pytest.raises(fr.FactorankError, match="is of none of the families"):
        family_of(fr.Mallows([0, 1, 2], 0.5).condition(observed=[2, 0]))


@pytest.mark.parametrize(("name", "family"), [("mallows", ""), ("rim", ""), ("mixture", "mallows")])
def test_refits_scatter_around_the_fit(name, family):
    law = fr.Mallows(torch.arange(5), 0.5)
    votes = Rankings.from_orders(law.sample((400,), generator=G().manual_seed(2))).distinct()
    settings = FitSettings(family=family or "mallows", restarts=1)
    fitted = fit_family(name, votes, settings, G().manual_seed(3))
    again = bootstrap(fitted, votes, settings, count=20, generator=G().manual_seed(4))
    assert len(again) == 20
    assert {type(refit) for refit in again} == {type(fitted)}
    if name == "mallows":
        phis = torch.stack([refit.phi for refit in again])
        assert phis.std() > 0
        assert abs(phis.mean() - fitted.phi) < 3 * phis.std()


@pytest.mark.parametrize("family", MIXED)
def test_refits_of_a_mixture_keep_the_names_of_its_components(family):
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
    law = fr.Mixture([0.3, 0.7], [fr.PlackettLuce(logits), fr.PlackettLuce(-logits)])
    votes = Rankings.from_orders(law.sample((500,), generator=G().manual_seed(2))).distinct()
    settings = FitSettings(components=2, family=family, restarts=2)
    fitted = fit_family("mixture", votes, settings, G().manual_seed(3))
    again = bootstrap(fitted, votes, settings, count=8, generator=G().manual_seed(4))
    shares = torch.stack([refit.weights for refit in again])
    assert (shares - fitted.weights).abs().max() < 0.15
    assert shares.std(0).min() > 0
    drawn = votes.resample(G().manual_seed(4))  # the first of the refits is a fit to these
    first = again[0].log_prob(drawn.to_padded_orders()) @ drawn.weights
    assert first > fitted.log_prob(drawn.to_padded_orders()) @ drawn.weights


def test_resampling_draws_every_voter_alike():
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([300, 100]))
    shares = [votes.resample(G().manual_seed(seed)).counts[0] / 400 for seed in range(50)]
    assert abs(float(torch.stack(shares).mean()) - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 400 / 50)


def test_there_are_no_refits_where_they_would_mean_nothing_or_take_too_long():
    votes = Rankings.from_orders(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2], [0, 2, 1]]))
    assert bootstrap(fit_family("mallows", votes), votes, count=50) == []  # four voters
    tops = Rankings.from_orders(torch.tensor([[0, 1, -1], [1, -1, -1]] * 5)).distinct()
    settings = FitSettings(unranked="below", components=2, family="mallows", restarts=1, max_iterations=3)
    law = fit_family("mallows", tops, settings, G().manual_seed(0))
    assert len(bootstrap(law, tops, settings, count=3)) == 3  # top lists have a closed form
    law.report = replace(law.report, standard_error=1.0)
    assert bootstrap(law, tops, settings) == []
