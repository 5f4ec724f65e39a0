"""The sorting example, on drawn bars and in a few steps."""

import inspect
import re

import factorank as fr
from examples import sort_digits


def test_it_sorts_with_every_code():
    shares = sort_digits.main(n=3, steps=80)
    assert set(shares) == {"insertion", "lehmer"}
    assert min(shares.values()) > 0.5  # chance is a sixth


def test_it_is_short_and_uses_public_names_only():
    source = inspect.getsource(sort_digits)
    assert len(source.splitlines()) <= 60
    assert re.findall(r"from factorank", source) == []
    assert set(re.findall(r"fr\.(\w+)", source)) <= set(dir(fr))
