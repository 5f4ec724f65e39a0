"""The data of a run: held-out shares, padded lists, and what is refused."""

import json
import random

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from factorank.errors import FactorankError
from factorank.training import train
from factorank.training.data import _checksum
from tests.training.stand_in import ORDERS, QUICK, make


def test_a_share_is_held_out(tmp_path):
    train(make(), ORDERS, held_out=0.25, out=tmp_path, **QUICK)
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["format"] == 1
    assert record["data"]["rows"] == 45
    assert record["held_out"]["rows"] == 15


@pytest.mark.parametrize(("rows", "share", "kept"), [(20, 0.05, 1), (20, 0.95, 19)])
def test_one_row_at_least_is_held_out_and_one_trained_on(rows, share, kept, tmp_path):
    train(make(), ORDERS[:rows], held_out=share, out=tmp_path, steps=1, batch_size=1, device="cpu")
    record = json.loads((tmp_path / "training.json").read_text())
    assert (record["data"]["rows"], record["held_out"]["rows"]) == (rows - kept, kept)
    for nothing in (0.02, 0.98, 0.0, 1.0):
        with pytest.raises(FactorankError, match="of 20 rows leaves none to train on or none to hold out"):
            train(make(), ORDERS[:rows], held_out=nothing, steps=1, batch_size=1, device="cpu")


class Augmented(Dataset):
    """Items that are others each time they are read."""

    chance = random.Random(0)

    def __len__(self):
        return len(ORDERS)

    def __getitem__(self, index):
        return torch.tensor(self.chance.sample(range(5), 5))


def test_a_run_on_items_that_change_can_be_resumed(tmp_path):
    options = {"batch_size": 20, "schedule": "constant", "warmup": 1, "device": "cpu", "out": tmp_path}
    for steps in (2, 3):
        assert train(make(), Augmented(), steps=steps, **options).steps == steps
    assert json.loads((tmp_path / "training.json").read_text())["data"]["checksum"] is None


@pytest.mark.parametrize("values", [[[3, -1, 2**62]], [[0.5, -2.0], [float("inf"), 0.0]]])
def test_the_checksum_is_what_runs_were_begun_with(values):
    """Another one would refuse to go on with every run there is."""

    def signed(number):
        return (number + 2**63) % 2**64 - 2**63

    tensor = torch.tensor(values)
    bits = tensor.view(torch.int32) if tensor.is_floating_point() else tensor
    total = 0
    for place, number in enumerate(bits.flatten().tolist()):
        mixed = signed(number + place * 0x9E3779B97F4A7C1)
        mixed = signed((mixed ^ mixed >> 30) * 0x3F58476D1CE4E5B9)
        mixed = signed((mixed ^ mixed >> 27) * 0x14D049BB133111EB)
        total += mixed ^ mixed >> 31
    assert _checksum(tensor) == signed(total)


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
