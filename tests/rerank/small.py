"""Ratings drawn at random and small rankers for the tests."""

from dataclasses import replace

import torch

import factorank as fr
from factorank.data.ratings import Ratings


def ratings(users=60, items=12, least=8, seed=0, features=False, taste=2.0):
    """Items whose height grows with their number, and users of two tastes."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for user in range(users):
        count = int(torch.randint(least, items + 1, (), generator=generator))
        for item in torch.randperm(items, generator=generator)[:count].tolist():
            liked = taste if item % 2 == user % 2 else 0.0
            noise = float(torch.randn((), generator=generator))
            rows.append(
                (f"user {user}", 100 + item, round(min(max(item / 4 + liked + noise, 0.5), 5) * 2) / 2)
            )
    table = Ratings.from_rows(*map(list, zip(*rows, strict=True)))
    if features:
        numbers = torch.tensor([[(i - 100) % 2, (i - 100) / 4] for i in table.ids], dtype=torch.float32)
        table = replace(table, features=numbers, feature_names=["parity", "height"])
    return table


SMALL = {"n": 8, "shortest": 4, "width": 16, "depth": 2, "heads": 2, "rank": 2, "steps": 3}
SMALL |= {"batch_size": 32, "held_out": 32, "told": "order", "features": ("mean", "factors")}


def ranker(objective="masked", **changes):
    """A hardly trained ranker of 12 items, ids 100..111, titles "item 0".."item 11"."""
    setting = fr.rerank.preset("small", **SMALL | {"objective": objective} | changes)
    data = replace(ratings(features="given" in setting.features), titles=[f"item {i}" for i in range(12)])
    return fr.Ranker.fit(data, 0.2, setting=setting, device="cpu", lr=0.05)
