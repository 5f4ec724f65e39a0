"""Every ``fit`` shows its options."""

import inspect

import pytest

import factorank as fr

FAMILIES = (fr.Mallows, fr.GeneralizedMallows, fr.RIM, fr.PlackettLuce, fr.Mixture)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_options_are_in_the_signature_and_the_docstring(family):
    shown = inspect.signature(family.fit).parameters
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in shown.values())
    for name in shown:
        assert f" {name}: " in family.fit.__doc__, name
