"""What is done with the data before a run begins: splitting off the held-out rows, and a first trial."""

from typing import Any

import torch

from factorank.errors import TrainingError
from factorank.training.checks import Batch, check_orders, check_table
from factorank.training.data import collate, made, stream_seed, tabulate, take, to_device


def split(table: Batch | None, held_out: Any, n: int | None, seed: int) -> tuple[Batch | None, Batch | None]:
    """The data to train on and the data to hold out."""
    if held_out is None:
        return table, None
    if not isinstance(held_out, float | int):
        kept = tabulate(held_out)
        if kept is None:
            raise TrainingError(
                "held_out is an order tensor, a pair (orders, context), or a share of the rows"
            )
        check_table(kept, n, "the held-out data")
        return table, kept
    if table is None:
        raise TrainingError(f"held_out={held_out} is a share of the rows of a tensor; these data are none")
    rows = table[0].shape[0]
    count = round(rows * held_out)
    if not 0 < held_out < 1 or not 0 < count < rows:
        raise TrainingError(f"held_out={held_out} of {rows} rows leaves none to train on or none to hold out")
    shuffled = torch.randperm(rows, generator=torch.Generator().manual_seed(stream_seed(seed, "split")))
    shuffled = shuffled.to(table[0].device)
    return take(table, shuffled[count:]), take(table, shuffled[:count])


@torch.no_grad()
def probe(
    model: Any, data: Any, table: Batch | None, kept: Batch | None, device: torch.device, n: int | None
) -> None:
    """Ask for the loss of two rows of everything first: what the model refuses, it refuses now."""
    generator = torch.Generator(device).manual_seed(0)
    if table is not None:
        batches = [_two_rows(table)]
    elif hasattr(data, "__len__"):
        batches = [collate(data, [0])]
    else:
        batches = [made(data, 2, generator, n)]
    was_training = model.training
    model.eval()
    for batch in batches + ([] if kept is None else [_two_rows(kept)]):
        if table is None:
            check_orders(batch[0], n, "the data")
        order, context = to_device(batch, device)
        loss = model.loss(order, context, generator=generator)
        if tuple(loss.shape) != tuple(order.shape[:1]):
            raise TrainingError(
                f"model.loss gave {tuple(loss.shape)} for orders {tuple(order.shape)}, not one a row"
            )
    model.train(was_training)


def _two_rows(table: Batch) -> Batch:
    """The first row and, if any list is shorter than n, the first such."""
    short = (table[0] < 0).any(-1).to(torch.int8).argmax()
    return take(table, torch.stack([torch.zeros_like(short), short]))
