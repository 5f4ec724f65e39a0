"""Permutations as tensors: orders and ranks, inverses, cycles, uniform draws, and the checks of all of these.

A permutation is an *order* ``(*batch, n)``: ``order[i]`` is the item at place i, best first. Its inverse is
the *rank*: ``rank[j]`` is the place of item j. Any integer dtype goes in and the same comes out.
"""

import operator
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor

from factorank.errors import FactorankError, PermutationError
from factorank.kernels.codes import NO_FAULT, transform


def inverse(order: Tensor, *, check: bool = True) -> Tensor:
    """The inverse permutation: turns an order into the rank of each item, and a rank into the order.

    >>> inverse(torch.tensor([2, 0, 1]))  # item 2 is first, item 0 second, item 1 third
    tensor([1, 2, 0])
    """
    check_integer(order, "inverse takes permutations")
    if order.numel() == 0:
        return order.clone()
    result, fault = transform(as_rows(order), "inverse", check=check)
    if check and (row := place_of_fault(fault)) is not None:
        raise_not_permutation(order, row, "inverse takes")
    return result.view(order.shape)


def compose(outer: Tensor, inner: Tensor, *, check: bool = True) -> Tensor:
    """``outer ∘ inner``: entry i is ``outer[inner[i]]``. Batch shapes broadcast; the dtype is outer's.

    ``compose(inverse(reference), order)`` names the items of an order by their places in a reference.

    >>> compose(torch.tensor([2, 0, 1]), torch.tensor([1, 0, 2]))
    tensor([0, 2, 1])
    """
    if check:
        check_permutation(outer, "compose takes")
        check_permutation(inner, "compose takes")
    outer, inner = same_length(outer, inner, "compose")
    if outer.dtype in (torch.uint16, torch.uint32, torch.uint64):  # torch cannot gather these
        return outer.to(torch.int64).gather(-1, inner.to(torch.int64)).to(outer.dtype)
    return outer.gather(-1, inner.to(torch.int64))


def is_permutation(order: Tensor) -> Tensor:
    """Whether each row holds every number from 0 to n - 1 once: bool ``(*batch,)``.

    >>> is_permutation(torch.tensor([[1, 0, 2], [1, 2, 3]]))
    tensor([ True, False])
    """
    check_integer(order, "is_permutation takes sequences")
    n = order.shape[-1]
    wide = order.to(torch.int64)
    inside = ((wide >= 0) & (wide < n)).all(-1)
    present = torch.zeros(wide.shape, dtype=torch.bool, device=order.device)
    return inside & present.scatter_(-1, wide.clamp(0, max(n - 1, 0)), True).all(-1)


def cycle_count(order: Tensor, *, check: bool = True) -> Tensor:
    """How many cycles the map i → order[i] has, fixed points included: int64 ``(*batch,)``.

    >>> cycle_count(torch.tensor([[1, 0, 2], [1, 2, 0]]))
    tensor([2, 1])
    """
    if check:
        check_permutation(order, "cycle_count takes")
    n = order.shape[-1]
    here = torch.arange(n, device=order.device)
    jump = order.to(torch.int64)
    least = here.expand(jump.shape)
    for _ in range(max(n - 1, 0).bit_length()):  # after k rounds: the least of 2^k elements along the cycle
        least = torch.minimum(least, least.gather(-1, jump))
        jump = jump.gather(-1, jump)
    return (least == here).sum(-1)


def is_cyclic(order: Tensor, *, check: bool = True) -> Tensor:
    """Whether each permutation is one cycle through all n items: bool ``(*batch,)``.

    >>> is_cyclic(torch.tensor([[4, 2, 0, 1, 3], [4, 0, 3, 2, 1]]))
    tensor([ True, False])
    """
    return cycle_count(order, check=check) == 1


