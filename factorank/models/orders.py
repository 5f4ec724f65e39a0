"""Between orders as users have them and the codes a network reads: references, and lists shorter than n."""

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.codes import Code
from factorank.errors import CodeError, ModelError, PermutationError
from factorank.models.context import EncodedContext
from factorank.permutations import (
    as_rows,
    cannot_check,
    check_integer,
    check_permutation,
    inverse,
    row_name,
    signed,
    whole_number,
)

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
    order = signed(order, "the model takes")
    padded = model.padded
    if check_rows and order.device.type == "cpu" and not cannot_check(order):
        if model.place_of is None:
            with contextlib.suppress(PermutationError):  # whole orders are checked while they are encoded
                return encode(model, order.to(torch.int64), check=True), None, None
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
    code = encode(model, wide)
    return torch.minimum(code, model.network.head.allowed.sum(-1) - 1), present, fault


def encode(model: "PermutationModel", order: Tensor, *, check: bool = False) -> Tensor:
    """The codes ``(*batch, n)`` of whole orders relative to the reference, or of their ranks."""
    if model.target == "rank":
        return model.code.encode(inverse(order, check=check), check=False)
    return model.code.encode(order, check=check)


def disagreeing(
    context: EncodedContext | None, present: Tensor | None, fault: Tensor | None
) -> Tensor | None:
    """``fault (*batch,)``, and where an aligned context has lists of another length than the orders."""
    if context is None or not context.aligned or context.present is None:
        return fault
    differs = (~context.present if present is None else context.present ^ present).any(-1)
    if differs.device.type == "cpu" and not cannot_check(differs) and bool(differs.any()):
        raise ModelError(
            "an order has as many items as the list in its context, but some here have not; both are padded"
            " with -1, which needs a code whose domains do not depend on n (insertion, left-lehmer)"
        )
    return differs if fault is None else fault | differs


def without(fault: Tensor | None, losses: Tensor) -> Tensor:
    """``losses (*batch,)``, not a number where an order is at fault."""
    return losses if fault is None else torch.where(fault, torch.nan, losses)


def as_tensor(values: Any, name: str) -> Tensor | None:
    """A tensor of lists of whole numbers; nothing but ints may be in them."""
    if not isinstance(values, list | tuple):
        return values
    try:
        tensor = torch.tensor(values, dtype=None if len(values) else torch.int64)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ModelError(
            f"{{parameter}} is a list of whole numbers, or lists of them of one length, not {values!r}",
            parameter=name,
        ) from None
    check_integer(tensor, f"{name} is given", ModelError)
    return tensor


def decoded(model: "PermutationModel", code: Tensor, present: Tensor | None) -> Tensor:
    """Orders of codes ``(*batch, n)``; what stands where a list has ended is ignored and comes out as -1."""
    if present is not None:
        code = torch.where(present, code, model.first_values)
    order = model.code.decode(code, check=False)
    if model.target == "rank":
        order = inverse(order, check=False)
    if model.reference is not None:
        order = model.reference[order]
    return order if present is None else torch.where(present, order, -1)


def check(model: "PermutationModel", order: Tensor, *, sequences: bool = False) -> bool:
    """Refuse what are not orders of n items, or of fewer, padded with -1, where the code allows that.

    Says whether there is padding, or may be where values cannot be looked at. ``sequences`` takes any values
    in the range, as inline laws do.
    """
    check_length(order, model.n)
    if cannot_check(order):
        return model.padded
    order = signed(order, "the model takes")
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


def shortened(model: "PermutationModel", n: int) -> "PermutationModel":
    """See :meth:`PermutationModel.with_length`."""
    length = whole_number(n)
    if not model.padded:
        raise ModelError(
            "lists of another length need a code whose domains do not depend on n (insertion, left-lehmer)"
            f" and no reference, not {model.code.name}",
            parameter="n",
        )
    if not 1 <= length <= model.n:
        raise ModelError(
            f"a model of lists of {model.n} items has learnt lists of 1..{model.n}, not of {n!r}; train one"
            " with a larger n, shorter lists padded with -1",
            parameter="n",
        )
    settings = model.config() | {"n": length, "code": model.code, "context": model.context}
    short = type(model)(**settings)
    short.network.crop_from(model.network)
    return short.to(model.network.places).train(model.training)


def checked_target(code: Code, target: str | None) -> str:
    """What is encoded, "order" unless given."""
    if target not in (None, "order", "rank"):
        raise ModelError(f"{{parameter}} is 'order' or 'rank', not {target!r}", parameter="target")
    if target == "rank" and not code.factorized:
        raise ModelError(
            f"{{parameter='rank'}} needs a code of which every sequence is a permutation; {code.name} can"
            " have ranks that are none, and so those of no order",
            parameter="target",
        )
    return target or "order"


