"""The batches of each step: epochs, shares of processes, and every kind of data."""

import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from factorank.errors import TrainingError
from factorank.permutations import random_permutations
from factorank.training import train
from factorank.training.batches import Deal, Shape, generate
from tests.training.stand_in import ORDERS, QUICK, make, same_weights


def test_an_epoch_reads_each_row_once():
    deal = Deal(23, Shape(5), seed=0, device=torch.device("cpu"))
    epochs = []
    for epoch in range(3):
        rows = []
        for index in range(4):
            deal.prepare(4 * epoch + index)
            rows += deal.indices(0).tolist()
        assert len(set(rows)) == 20
        epochs.append(rows)
    assert epochs[0] != epochs[1] != epochs[2]
    deal.prepare(5)  # stepping back, as a resumed run may, gives the same rows
    assert deal.indices(0).tolist() == epochs[1][5:10]


def test_ranks_and_passes_share_out_one_batch():
    whole = Deal(40, Shape(12), seed=7, device=torch.device("cpu"))
    whole.prepare(4)
    shared = []
    for part in range(2):
        for rank in range(3):
            deal = Deal(40, Shape(2, 2, rank, 3), seed=7, device=torch.device("cpu"))
            deal.prepare(4)
            shared += deal.indices(part).tolist()
    assert shared == whole.indices(0).tolist()


class Items(Dataset):
    def __len__(self):
        return len(ORDERS)

    def __getitem__(self, index):
        return ORDERS[index]


def test_tensor_dataset_and_items_train_alike():
    models = [make(), make(), make()]
    for model, data in zip(models, (ORDERS, TensorDataset(ORDERS), Items()), strict=True):
        train(model, data, **QUICK)
    assert same_weights(models[0], models[1])
    assert same_weights(models[0], models[2])


def test_context_travels_with_its_rows():
    context = ORDERS[:, 0].float()
    seen = []
    model = make()
    loss = model.loss
    model.loss = lambda order, context=None, *, generator=None: (
        seen.append(bool((order[:, 0] == context).all())) or loss(order, context, generator=generator)
    )
    train(model, (ORDERS, context), held_out=(ORDERS[:7], context[:7]), **QUICK)
    assert len(seen) > 12
    assert all(seen)


def test_a_function_makes_batches():
    asked = []

    def data(batch_size, generator):
        asked.append(batch_size)
        return random_permutations(5, (batch_size,), generator=generator)

    models = [make(), make()]
    for model in models:
        train(model, data, **QUICK)
    assert same_weights(*models)
    assert asked[1:13] == [20] * 12


def test_a_function_of_a_model_without_n_makes_orders_of_any_length(generator):
    def data(batch_size, generator):
        return random_permutations(5, (batch_size,), generator=generator)

    for n in (None, 5):
        assert generate(data, 3, generator, n)[0].shape == (3, 5)
    for wrong, n, said in (
        (lambda size, generator: data(size + 1, generator), None, "3 orders and made"),
        (data, 4, "3 orders of 4 items and made"),
    ):
        with pytest.raises(TrainingError, match=f"was asked for {said} a tensor"):
            generate(wrong, 3, generator, n)
