"""The data of a run: held-out shares, padded lists, and what is refused."""

import json

import pytest
import torch
from torch.utils.data import IterableDataset

from factorank.errors import FactorankError
from factorank.training import train
from tests.training.stand_in import ORDERS, QUICK, make


def test_a_share_is_held_out(tmp_path):
    train(make(), ORDERS, held_out=0.25, out=tmp_path, **QUICK)
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["format"] == 1
    assert record["data"]["rows"] == 45
    assert record["held_out"]["rows"] == 15


def test_padded_lists_are_accepted_where_the_model_accepts_them():
    padded = torch.tensor([[1, 0, 2, -1, -1], [4, 3, 2, 1, 0]]).repeat(10, 1)
    model = make()
    loss = model.loss
    model.loss = lambda order, context=None, *, generator=None: loss(order.clamp(min=0), generator=generator)
    train(model, padded, **QUICK)


BAD_DATA = {
    "empty": (torch.empty(0, 5, dtype=torch.int64), "no rows"),
    "wrong n": (torch.arange(4)[None], "orders 5 items but the data have 4"),
    "not permutations": (torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 3, 3]]), "row 1 holds 3 twice"),
    "floats": (torch.rand(3, 5), "float32"),
    "one order": (torch.arange(5), r"orders \(rows, n\)"),
    "hole": (torch.tensor([[0, -1, 1, 2, 3]]), "then -1 to the end"),
    "context": ((torch.arange(5)[None], torch.zeros(2)), "1 orders but a context tensor"),
    "list": ([[0, 1, 2, 3, 4]], "not a list"),
    "iterator": (iter([torch.arange(5)]), "an iterable gives batches"),
    "batch size of a loader": (iter([torch.arange(5)[None]]), "leave it out"),
    "no batches": ([], "the data have no batches"),
    "function of another n": (lambda size, generator: torch.arange(4).expand(size, 4), "5 items and made"),
    "function of another size": (lambda size, generator: torch.arange(5).expand(3, 5), "asked for 2 orders"),
}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(ORDERS)


@pytest.mark.parametrize("case", [*BAD_DATA, "stream"])
def test_bad_data_are_refused_before_anything_is_touched(tmp_path, case):
    data, message = (Stream(), "an iterable gives batches") if case == "stream" else BAD_DATA[case]
    with pytest.raises(FactorankError, match=message):
        train(make(), data, steps=2, batch_size=1, device="cpu", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
