"""A ranker of each objective, for tests that do not change it."""

import pytest

from tests.rerank.small import ranker


@pytest.fixture(scope="module")
def masked():
    return ranker()


@pytest.fixture(scope="module")
def causal():
    return ranker("autoregressive")
