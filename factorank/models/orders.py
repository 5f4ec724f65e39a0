"""Between orders as users have them and the codes a network reads: references, and lists shorter than n."""

import contextlib
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from factorank.errors import CodeError, ModelError, PermutationError
from factorank.models.context import Known
from factorank.permutations import as_rows, check_integer, check_permutation, row_name

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel


def encoded(
    model: "PermutationModel", order: Tensor, *, check_rows: bool = True
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Codes int64 ``(*batch, n)``, presence ``(*batch, n)`` or None if all are there, and which are at fault,
    ``(*batch,)`` or None if none is.

    For the inside of a training step: nothing waits for the device. On the CPU, outside of compilation,
    faulty orders are refused at once.
    """
    check_length(order, model.n)
    padded = model.padded
    if check_rows and order.device.type == "cpu" and not torch.compiler.is_compiling():
        if model.place_of is None:
            with contextlib.suppress(PermutationError):  # whole orders are checked while they are encoded
                return model.code.encode(order.to(torch.int64)), None, None
        padded = check(model, order)
    wide = order.to(torch.int64)
    present = None
    if padded:
        present = wide >= 0
        wide = torch.where(present, wide, torch.arange(model.n, device=wide.device))
    fault = ((wide < 0) | (wide >= model.n)).any(-1)
    wide = wide.clamp(0, model.n - 1)  # a faulty row must not reach outside of any table
    if model.place_of is not None:
        wide = model.place_of[wide]
    code = model.code.encode(wide, check=False)
    return torch.minimum(code, model.network.head.allowed.sum(-1) - 1), present, fault


def disagreeing(known: Known | None, present: Tensor | None, fault: Tensor | None) -> Tensor | None:
    """``fault (*batch,)``, and where an aligned context has lists of another length than the orders."""
    if known is None or not known.aligned or known.present is None:
        return fault
    differs = (~known.present if present is None else known.present ^ present).any(-1)
    if differs.device.type == "cpu" and not torch.compiler.is_compiling() and bool(differs.any()):
        raise ModelError(
            "an order has as many items as the list in its context, but some here have not; both are padded"
            " with -1, which needs a code whose domains do not depend on n (insertion, left-lehmer)"
        )
    return differs if fault is None else fault | differs


def without(fault: Tensor | None, losses: Tensor) -> Tensor:
    """``losses (*batch,)``, not a number where an order is at fault."""
    return losses if fault is None else torch.where(fault, torch.nan, losses)


def decoded(model: "PermutationModel", code: Tensor, present: Tensor | None) -> Tensor:
    """Orders of codes ``(*batch, n)``; what stands where a list has ended is ignored and comes out as -1."""
    if present is not None:
        code = torch.where(present, code, model.first_values)
    order = model.code.decode(code, check=False)
    if model.reference is not None:
        order = model.reference[order]
    return order if present is None else torch.where(present, order, -1)


def check(model: "PermutationModel", order: Tensor, *, sequences: bool = False) -> bool:
    """Refuse what are not orders of n items, or of fewer, padded with -1, where the code allows that.

    Says whether there is padding. ``sequences`` takes any values in the range, as inline laws do.
    """
    check_length(order, model.n)
    if order.numel() == 0:
        return False
    negative = order < 0
    padded = bool(negative.any())
    if padded:
        row = int(as_rows(negative).any(-1).int().argmax())
        if not model.padded:
            raise ModelError(
                f"{row_name(order, row)} of the orders holds a negative number: lists shorter than n, padded"
                " with -1, need a code whose domains do not depend on n (insertion, left-lehmer) and no"
                f" reference, not {model.code.name}"
            )
        ended = as_rows(negative)
        hole = (ended[:, :-1] & ~ended[:, 1:]).any(-1)
        if bool(hole.any()):
            row = int(hole.int().argmax())
            raise ModelError(
                f"padding (-1) stands at the end of a list, but {row_name(order, row)} goes on after it"
            )
        order = torch.where(negative, torch.arange(model.n, device=order.device, dtype=order.dtype), order)
    if not sequences:
        check_permutation(order, "the model takes")
    elif bool((order >= model.n).any()):
        raise ModelError(f"the values of a sequence are 0..{model.n - 1}, but one is {int(order.max())}")
    return padded


def check_length(order: Tensor, n: int) -> None:
    check_integer(order, "the model takes orders")
    if order.shape[-1] != n:
        raise ModelError(f"the model orders {n} items, but the orders have shape {tuple(order.shape)}")


def checked_reference(reference: Tensor, n: int) -> Tensor:
    """A reference order as int64 ``(n,)``."""
    check_integer(reference, "the reference is given")
    if reference.shape != (n,):
        raise ModelError(f"the reference is an order of shape ({n},), not {tuple(reference.shape)}")
    check_permutation(reference, "the reference is one of the")
    return reference.to(torch.int64).clone()


def check_code_length(code: Tensor, n: int) -> None:
    check_integer(code, "the model takes codes", CodeError)
    if code.shape[-1] != n:
        raise ModelError(f"the model has {n} positions, but the codes have shape {tuple(code.shape)}")


def check_masked_code(model: "PermutationModel", code: Tensor) -> None:
    """Refuse values outside the domains of codes ``(*batch, n)``, in which -1 stands for a masked position."""
    rows, sizes = as_rows(code), model.code.sizes(model.n).to(code.device)
    outside = (rows < -1) | (rows >= sizes)
    if bool(outside.any()):
        row, position = (int(i) for i in outside.nonzero()[0])
        raise CodeError(
            f"{model.code.title} code of length {model.n} allows 0..{int(sizes[position]) - 1} at position"
            f" {position}, or -1 where it is masked, but {row_name(code, row)} holds {int(rows[row, position])}"
        )
    masked = rows == -1
    if model.causal and bool((masked[:, :-1] & ~masked[:, 1:]).any()):
        raise ModelError(
            "an autoregressive model predicts each position from those before it, so the masked ones (-1)"
            " must be the last ones"
        )