def check_reveal(reveal: str, objective: str, context: Any) -> None:
    """Refuse an end to begin at that is none, or that a model cannot begin at."""
    if reveal not in ("left-to-right", "right-to-left"):
        raise ModelError(
            f"{{parameter}} is 'left-to-right' or 'right-to-left', not {reveal!r}", parameter="reveal"
        )
    if reveal == "left-to-right":
        return
    if objective != "autoregressive":
        raise ModelError(
            f"{{parameter={reveal!r}}} is for autoregressive models; of a masked one ask"
            " distribution(unmask='right-to-left')",
            parameter="reveal",
        )
    if getattr(context, "aligned", False):
        raise ModelError(
            f"{{parameter={reveal!r}}} needs a context that is not aligned: token i of the"
            f" {type(context).__name__} goes to the position that is predicted as number i",
            parameter="reveal",
        )


def check_code_length(code: Tensor, n: int) -> None:
    check_integer(code, "the model takes codes", CodeError)
    if code.shape[-1] != n:
        raise ModelError(f"the model has {n} positions, but the codes have shape {tuple(code.shape)}")


def check_masked_code(model: "PermutationModel", code: Tensor) -> None:
    """Refuse codes ``(*batch, n)`` outside their domains; -1 stands for a masked position."""
    check_domains(model, code, "the codes")
    masked = code == -1
    if model.causal and bool((masked[..., :-1] & ~masked[..., 1:]).any()):
        raise ModelError(
            "an autoregressive model predicts each position from those before it, so the masked ones (-1)"
            " must be the last ones"
        )


def check_domains(
    model: "PermutationModel", code: Tensor, name: str, *, past_end: Tensor | None = None
) -> None:
    """Refuse values of ``(*batch, n)`` outside the domains of the code; -1 stands for a free position.

    ``past_end`` of the same shape is true where a list has ended, and nothing but -1 may stand there.
    """
    rows, sizes = as_rows(code), model.code.sizes(model.n).to(code.device)
    outside = (rows < -1) | (rows >= sizes)
    if past_end is not None:
        outside |= as_rows(past_end) & (rows >= 0)
    if bool(outside.any()):
        row, position = (int(i) for i in outside.nonzero()[0])
        raise CodeError(
            f"{model.code.title} code of length {model.n} allows 0..{int(sizes[position]) - 1} at position"
            f" {position}, -1 where free or after the end of a list, but row {row} of {name}"
            f" holds {int(rows[row, position])}"
        )


def check_fixed(model: "PermutationModel", fixed: Tensor, present: Tensor | None) -> None:
    """Refuse fixed values ``(rows, n)``, -1 where free, that the model cannot take."""
    if fixed.shape[-1] != model.n:
        raise ModelError(
            f"fixed holds a value for each of the {model.n} positions, -1 where free, not {fixed.shape[-1]}"
        )
    check_domains(model, fixed, "fixed", past_end=None if present is None else ~present)
    is_fixed = fixed >= 0
    hole = (~is_fixed[:, :-1] & is_fixed[:, 1:]).any(-1)
    if (model.causal or model.masks == "suffix") and bool(hole.any()):
        raise ModelError(
            "an autoregressive model, and one with masks='suffix', predicts each position from those before"
            f" it, so fixed values must be the first ones, but row {int(hole.int().argmax())} of fixed has a"
            " free position before a fixed one; a masked model with masks='any' can be given any"
        )
    free = ~is_fixed if present is None else ~is_fixed & present
    hole = (is_fixed[:, :-1] & free[:, 1:]).any(-1)
    if model.masks == "prefix" and bool(hole.any()):
        raise ModelError(
            "a model with masks='prefix' predicts each position from those after it, so fixed values must be"
            f" the last ones, but row {int(hole.int().argmax())} of fixed has a free position after a fixed"
            " one; a masked model with masks='any' can be given any"
        )


def check_observed(model: "PermutationModel", observed: Tensor, present: Tensor | None) -> None:
    """Refuse observed items ``(rows, r)``, best first, -1 pads, that are none of the list, or stand twice."""
    n, there = model.n, observed >= 0
    if observed.shape[-1] > n:
        raise ModelError(f"observed lists at most the {n} items, not {observed.shape[-1]}")
    outside = (observed < -1) | (observed >= n)
    if bool(outside.any()):
        raise ModelError(
            f"observed holds items 0..{n - 1}, or -1 after the last, not {int(observed[outside][0])}"
        )
    if bool((~there[:, :-1] & there[:, 1:]).any()):
        raise ModelError("padding (-1) stands at the end of observed, but a row goes on after it")
    times = torch.zeros((observed.shape[0], n + 1), dtype=torch.int64, device=observed.device)
    times = times.scatter_add_(-1, torch.where(there, observed, n), there.long())
    if bool((times > 1).any()):
        row, item = (int(i) for i in (times > 1).nonzero()[0])
        raise ModelError(
            f"observed holds each item at most once, but row {row} holds {item} {int(times[row, item])} times"
        )
    if present is not None and bool((times[:, :n].bool() & ~present).any()):
        raise ModelError("observed holds an item that is not in the list of its context")
