"""Families by name: what each is fitted to, and what is refused."""

import pytest
import torch

import factorank as fr
from factorank.data import Rankings
from factorank.votes import FAMILIES, FitSettings, family_of, fit_family
from factorank.votes.families import PARTLY_FITTED

G = torch.Generator


@pytest.mark.parametrize("name", ["generalized-mallows", "rim", "mixture"])
def test_families_for_complete_rankings_say_so(name):
    votes = Rankings.from_orders(torch.tensor([[0, 1, -1], [1, 0, 2]]))
    with pytest.raises(fr.FactorankError, match="is fitted to complete rankings only"):
        fit_family(name, votes, FitSettings(unranked="below", family="rim"), G())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_fitted_law_is_of_its_family(name):
    votes = Rankings.from_orders(torch.tensor([[0, 1, 2], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0]]))
    settings = FitSettings(restarts=1, max_iterations=5, smoothing=1.0, penalty=0.1)
    assert family_of(fit_family(name, votes, settings, G().manual_seed(0))) == name


@pytest.mark.parametrize("name", PARTLY_FITTED)
def test_some_families_are_fitted_to_rankings_that_leave_items_out(name):
    votes = Rankings.from_orders(torch.tensor([[0, 1, -1], [1, 0, 2], [2, -1, -1]]))
    settings = FitSettings(
        unranked="below", family="plackett-luce", penalty=0.1, restarts=1, max_iterations=5
    )
    assert family_of(fit_family(name, votes, settings, G().manual_seed(0))) == name


def test_other_names_and_laws_are_refused():
    votes = Rankings.from_orders(torch.tensor([[0, 1, 2]]))
    with pytest.raises(fr.FactorankError, match="there is no family 'gauss'; there are uniform, mallows,"):
        fit_family("gauss", votes)
    with pytest.raises(fr.FactorankError, match="is of none of the families"):
        family_of(fr.Mallows([0, 1, 2], 0.5).condition(observed=[2, 0]))
