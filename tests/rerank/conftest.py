"""Rankers for tests that do not change them: one of each objective, one that reads prices."""

from dataclasses import replace

import pytest
import torch

import factorank as fr
from factorank.data.ratings import Ratings
from tests.rerank.small import SMALL, ranker


@pytest.fixture(scope="module")
def masked():
    return ranker()


@pytest.fixture(scope="module")
def causal():
    return ranker("autoregressive")


@pytest.fixture(scope="module")
def priced():
    """A ranker of items with prices of 1 to 1000: the dear ones are preferred."""
    generator = torch.Generator().manual_seed(0)
    price = {item: 1 + 111 * item for item in range(10)}
    rows = [
        (
            user,
            item,
            min(5.0, max(0.5, price[item] / 220 + 0.3 * float(torch.randn((), generator=generator)))),
        )
        for user in range(150)
        for item in price
    ]
    table = Ratings.from_rows(*map(list, zip(*rows, strict=True)))
    numbers = torch.tensor([[float(price[item])] for item in table.ids])
    scaled = (numbers - numbers.mean()) / numbers.std()
    scales = [(float(numbers.mean()), float(numbers.std()))]
    table = replace(table, features=scaled, feature_names=["price"], feature_scales=scales)
    changes = SMALL | {"n": 8, "features": ("given",), "item_dropout": 0.5, "steps": 120, "batch_size": 64}
    return fr.Ranker.fit(table, 0.1, setting=fr.rerank.preset("small", **changes), device="cpu", lr=0.01)