def cycles(order: Tensor) -> list[Any]:
    """The cycles of the map i → order[i], each from its least element on; lists of them for a batch.

    >>> cycles(torch.tensor([4, 0, 3, 2, 1]))
    [[0, 4, 1], [2, 3]]
    """
    check_permutation(order, "cycles takes")
    if order.ndim > 1:
        return [cycles(row) for row in order]
    image, met, listed = order.tolist(), set[int](), []
    for start in range(len(image)):
        cycle, item = [], start
        while item not in met:
            met.add(item)
            cycle.append(item)
            item = image[item]
        if cycle:
            listed.append(cycle)
    return listed


def random_permutations(
    n: int,
    shape: Sequence[int] = (),
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.int64,
    device: torch.device | str | None = None,
) -> Tensor:
    """Uniform permutations ``(*shape, n)`` by the Fisher-Yates shuffle.

    >>> random_permutations(4, (2,), generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2, 4])
    """
    return _shuffle(item_count(n), shape, 0, generator, dtype, device)


def random_cyclic(
    n: int,
    shape: Sequence[int] = (),
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.int64,
    device: torch.device | str | None = None,
) -> Tensor:
    """Uniform permutations of one single cycle ``(*shape, n)`` by Sattolo's algorithm; n is at least 1.

    >>> is_cyclic(random_cyclic(6, (3,)))
    tensor([True, True, True])
    """
    n = item_count(n)
    if n == 0:
        raise PermutationError("there is no cyclic permutation of 0 items; n is at least 1")
    return _shuffle(n, shape, 1, generator, dtype, device)


def _shuffle(
    n: int,
    shape: Sequence[int],
    least: int,
    generator: torch.Generator | None,
    dtype: torch.dtype,
    device: torch.device | str | None,
) -> Tensor:
    shape = checked_shape(shape, PermutationError)
    check_dtype(dtype, n)
    if device is None and generator is not None:
        device = generator.device
    # A position with m values takes a uniform 63-bit number modulo m: the bias is below m / 2^63.
    span = torch.arange(n, 0, -1, device=device) - least
    span[-1:] = 1
    draws = torch.empty((*shape, n), dtype=torch.int64, device=device).random_(generator=generator) % span
    draws[..., :-1] += least
    return transformed(draws, "decode-fisher-yates").to(dtype)


# Checks, shared by everything that takes permutations.


def checked_shape(shape: Sequence[int], error: type[FactorankError]) -> torch.Size:
    """The shape of a batch to draw; anything else is refused with an ``error`` that says what a shape is."""
    if torch.compiler.is_compiling():
        return torch.Size(shape)
    try:
        sizes = [whole_number(size) for size in shape]
    except TypeError:  # a number, also as a tensor
        sizes = [-1]
    if min(sizes, default=0) < 0:
        such = f"({shape},)" if isinstance(shape, int) and shape >= 0 else "(3,)"
        raise error(f"a shape is a tuple of whole numbers of 0 or more, such as {such}, not {shape!r}")
    return torch.Size(sizes)


def whole_number(value: Any) -> int:
    """A whole number as an int; -1 for anything else."""
    try:
        return -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return -1


def item_count(n: int) -> int:
    """n as an int, refused unless it can be the number of items of a permutation."""
    if torch.compiler.is_compiling():
        return n
    number = whole_number(n)
    if number < 0:
        raise PermutationError(f"a permutation has a whole number of items, 0 or more, not {n!r}")
    return number


def check_integer(tensor: Tensor, what: str, error: type[FactorankError] = PermutationError) -> None:
    """Refuse what cannot hold a permutation: anything but a tensor, 0-d tensors, bool and floating ones."""
    if not isinstance(tensor, Tensor):
        raise error(f"{what} as an integer tensor (*batch, n), not as {type(tensor).__name__}")
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized:
        raise error(f"{what} as an integer tensor (*batch, n), not as {tensor.dtype}")
    if tensor.ndim == 0:
        raise error(f"{what} as an integer tensor (*batch, n), not as a 0-d tensor")


