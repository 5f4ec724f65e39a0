"""What a law is conditional on: the context, fixed values of the code, the observed order of some items.

*Fixed* are positions of the code whose values are known. *Observed* is the relative order of some items,
wherever they stand. An insertion code can be taken relative to a reference that lists the observed items
first: its first values are then the order of those items and say nothing else, so that to observe them is to
fix these values.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.models import orders
from factorank.models.context import EncodedContext, encode_context
from factorank.models.network import evaluating
from factorank.permutations import cannot_check, check_integer, check_permutation, inverse

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel


@dataclasses.dataclass
class Conditions:
    """What a law is conditional on, for each row of its flattened batch; None where there is nothing.

    ``present (rows, n)`` is false where a list has ended, ``fixed (rows, n)`` holds fixed values of the code
    and -1, ``reference (rows, n)`` the items that the model reads as 0..n-1 (see :meth:`whole_reference`).
    """

    rows: int
    context: EncodedContext | None = None
    present: Tensor | None = None
    fixed: Tensor | None = None
    reference: Tensor | None = None
    first_logits: Tensor | None = None
    """What a masked model predicts before anything is revealed, once it has been computed."""
    memory: EncodedContext | None = None
    """What an autoregressive model makes of ``context``, once it has been computed."""

    def part(self, start: int, stop: int) -> "Conditions":
        """The rows from start to stop."""
        if (start, stop) == (0, self.rows):
            return self
        return self._each(stop - start, lambda tensor: tensor[start:stop])

    def at(self, index: Tensor) -> "Conditions":
        """The rows of that index ``(some,)``, which may repeat, with what has been computed of them."""
        rows = self._each(len(index), lambda tensor: tensor[index])
        if self.first_logits is not None:
            rows.first_logits = self.first_logits[index]
        if self.memory is not None:
            rows.memory = self.memory.each(lambda tensor: tensor[index])
        return rows

    def expand(self, old: torch.Size, new: torch.Size) -> "Conditions":
        """The rows of a batch of shape ``old`` repeated to one of shape ``new``."""

        def expanded(tensor: Tensor) -> Tensor:
            own = tensor.shape[1:]
            return tensor.reshape(*old, *own).expand(*new, *own).reshape(-1, *own)

        return self._each(new.numel(), expanded)

    def _each(self, rows: int, change: Callable[[Tensor], Tensor]) -> "Conditions":
        def changed(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        context = None if self.context is None else self.context.each(change)
        return Conditions(rows, context, changed(self.present), changed(self.fixed), changed(self.reference))

    def start(self, model: "PermutationModel") -> Tensor:
        """The codes ``(rows, n)`` before anything is revealed: fixed values, and the mask where free."""
        code = torch.full((self.rows, model.n), model.network.mask_value, device=model.device)
        if self.fixed is not None:
            code = torch.where(self.fixed >= 0, self.fixed, code)
        return code if self.present is None else torch.where(self.present, code, model.first_values)

    def free(self, model: "PermutationModel") -> Tensor:
        """The positions ``(rows, n)`` that are neither fixed nor have a single possible value."""
        return (self.start(model) == model.network.mask_value) & ~model.certain

    def free_count(self, model: "PermutationModel") -> int | Tensor:
        """How many positions are free: a number if all rows agree, else ``(rows,)``."""
        if self.fixed is None and self.present is None:
            return model.n - model.certain_count
        counts = self.free(model).sum(-1)
        if not cannot_check(counts) and counts.numel() and bool((counts == counts[0]).all()):
            return int(counts[0])
        return counts

    def whole_reference(self, model: "PermutationModel") -> Tensor | None:
        """The items ``(rows, n)`` or ``(n,)`` that the code is relative to; None where they are 0..n-1."""
        if self.reference is None or model.reference is None:
            return model.reference if self.reference is None else self.reference
        return self.reference[:, model.reference]

    def decode(self, model: "PermutationModel", code: Tensor) -> Tensor:
        """The orders of codes ``(samples, rows, n)``; -1 where a list has ended."""
        order = orders.decoded(model, code, self.present)
        if self.reference is None:
            return order
        named = self.reference.expand_as(order).gather(-1, order.clamp(min=0))
        return torch.where(order < 0, -1, named)

    def encode(self, model: "PermutationModel", order: Tensor) -> Tensor:
        """The codes of orders ``(samples, rows, n)`` that have been checked."""
        if self.reference is not None:
            place_of = inverse(self.reference, check=False)
            order = torch.where(order < 0, -1, place_of.expand_as(order).gather(-1, order.clamp(min=0)))
        return orders.encoded(model, order, check_rows=False)[0]


def conditions_for(
    model: "PermutationModel",
    context: Any,
    observed: Tensor | Sequence[Any] | None = None,
    fixed: Tensor | Sequence[Any] | None = None,
    reference: Tensor | Sequence[Any] | None = None,
) -> tuple[Conditions, torch.Size]:
    """What a law of the model is conditional on, checked, and its batch shape.

    See :meth:`PermutationModel.distribution` for the arguments.
    """
    if observed is not None and fixed is not None:
        raise ModelError("either observed items or fixed code values can be given, not both")
    if model.masks == "all" and not (observed is None and fixed is None):
        raise ModelError(
            "a model with masks='all' has learnt to predict from the context alone;"
            " observed and fixed need masks='suffix' or 'any'"
        )
    if model.masks == "prefix" and observed is not None:
        raise ModelError(
            "a model with masks='prefix' predicts each position from those after it, and {parameter} items"
            " are the first ones; this needs masks='suffix' or 'any'",
            parameter="observed",
        )
    with evaluating(model):
        encoded = encode_context(model.context, context, model.n, model.width)
    named = {"observed": observed, "fixed": fixed, "reference": reference}
    given = {name: orders.as_tensor(values, name) for name, values in named.items()}
    batch = _batch_shape(encoded, given)
    rows = {
        name: _as_rows(tensor.to(model.device), batch) for name, tensor in given.items() if tensor is not None
    }
    conditions = _flattened(model, encoded, batch)
    if "reference" in rows:
        conditions = relative_to(model, conditions, rows["reference"])
    if "observed" in rows:
        conditions = observing(model, conditions, rows["observed"], movable="reference" not in rows)
    if "fixed" in rows:
        orders.check_fixed(model, rows["fixed"], conditions.present)
        conditions.fixed = rows["fixed"]
    return conditions, batch


def relative_to(
    model: "PermutationModel", conditions: Conditions, reference: Tensor, *, check: bool = True
) -> Conditions:
    """The conditions of a law whose code is relative to a reference ``(rows, n)`` of its own.

    The tokens of the items go along, so that the law is one of the same items under the same names.
    """
    if check:
        _check_reference(model, conditions, reference)
    if model.place_of is not None:  # what the model reads as its own reference is this one
        reference = reference[:, model.place_of]
    context, present = conditions.context, conditions.present
    assert context is not None
    index = reference[..., None].expand_as(context.tokens)
    moved = EncodedContext(
        context.tokens.gather(-2, index),
        None if context.present is None else context.present.gather(-1, reference),
        True,
    )
    present = None if present is None else present.gather(-1, reference)
    return Conditions(conditions.rows, moved, present, conditions.fixed, reference)


def _check_reference(model: "PermutationModel", conditions: Conditions, reference: Tensor) -> None:
    if not _exchangeable(model, conditions.context):
        raise ModelError(
            "a reference for each row needs an aligned context whose items are exchangeable: the tokens of"
            " the items stand in its order"
        )
    if reference.shape[-1] != model.n:
        raise ModelError(f"a reference lists all {model.n} items, not {reference.shape[-1]}")
    check_permutation(reference, "a reference is one of the")
    present = conditions.present
    if present is not None:
        listed = present.gather(-1, reference)
        if bool((~listed[:, :-1] & listed[:, 1:]).any()):
            raise ModelError("a reference lists the items of the list first and then its padding")


def observing(
    model: "PermutationModel", conditions: Conditions, observed: Tensor, *, movable: bool = True
) -> Conditions:
    """The conditions once the order ``(rows, r)`` of some items, -1 pads, is observed too.

    Where the items are ``movable`` the observed ones are put first in the reference, in the order that it has
    them; otherwise they must be the first of the reference already.
    """
    if not model.observes:
        raise ModelError(
            "observed needs an insertion model, or a left-lehmer one with target='rank': only there do the"
            " first values of the code stand for the relative order of some items; the code here is"
            f" {model.code.name} of the {model.target}"
        )
    rows, n = observed.shape[0], model.n
    present = conditions.present
    if present is not None and conditions.reference is not None:
        present = present.gather(-1, inverse(conditions.reference, check=False))
    orders.check_observed(model, observed, present)
    counts, items, places = (observed >= 0).sum(-1), observed, torch.arange(n, device=observed.device)
    first = places < counts[:, None]
    is_observed = torch.zeros((rows, n + 1), dtype=torch.bool, device=observed.device)
    is_observed = is_observed.scatter_(-1, torch.where(items < 0, n, items), True)[:, :n]
    if movable and _exchangeable(model, conditions.context):
        rest = 1 if conditions.present is None else 1 + (~conditions.present).long()
        own = places if model.reference is None else model.reference
        reference = own[torch.where(is_observed, 0, rest)[:, own].argsort(dim=-1, stable=True)]
        conditions = relative_to(model, conditions, reference, check=False)
        items = _places_in(reference, items)
    else:
        if (whole := conditions.whole_reference(model)) is not None:
            items = _places_in(whole.expand(rows, n), items)
            is_observed = is_observed.gather(-1, whole.expand(rows, n))
        if not bool((early := (is_observed == first).all(-1)).all()):
            row = int(early.int().argmin())
            raise ModelError(
                "the reference of a row lists the observed items first, but one here does not"
                if conditions.reference is not None
                else "without an aligned context whose items are exchangeable the reference is fixed, and"
                f" only its first items can be observed; row {row} of observed holds others"
            )
    items = torch.nn.functional.pad(items, (0, n - items.shape[-1]), value=-1)
    code = orders.encode(model, torch.where(first, items, places))
    return dataclasses.replace(conditions, fixed=torch.where(first, code, -1))


def first_fixed(model: "PermutationModel", conditions: Conditions, observed: Tensor) -> Conditions | None:
    """The conditions with the first values of an insertion code fixed by the order of the items ``(r,)``.

    None unless these are the first items of the reference of every row.
    """
    if not model.observes or not (conditions.fixed is None and conditions.present is None):
        return None
    whole, places = conditions.whole_reference(model), torch.arange(model.n, device=observed.device)
    first = (places if whole is None else whole)[..., : len(observed)].sort(-1).values
    if not bool((first == observed.sort().values).all()):
        return None
    return observing(model, conditions, observed.expand(conditions.rows, -1), movable=False)


def _places_in(reference: Tensor, items: Tensor) -> Tensor:
    """The places of items ``(rows, r)``, -1 pads, in references ``(rows, n)``."""
    places = inverse(reference, check=False).gather(-1, items.clamp(min=0))
    return torch.where(items < 0, -1, places)


def _exchangeable(model: "PermutationModel", context: EncodedContext | None) -> bool:
    return context is not None and context.aligned and getattr(model.context, "exchangeable", False)


def _batch_shape(encoded: EncodedContext | None, given: dict[str, Tensor | None]) -> torch.Size:
    shapes = {} if encoded is None else {"the context": encoded.tokens.shape[:-2]}
    for name, tensor in given.items():
        if tensor is not None:
            check_integer(tensor, f"{name} is given", ModelError)
            shapes[name] = tensor.shape[:-1]
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ModelError(f"the batch shapes of a law must broadcast, but are {listed}") from None


def _as_rows(tensor: Tensor, batch: torch.Size) -> Tensor:
    """``(*some, r)`` as int64 ``(rows, r)`` of a batch of that shape."""
    return tensor.to(torch.int64).expand(*batch, tensor.shape[-1]).reshape(batch.numel(), tensor.shape[-1])


def _flattened(model: "PermutationModel", encoded: EncodedContext | None, batch: torch.Size) -> Conditions:
    """The context of each row of the flattened batch, and which lists end before n."""
    if encoded is None:
        return Conditions(batch.numel())
    own = encoded.tokens.shape[-2:]
    flat = EncodedContext(
        encoded.tokens.reshape(-1, *own),
        None if encoded.present is None else encoded.present.reshape(-1, own[0]),
        encoded.aligned,
    )
    conditions = Conditions(flat.tokens.shape[0], flat).expand(encoded.tokens.shape[:-2], batch)
    assert conditions.context is not None
    present = conditions.context.present
    if present is None or (not cannot_check(present) and bool(present.all())):
        conditions.context.present = None
    elif cannot_check(present):
        conditions.present = present if encoded.aligned and model.padded else None
    elif encoded.aligned:
        conditions.present = present
        if not model.padded:
            raise ModelError(
                "the context holds padding (-1): lists shorter than n need a code whose domains do not"
                f" depend on n (insertion, left-lehmer) and no reference, not {model.code.name}"
            )
        if bool((~present[:, :-1] & present[:, 1:]).any()):
            raise ModelError(
                "padding (-1) stands at the end of a list, but a list in the context goes on after it"
            )
    return conditions
