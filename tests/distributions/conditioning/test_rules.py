"""Which rule conditions a law: the nearest class first, a rule that declines passes on."""

import pytest
import torch

import factorank as fr
from factorank.distributions import ConditionedPlackettLuce, ConditionedUniform
from factorank.distributions.conditioning import rules


class Mine(fr.PlackettLuce):
    pass


class Yours(Mine):
    pass


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(rules, "_rules", dict(rules._rules))


@pytest.mark.usefixtures("registry")
def test_a_class_has_the_rule_of_its_nearest_base():
    assert isinstance(Yours(torch.zeros(9)).condition([0, 1]), ConditionedPlackettLuce)

    @rules.conditioning_rule(Mine)
    def rule(law, observed, effort):
        declines = effort.max_states == 7
        return None if declines else fr.Uniform(law.n).condition(observed)

    assert isinstance(Yours(torch.zeros(9)).condition([0, 1]), ConditionedUniform)
    assert isinstance(Yours(torch.zeros(9)).condition([0, 1], max_states=7), ConditionedPlackettLuce)
    assert isinstance(fr.PlackettLuce(torch.zeros(9)).condition([0, 1]), ConditionedPlackettLuce)


def test_every_law_is_a_permutation_distribution():
    for law in (fr.Uniform(3), fr.Uniform(3).condition([0, 1]), fr.Mixture([1.0], [fr.Uniform(3)])):
        assert isinstance(law, fr.PermutationDistribution)