def check_dtype(dtype: torch.dtype, n: int) -> None:
    """Refuse a dtype that cannot hold permutations of n items."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool or n - 1 > torch.iinfo(dtype).max:
        raise PermutationError(
            f"{dtype} cannot hold permutations of {n} items; use an integer dtype that can"
        )


def signed(tensor: Tensor, what: str = "expected") -> Tensor:
    """The tensor; int64 if its whole numbers are unsigned ones of 16 to 64 bits, with which torch cannot
    compute."""
    if tensor.dtype not in (torch.uint16, torch.uint32, torch.uint64):
        return tensor
    wide = tensor.to(torch.int64)
    if tensor.dtype == torch.uint64 and not cannot_check(wide) and bool((wide < 0).any()):
        raise PermutationError(f"{what} permutations, but a number is 2^63 or more")
    return wide


def check_permutation(order: Tensor, what: str = "expected") -> None:
    """Raise :class:`PermutationError` unless every row is a permutation; ``what`` opens the message."""
    check_integer(order, f"{what} permutations")
    if order.numel() == 0 or cannot_check(order):
        return
    fault = transform(as_rows(order), "inverse", check=True)[1]
    if (row := place_of_fault(fault)) is not None:
        raise_not_permutation(order, row, what)


def as_rows(tensor: Tensor) -> Tensor:
    """``(*batch, n)`` as contiguous ``(rows, n)``; there is at least one element."""
    return tensor.reshape(-1, tensor.shape[-1]).contiguous()


def transformed(tensor: Tensor, operation: str) -> Tensor:
    """An operation of the kernels on ``(*batch, n)`` that has been checked; an empty one stays as it is."""
    if tensor.numel() == 0:
        return tensor
    return transform(as_rows(tensor), operation, check=False)[0].view(tensor.shape)


def cannot_check(tensor: Tensor) -> bool:
    """Whether values cannot be looked at now: while compiling, inside ``vmap``, or capturing a CUDA graph."""
    if torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def place_of_fault(fault: Tensor) -> int | None:
    """The row that ``transform`` found at fault, if any. On a GPU this waits for the kernel."""
    if cannot_check(fault):
        return None
    row = int(fault)
    return None if row == NO_FAULT else row


def row_name(tensor: Tensor, row: int) -> str:
    """How a message calls a row of ``(*batch, n)``: "row 17", "row (1, 5)", or "it" without a batch."""
    batch = tensor.shape[:-1]
    if len(batch) < 2:
        return f"row {row}" if batch else "it"
    return f"row {tuple(int(i) for i in torch.unravel_index(torch.tensor(row), batch))}"


def raise_not_permutation(order: Tensor, row: int, what: str) -> NoReturn:
    """Raise a :class:`PermutationError` that says where row ``row`` of ``order`` goes wrong."""
    values = as_rows(order)[row].tolist()
    n = len(values)
    begin = f"{what} permutations of 0..{n - 1} but {row_name(order, row)} holds"
    first: dict[int, int] = {}
    for position, value in enumerate(values):
        if not 0 <= value < n:
            raise PermutationError(f"{begin} {value} at position {position}")
        if value in first:
            raise PermutationError(f"{begin} {value} twice, at positions {first[value]} and {position}")
        first[value] = position
    raise AssertionError("the row is a permutation")


def same_length(order: Tensor, other: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """Broadcast the batch shapes of two permutations of the same n."""
    try:
        if order.shape[-1] != other.shape[-1]:
            raise RuntimeError
        shape = torch.broadcast_shapes(order.shape, other.shape)
    except RuntimeError:
        raise PermutationError(
            f"{what} takes permutations of one length and batch shapes that broadcast,"
            f" not {tuple(order.shape)} and {tuple(other.shape)}"
        ) from None
    return order.expand(shape), other.expand(shape)
