"""Listwise losses, for those who train networks of their own on preferences; no loop runs over places.

They are tensor operations only, without synchronisation, and compile whole.
"""

from typing import Literal

import torch
from torch import Tensor

from factorank.arguments import guard
from factorank.errors import FactorankError
from factorank.permutations import cannot_check, check_integer

Unranked = Literal["below", "incomparable"]


def plackett_luce(
    scores: Tensor,
    order: Tensor,
    top_k: int | None = None,
    ties: Tensor | None = None,
    *,
    unranked: Unranked = "incomparable",
) -> Tensor:
    r"""The negative log-likelihood, in nats, of orders under Plackett and Luce's law: ``(*batch,)``.

    .. math:: -\sum_{i < k} \Bigl( s_{x_i} - \log \sum_{j \ge i} e^{s_{x_j}} \Bigr)

    Sums run in float64, so that scores may lie hundreds of nats apart. Orders are checked on the CPU, outside
    of compilation, and so are scores: they are finite.

    Args:
        scores: of the items, ``(*batch, n)``, larger is better.
        order: the items, best first, ``(*batch, m)``; -1 pads.
        top_k: count the first k choices only; the items after them are what they were chosen from.
        ties: bool ``(*batch, m)``, true where an item is tied with the next. Tied items are each chosen from
            themselves and all that follow (Breslow, 1974): their order does not matter.
        unranked: what is meant by items that an order does not list: they take no part ("incomparable"), or
            they come after all that are listed ("below").

    >>> scores = torch.tensor([0.0, 2.0, 1.0], requires_grad=True)
    >>> loss = plackett_luce(scores, torch.tensor([1, 2, 0]))
    >>> loss
    tensor(0.7209, grad_fn=<ToCopyBackward0>)
    >>> optimizer = torch.optim.SGD([scores], lr=0.5)
    >>> for _ in range(100):
    ...     optimizer.zero_grad()
    ...     plackett_luce(scores, torch.tensor([[0, 1, 2], [0, 2, 1]])).mean().backward()
    ...     optimizer.step()
    >>> int(scores.argmax())
    0
    """
    if unranked not in ("below", "incomparable"):
        raise FactorankError(f"unranked is 'below' or 'incomparable', not {unranked!r}", parameter="unranked")
    if top_k is not None and top_k < 1:
        raise FactorankError(f"{{parameter}} is at least 1, not {top_k}", parameter="top_k")
    _check_finite(scores)
    check_integer(order, "plackett_luce takes orders", FactorankError)
    batch = torch.broadcast_shapes(scores.shape[:-1], order.shape[:-1])
    every = scores.double().expand(*batch, scores.shape[-1])
    # Worst first: the items that are left at each place are then those before it.
    wide = order.long().expand(*batch, order.shape[-1])
    _check_items(wide, scores.shape[-1])
    backward = wide.flip(-1)
    listed = backward >= 0
    chosen = every.gather(-1, backward.clamp(min=0))
    largest = every.detach().amax(-1, keepdim=True)
    left = torch.where(listed, (chosen - largest).exp(), 0.0).cumsum(-1)
    if unranked == "below":
        left = left + ((every - largest).exp() * _unlisted(backward, scores.shape[-1])).sum(-1, keepdim=True)
    if ties is not None:
        first = _first_of_ties(ties.expand(*batch, order.shape[-1])).flip(-1)
        left = left.gather(-1, order.shape[-1] - 1 - first)
    # What is hundreds of nats below the best underflows; the chosen item itself is still part of its sum.
    gone = left < torch.finfo(torch.float64).tiny
    total = torch.where(gone, chosen, torch.where(gone, 1.0, left).log() + largest)
    terms = torch.where(listed, total - chosen, 0.0)
    if top_k is not None:
        terms = terms.flip(-1)[..., :top_k]
    return terms.sum(-1).to(scores.dtype)


def listwise_dpo(
    log_probs: Tensor,
    reference_log_probs: Tensor,
    order: Tensor,
    beta: float = 0.1,
    top_k: int | None = None,
    ties: Tensor | None = None,
) -> Tensor:
    r"""Direct preference optimisation from rankings of several answers: ``(*batch,)``, in nats.

    Plackett and Luce's loss of the implicit rewards :math:`\beta (\log p - \log p_{\text{reference}})` of the
    answers. With two answers it is the usual loss of pairs.

    Args:
        log_probs: of each answer under the model that is trained, ``(*batch, answers)``.
        reference_log_probs: the same under the model that it started from.
        order: the answers, best first, ``(*batch, m)``; -1 pads.
        beta: how far the model may leave the reference: the smaller, the farther.
        top_k, ties: as for :func:`plackett_luce`.

    Rafailov et al., "Direct preference optimization", 2023 (their appendix has the listwise form).

    >>> ours, theirs = torch.tensor([-4.0, -5.0]), torch.tensor([-5.0, -5.0])
    >>> torch.allclose(
    ...     listwise_dpo(ours, theirs, torch.tensor([0, 1]), beta=0.5),
    ...     -torch.nn.functional.logsigmoid(torch.tensor(0.5)),
    ... )
    True
    """
    return plackett_luce(beta * (log_probs - reference_log_probs), order, top_k, ties)


def _unlisted(order: Tensor, n: int) -> Tensor:
    """Bool ``(*batch, n)``: the items that an order ``(*batch, m)``, -1 pads, does not list."""
    every = torch.ones((*order.shape[:-1], n + 1), dtype=torch.bool, device=order.device)
    return every.scatter(-1, torch.where(order >= 0, order, n), False)[..., :n]


def _first_of_ties(ties: Tensor) -> Tensor:
    """The first place of the tied group that each place belongs to, from ``ties (*batch, m)``."""
    places = torch.arange(ties.shape[-1], device=ties.device).expand_as(ties)
    with_previous = torch.nn.functional.pad(ties[..., :-1], (1, 0))
    return torch.where(with_previous, 0, places).cummax(-1).values


def _check_finite(scores: Tensor) -> None:
    """Raise if a score is infinite or NaN, where values can be looked at: no loss of theirs is a number."""
    if not scores.is_floating_point():  # the answer would be rounded to whole nats
        raise FactorankError(
            f"{{parameter}} is a floating-point tensor, not {scores.dtype}", parameter="scores"
        )
    if scores.device.type == "cpu" and not cannot_check(scores) and not bool(scores.isfinite().all()):
        wrong = scores.detach()[~scores.isfinite()][0].item()
        raise FactorankError(f"{{parameter}} holds finite numbers alone, not {wrong}", parameter="scores")


def _check_items(order: Tensor, n: int) -> None:
    """Raise unless every row holds items of 0..n-1, each once, and -1 after its end alone, where values can
    be looked at.
    """
    if order.device.type != "cpu" or cannot_check(order) or not order.numel():
        return
    least, most = (int(value) for value in order.aminmax())
    if least < -1 or most >= n:
        fault = f"an order holds items of 0..{n - 1}, and -1 after its end, but there is"
        raise FactorankError(f"{fault} {least if least < -1 else most}", parameter="order")
    if bool(((order[..., :-1] < 0) & (order[..., 1:] >= 0)).any()):
        raise FactorankError(
            "-1 stands after the end of an order, but here an item follows it", parameter="order"
        )
    ordered = order.sort(-1).values
    twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
    if bool(twice.any()):
        fault = f"an order holds each item once, but item {int(ordered[..., 1:][twice][0])} is there twice"
        raise FactorankError(fault, parameter="order")


guard(__name__)
