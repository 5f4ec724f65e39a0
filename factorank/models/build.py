"""From what a user asks of a model to the law: which requests are exact, and why the others are refused."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import CodeError, ModelError
from factorank.models.autoregressive import AutoregressiveLaw
from factorank.models.conditions import Given, evaluating
from factorank.models.context import Known, encode_context
from factorank.models.law import PermutationLaw
from factorank.models.masked import MaskedLaw
from factorank.permutations import check_integer

if TYPE_CHECKING:
    from factorank.models.model import PermutationModel

UNMASK = ("random", "left-to-right", "right-to-left", "confident")


def distribution(
    model: "PermutationModel",
    context: Any,
    *,
    nfe: int | None,
    unmask: str | None,
    observed: Tensor | None,
    fixed: Tensor | None,
    entropy_bound: float | None,
) -> PermutationLaw:
    """See :meth:`PermutationModel.distribution`."""
    if observed is not None and fixed is not None:
        raise ModelError("either observed items or fixed code values can be given, not both")
    if model.masks == "all" and not (observed is None and fixed is None):
        raise ModelError(
            "a model with masks='all' has learnt to predict from the context alone;"
            " observed and fixed need masks='suffix' or 'any'"
        )
    nfe, unmask = _steps(model, nfe, unmask, entropy_bound)
    with evaluating(model):
        known = encode_context(model.context, context, model.n, model.width)
    batch = _batch_shape(known, observed, fixed)
    given = _flattened(model, known, batch)
    if observed is not None:
        given = observing(model, given, _rows(observed.to(model.network.places.device), batch))
    if fixed is not None:
        given.fixed = _checked_fixed(model, given, _rows(fixed.to(model.network.places.device), batch), fixed)
    if model.causal:
        return AutoregressiveLaw(model, given, batch)
    return MaskedLaw(model, given, batch, nfe, unmask, entropy_bound)


def _steps(
    model: "PermutationModel", nfe: int | None, unmask: str | None, entropy_bound: float | None
) -> tuple[int | None, str]:
    """The number of evaluations and the way of unmasking, with the defaults filled in."""
    if unmask is not None and unmask not in UNMASK:
        raise ModelError(f"{{parameter}} is one of {', '.join(UNMASK)}, not {unmask!r}", parameter="unmask")
    if nfe is not None and (isinstance(nfe, bool) or not isinstance(nfe, int) or not 1 <= nfe <= model.n):
        raise ModelError(
            f"the model has {model.n} positions, so {{parameter}} is a whole number from 1 to {model.n}, not"
            f" {nfe!r}",
            parameter="nfe",
        )
    if model.causal:
        asked = {"nfe": nfe, "unmask": unmask, "entropy_bound": entropy_bound}
        allowed: dict[str, Any] = {"nfe": model.n, "unmask": "left-to-right", "entropy_bound": None}
        for name, value in asked.items():
            if value is not None and value != allowed[name]:
                raise ModelError(
                    f"an autoregressive model reveals its positions left to right, one at a time:"
                    f" nfe={model.n}, unmask='left-to-right' and no entropy_bound;"
                    f" {{parameter={value!r}}} needs a masked model",
                    parameter=name,
                )
        return model.n, "left-to-right"
    if model.masks == "all":
        if nfe not in (None, 1) or entropy_bound is not None:
            raise ModelError(
                "a model with masks='all' has learnt 1 NFE only; masks='any' learns every other",
                parameter="nfe",
            )
        return 1, unmask or "random"
    if model.masks == "suffix" and nfe != 1:
        if unmask not in (None, "left-to-right"):
            raise ModelError(
                f"a model with masks='suffix' has learnt to reveal left to right; {{parameter={unmask!r}}}"
                " needs masks='any'",
                parameter="unmask",
            )
        unmask = "left-to-right"
    if entropy_bound is None:
        return model.n if nfe is None else nfe, unmask or "random"
    if nfe is not None:
        raise ModelError(
            f"with an entropy_bound the NFE is what it takes, but {{parameter={nfe}}} was given too",
            parameter="nfe",
        )
    if unmask == "random" or entropy_bound < 0:
        raise ModelError(
            "an entropy_bound is 0 or more nats and goes with unmask='confident' (the default with it),"
            f" 'left-to-right' or 'right-to-left', but {entropy_bound=} and {unmask=} were given"
        )
    return None, unmask or "confident"


def _batch_shape(known: Known | None, observed: Tensor | None, fixed: Tensor | None) -> torch.Size:
    shapes = {}
    if known is not None:
        shapes["the context"] = known.tokens.shape[:-2]
    for name, tensor in (("observed", observed), ("fixed", fixed)):
        if tensor is not None:
            check_integer(tensor, f"{name} is given", ModelError)
            shapes[name] = tensor.shape[:-1]
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        listed = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ModelError(f"the batch shapes of a law must broadcast, but are {listed}") from None


def _rows(tensor: Tensor, batch: torch.Size) -> Tensor:
    """``(*some, r)`` as int64 ``(rows, r)`` of a batch of that shape."""
    return tensor.to(torch.int64).expand(*batch, tensor.shape[-1]).reshape(batch.numel(), tensor.shape[-1])


def _flattened(model: "PermutationModel", known: Known | None, batch: torch.Size) -> Given:
    """The context of each row of the flattened batch, and which lists end before n."""
    if known is None:
        return Given(batch.numel())
    given = Given(known.tokens.shape[:-2].numel())
    own = known.tokens.shape[-2:]
    given.known = Known(
        known.tokens.reshape(-1, *own),
        None if known.present is None else known.present.reshape(-1, own[0]),
        known.aligned,
    )
    given = given.expand(known.tokens.shape[:-2], batch)
    assert given.known is not None
    present = given.known.present
    if present is None or bool(present.all()):
        given.known.present = None
    elif known.aligned:
        given.present = present
        if not model.padded:
            raise ModelError(
                "the context holds padding (-1): lists shorter than n need a code whose domains do not"
                f" depend on n (insertion, left-lehmer) and no reference, not {model.code.name}"
            )
        if bool((~present[:, :-1] & present[:, 1:]).any()):
            raise ModelError(
                "padding (-1) stands at the end of a list, but a list in the context goes on after it"
            )
    return given


def _checked_fixed(model: "PermutationModel", given: Given, rows: Tensor, fixed: Tensor) -> Tensor:
    """Known code values ``(rows, n)``, -1 where free."""
    n = model.n
    if fixed.shape[-1] != n:
        raise ModelError(
            f"fixed holds a value for each of the {n} positions, -1 where free, not {tuple(fixed.shape)}"
        )
    sizes = model.code.sizes(n).to(rows.device)
    outside = (rows < -1) | (rows >= sizes)
    if given.present is not None:
        outside |= ~given.present & (rows >= 0)
    if bool(outside.any()):
        row, position = (int(i) for i in outside.nonzero()[0])
        raise CodeError(
            f"{model.code.title} code of length {n} allows 0..{int(sizes[position]) - 1} at position"
            f" {position}, -1 where free or after the end of a list, but row {row} of fixed holds"
            f" {int(rows[row, position])}"
        )
    told = rows >= 0
    hole = (~told[:, :-1] & told[:, 1:]).any(-1)
    if (model.causal or model.masks == "suffix") and bool(hole.any()):
        raise ModelError(
            "an autoregressive model, and one with masks='suffix', predicts each position from those before"
            f" it, so fixed values must be the first ones, but row {int(hole.int().argmax())} of fixed has a"
            " free position before a known one; a masked model with masks='any' can be given any"
        )
    return rows


def observing(model: "PermutationModel", given: Given, observed: Tensor) -> Given:
    """What is given once the order ``(rows, r)`` of some items, -1 pads, is known too.

    The code is taken relative to a reference that lists the observed items first, in the order the context
    has them, and then the rest: the first r values of an insertion code are then the order of those items
    and say nothing else.
    """
    if model.code.name != "insertion":
        raise ModelError(
            "observed needs an insertion model: only there do the first values of the code stand for the"
            f" relative order of some items; the code here is {model.code.name}"
        )
    rows, n = observed.shape[0], model.n
    counts, observed = _checked_observed(model, given, observed)
    known = given.known
    movable = known is not None and known.aligned and getattr(model.context, "exchangeable", False)
    places = torch.arange(n, device=observed.device)
    seen = torch.zeros((rows, n + 1), dtype=torch.bool, device=observed.device)
    seen = seen.scatter_(-1, torch.where(observed < 0, n, observed), True)[:, :n]
    if movable and known is not None:
        rest = 1 if given.present is None else 1 + (~given.present).long()
        reference = torch.where(seen, 0, rest).argsort(dim=-1, stable=True)
        place_of = reference.argsort(-1)
        observed = torch.where(observed < 0, -1, place_of.gather(-1, observed.clamp(min=0)))
        tokens = known.tokens.gather(-2, reference[..., None].expand_as(known.tokens))
        known = Known(tokens, known.present, True)
    else:
        reference = None
        early = (seen == (places < counts[:, None])).all(-1)
        if not bool(early.all()):
            raise ModelError(
                "without an aligned context whose items are exchangeable the reference is fixed, and only its"
                f" first items can be observed; row {int((~early).int().argmax())} of observed holds others"
            )
    width = observed.shape[-1]
    padded = torch.full((rows, n), -1, device=observed.device)
    padded[:, :width] = observed
    order = torch.where(places < counts[:, None], padded, places)
    code = model.code.encode(order, check=False)
    fixed = torch.where(places < counts[:, None], code, -1)
    return Given(rows, known, given.present, fixed, reference)


def _checked_observed(model: "PermutationModel", given: Given, observed: Tensor) -> tuple[Tensor, Tensor]:
    """How many items each row observes, and which, by place in the model's reference if it has one."""
    n, told = model.n, observed >= 0
    if observed.shape[-1] > n:
        raise ModelError(f"observed lists at most the {n} items, not {observed.shape[-1]}")
    if bool(((observed < -1) | (observed >= n)).any()):
        raise ModelError(
            f"observed holds items 0..{n - 1}, or -1 after the last, not {_first_outside(observed, n)}"
        )
    if bool((~told[:, :-1] & told[:, 1:]).any()):
        raise ModelError("padding (-1) stands at the end of observed, but a row goes on after it")
    times = torch.zeros((observed.shape[0], n + 1), dtype=torch.int64, device=observed.device)
    times = times.scatter_add_(-1, torch.where(told, observed, n), told.long())
    if bool((times > 1).any()):
        row, item = (int(i) for i in (times > 1).nonzero()[0])
        raise ModelError(
            f"observed holds each item at most once, but row {row} holds {item} {int(times[row, item])} times"
        )
    if given.present is not None and bool((times[:, :n].bool() & ~given.present).any()):
        raise ModelError("observed holds an item that is not in the list of its context")
    if model.place_of is not None:
        observed = torch.where(told, model.place_of[observed.clamp(min=0)], -1)
    return told.sum(-1), observed


def _first_outside(observed: Tensor, n: int) -> int:
    return int(observed[(observed < -1) | (observed >= n)][0])
