"""Checks of the rankings, weights and settings of a fit; every message says where the fault is."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from factorank.distributions.fitting.errors import FitError
from factorank.errors import PermutationError
from factorank.permutations import as_rows, check_integer, check_permutation, row_name, signed

Unranked = Literal["below", "incomparable"]
"""The items that a ranking leaves out come after all listed ones, or are incomparable with them."""


def complete_orders(orders: Tensor) -> np.ndarray:
    """``orders`` ``(*batch, n)`` as int64 ``(rows, n)``, or an error that names the row."""
    check_integer(orders, "a fit takes orders")
    orders = signed(orders, "a fit takes")
    _check_some(orders)
    _check_base(orders)
    check_permutation(orders, "a fit takes")
    return as_rows(orders).to("cpu", torch.int64).numpy()


def padded_orders(
    orders: Tensor, unranked: Unranked | None, items: int | None
) -> tuple[np.ndarray, np.ndarray, int]:
    """Orders that may end in -1, as int64 ``(rows, width)``, the length of each, and the number of items."""
    check_integer(orders, "a fit takes orders")
    orders = signed(orders, "a fit takes")
    _check_some(orders)
    n = orders.shape[-1] if items is None else int(items)
    rows = as_rows(orders).to("cpu", torch.int64)
    width = rows.shape[1]
    if items is None:
        _check_base(orders)
    outside = (rows < -1) | (rows >= n)
    if (row := _first(outside.any(1))) is not None:
        position = _first(outside[row])
        hint = " (give items= where the orders are shorter than the list of items)" if items is None else ""
        raise PermutationError(
            f"orders of {n} items hold 0..{n - 1}, or -1 at the end, but {row_name(orders, row)} holds"
            f" {int(rows[row, position])} at position {position}{hint}"
        )
    listed = rows >= 0
    lengths = listed.sum(1)
    if (row := _first((listed != (torch.arange(width) < lengths[:, None])).any(1))) is not None:
        raise PermutationError(
            f"-1 may only fill the end of an order but {row_name(orders, row)} holds it at position"
            f" {_first(~listed[row])}, before an item"
        )
    if (row := _first(lengths == 0)) is not None:
        raise PermutationError(f"an order lists at least one item but {row_name(orders, row)} lists none")
    times = torch.zeros((len(rows), n + 1), dtype=torch.int64)
    times.scatter_add_(1, torch.where(listed, rows, n), listed.long())
    if (row := _first((times > 1).any(1))) is not None:
        item = int((times[row] > 1).int().argmax())
        places = (rows[row] == item).nonzero().flatten().tolist()
        raise PermutationError(
            f"an order lists an item once but {row_name(orders, row)} holds {item} twice, at positions"
            f" {places[0]} and {places[1]}"
        )
    check_unranked(unranked)
    if unranked is None and (row := _first(lengths < n)) is not None:
        raise FitError(
            f"{row_name(orders, row)} lists {int(lengths[row])} of {n} items: say unranked='below' if the"
            " others come after them (a top-k list), unranked='incomparable' if nothing is known of them (a"
            " ranking of a subset)"
        )
    return rows.numpy(), lengths.numpy(), n


def check_unranked(unranked: Unranked | None) -> None:
    """Refuse another word for how the items left out are ranked."""
    if unranked not in (None, "below", "incomparable"):
        raise FitError(f"unranked is 'below' or 'incomparable', not {unranked!r}")


def ranks_of_padded(rows: np.ndarray, n: int, left_out: int) -> np.ndarray:
    """The place of each item ``(rows, n)`` in orders ``(rows, k)`` that may end in -1.

    Items that an order leaves out have the rank ``left_out``.
    """
    ranks = np.full((len(rows), n + 1), left_out)  # the last column takes the -1
    np.put_along_axis(ranks, np.where(rows < 0, n, rows), np.arange(rows.shape[1])[None], axis=1)
    return np.ascontiguousarray(ranks[:, :n])


def row_weights(weights: Tensor | None, orders_shape: tuple[int, ...]) -> np.ndarray:
    """Weights as float64 ``(rows,)``, ones if they are None; at least one is positive."""
    count = int(np.prod(orders_shape))
    if weights is None:
        return np.ones(count)
    values = torch.as_tensor(weights)
    if tuple(values.shape) != tuple(orders_shape):
        raise FitError(
            f"one weight a ranking: expected shape {tuple(orders_shape)}, got {tuple(values.shape)}"
        )
    if values.is_complex():
        raise FitError(f"weights are real numbers, not {values.dtype}")
    flat = values.detach().to("cpu", torch.float64).reshape(-1).numpy()
    bad = ~np.isfinite(flat) | (flat < 0)
    if bad.any():
        row = int(bad.argmax())
        raise FitError(f"weights are finite and at least 0 but ranking {row} has weight {flat[row]:g}")
    if not flat.sum() > 0:
        raise FitError("at least one weight must be above 0")
    return np.array(flat)


def reference_order(order: Sequence[int] | Tensor, n: int) -> np.ndarray:
    """A reference order that the caller chose, checked to be one of n items."""
    order = torch.as_tensor(order)
    check_permutation(order, "a reference is one of the")
    if order.shape != (n,):
        raise FitError(f"the reference order has shape {tuple(order.shape)}, but the orders rank {n} items")
    return order.to("cpu", torch.int64).numpy()


def item_features(features: Any, items: int) -> np.ndarray:
    """Features of the items as float64 ``(items, columns)``."""
    table = features.detach().cpu().numpy() if isinstance(features, Tensor) else np.asarray(features)
    return number_table(table, items, "features", "item")


def number_table(table: np.ndarray, rows: int, name: str, unit: str) -> np.ndarray:
    """A table of finite numbers, a row for each unit, as float64 ``(rows, columns)``."""
    if table.ndim != 2 or len(table) != rows or table.dtype.kind not in "iufb":
        given = f"{table.dtype} of shape {table.shape}"
        fault = f"{name} are numbers ({unit}s, columns), {rows} rows, not {given}"
        raise FitError(fault, parameter=name)
    table = table.astype(np.float64)
    if not np.isfinite(table).all():
        row = int((~np.isfinite(table)).any(1).argmax())
        raise FitError(f"{name} are finite numbers, but those of {unit} {row} are not", parameter=name)
    return table


def check_independent(features: np.ndarray) -> None:
    """Refuse features whose coefficients rankings do not determine: a constant changes nothing."""
    if np.linalg.matrix_rank(features - features.mean(0)) < features.shape[1]:
        raise FitError(
            "the columns of the features, less their means, are linearly dependent: their coefficients are"
            " not determined; leave one out, or a penalty above 0 settles it",
            parameter="features",
        )


def check_counts(**counts: int) -> None:
    """Refuse a count below one; the keyword names it."""
    for name, value in counts.items():
        if int(value) != value or value < 1:
            raise FitError(f"{{parameter}} is a whole number of at least 1, not {value}", parameter=name)


def check_strength(name: str, value: float) -> None:
    """Refuse a negative or infinite strength of regularisation."""
    if not (np.isfinite(value) and value >= 0):
        raise FitError(f"{{parameter}} is finite and at least 0, not {value}", parameter=name)


def check_unused(what: str, **options: object) -> None:
    """Refuse options that are not None, which ``what`` does not have."""
    used = [repr(name) for name, value in options.items() if value is not None]
    if used:
        raise FitError(f"{what} has no option {', '.join(used)}")


def _first(bad: Tensor) -> int | None:
    """The first index of bool ``(m,)`` that is true, or None."""
    return int(bad.int().argmax()) if bool(bad.any()) else None


def _check_some(orders: Tensor) -> None:
    for what, count in (("ranking", orders.shape[:-1].numel()), ("item", orders.shape[-1])):
        if count == 0:
            raise FitError(
                f"a fit needs at least one {what}, but the orders have shape {tuple(orders.shape)}"
            )


def _check_base(orders: Tensor) -> None:
    """One-based rankings are common enough to be named as such."""
    n = orders.shape[-1]
    if int(orders.max()) == n and not bool((orders == 0).any()) and not bool((orders < -1).any()):
        place = (as_rows(orders) == n).nonzero()[0].tolist()
        raise PermutationError(
            f"orders hold 0..{n - 1} but {row_name(orders, place[0])} holds {n} at position {place[1]} and no"
            " row holds 0: they seem to count from 1; subtract 1"
        )
