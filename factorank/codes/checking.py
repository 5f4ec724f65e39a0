"""Whether a code is what it says: a bijection within its domains, shown for every order of few items."""

import math
from typing import Any

import torch
from torch import Tensor

from factorank.codes.base import Code, KernelCode
from factorank.errors import CodeError
from factorank.kernels.codes import OPERATIONS
from factorank.lexicographic import permutation_at
from factorank.permutations import random_permutations

LARGEST = 6
"""Codes are checked for every order of up to so many items."""
DRAWN = 64
"""So many orders of more items are looked at."""


def check_code(code: Code, n: int | None = None) -> None:
    """Refuse a code that has no name, or is no code of every order of up to ``LARGEST`` items.

    No two orders may share a code, each code stands for its order, and values lie within the domains.
    A factorized code has as many codes as there are orders, so that every choice of values is one of them.
    Of a larger ``n`` some orders are drawn.
    """
    check_name(code)
    if isinstance(code, KernelCode):  # the library's own are proved by its tests
        return
    listed = {n: permutation_at(torch.arange(math.factorial(n)), n) for n in range(1, LARGEST + 1)}
    more = {}
    if n is not None and n > LARGEST:
        more = {n: random_permutations(n, (DRAWN,), generator=torch.Generator().manual_seed(0))}
    for items, orders in (listed | more).items():
        _check_bijection(code, items, orders)
    if not code.domains_depend_on_n:
        for n in range(2, LARGEST + 1):
            _check_prefix(code, n, listed[n - 1])


def check_name(code: Code) -> None:
    """Refuse a code without a name: saved models and messages need it."""
    name = getattr(code, "name", None)
    if not isinstance(name, str) or not name:
        given = "has none" if name is None else f"has {name!r}"
        raise CodeError(
            f"a code has a name, a text by which saved models find it, but {type(code).__name__} {given};"
            ' give the class one: name = "…"'
        )
    if isinstance(code, KernelCode) and f"encode-{name}" not in OPERATIONS:
        kind = type(code)
        raise CodeError(
            f"{kind.__name__} is a subclass of {kind.__mro__[1].__name__}, whose operations go by its name; a"
            " code of one's own is a subclass of factorank.Code with sizes, _encode and _decode"
        )


def _check_bijection(code: Code, n: int, orders: Tensor) -> None:
    sizes = code.sizes(n)
    if not isinstance(sizes, Tensor) or sizes.dtype != torch.int64 or sizes.shape != (n,):
        what = f"{sizes.dtype} {tuple(sizes.shape)}" if isinstance(sizes, Tensor) else type(sizes).__name__
        raise CodeError(f"{code.name}: sizes({n}) is an int64 tensor ({n},), not {what}")
    if int(sizes.min()) < 1 or int(sizes.max()) > n:
        raise CodeError(
            f"{code.name}: a position holds one of 1..n values, but sizes({n}) is {sizes.tolist()}"
        )
    count = math.prod(sizes.tolist())
    if code.factorized and count != math.factorial(n):
        raise CodeError(
            f"{code.name} is not a bijection: sizes({n}) is {sizes.tolist()}, which makes {count} codes for"
            f" the {math.factorial(n)} orders of {n} items; a code that has more than those says"
            " factorized = False"
        )
    codes = code._encode(orders)
    _check_like(f"{code.name}: _encode gives the codes", codes, orders)
    outside = ((codes < 0) | (codes >= sizes)).any(-1)
    if bool(outside.any()):
        row = int(outside.int().argmax())
        raise CodeError(
            f"{code.name}: the code of {orders[row].tolist()} is {codes[row].tolist()}, outside of the"
            f" domains: sizes({n}) is {sizes.tolist()}"
        )
    _, kind = codes.unique(dim=0, return_inverse=True)
    if len(kind.unique()) < len(orders.unique(dim=0)):
        first = next(row for row in range(len(kind)) if int((kind == kind[row]).sum()) > 1)
        other = next(row for row in range(first + 1, len(kind)) if kind[row] == kind[first])
        raise CodeError(
            f"{code.name} is not a bijection: the orders {orders[first].tolist()} and"
            f" {orders[other].tolist()} have one code, {codes[first].tolist()}"
        )
    decoded = code._decode(codes)
    _check_like(f"{code.name}: _decode gives the orders", decoded, codes)
    if not torch.equal(decoded, orders):
        row = int((decoded != orders).any(-1).int().argmax())
        raise CodeError(
            f"{code.name} is not a bijection: {orders[row].tolist()} has the code {codes[row].tolist()},"
            f" which stands for {decoded[row].tolist()}"
        )


def _check_like(what: str, given: Any, rows: Tensor) -> None:
    """Refuse what is no tensor of the dtype and shape of these rows."""
    if isinstance(given, Tensor) and given.dtype == rows.dtype and given.shape == rows.shape:
        return
    got = f"{given.dtype} {tuple(given.shape)}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
    raise CodeError(f"{what} of rows {rows.dtype} {tuple(rows.shape)} as a tensor like them, not {got}")


def _check_prefix(code: Code, n: int, shorter: Tensor) -> None:
    """A list padded to n items has the code of the list, then what the code of 0..n-1 holds there."""
    longer, sizes = code.sizes(n).tolist(), code.sizes(n - 1).tolist()
    if longer[:-1] != sizes:
        raise CodeError(
            f"{code.name} says domains_depend_on_n = False, but sizes({n}) is {longer}, which does not begin"
            f" with sizes({n - 1}), {sizes}"
        )
    last = torch.full((len(shorter), 1), n - 1)
    codes = code.encode(torch.cat([shorter, last], -1))
    expected = torch.cat(
        [code.encode(shorter), code.encode(torch.arange(n))[-1:].expand(len(shorter), 1)], -1
    )
    if not torch.equal(codes, expected):
        row = int((codes != expected).any(-1).int().argmax())
        raise CodeError(
            f"{code.name} says domains_depend_on_n = False, so lists of several lengths would be mixed, but"
            f" the code of {[*shorter[row].tolist(), n - 1]} is {codes[row].tolist()}, which does not begin"
            f" with that of {shorter[row].tolist()}, {expected[row, :-1].tolist()}"
        )
