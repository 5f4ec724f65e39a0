"""Every ``fit`` shows its options, the same as the function behind it."""

import inspect

import pytest

import factorank as fr
from factorank.distributions.fitting.registry import fitter

FAMILIES = (fr.Mallows, fr.GeneralizedMallows, fr.RIM, fr.PlackettLuce, fr.Mixture)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_options_are_in_the_signature_and_the_docstring(family):
    shown = inspect.signature(family.fit).parameters
    assert list(shown) == list(inspect.signature(fitter(family)).parameters)
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in shown.values())
    for name in shown:
        assert f" {name}: " in family.fit.__doc__, name
