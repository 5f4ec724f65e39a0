"""What a code is: a map between permutations and sequences, position by position."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor

from factorank.errors import CodeError
from factorank.kernels.codes import NO_FAULT, OPERATIONS, Domain, transform
from factorank.permutations import (
    as_rows,
    cannot_check,
    check_integer,
    place_of_fault,
    raise_not_permutation,
    row_name,
)


class Code(ABC):
    """A representation of permutations of n items by sequences of n integers.

    Position i of a code holds one of ``sizes(n)[i]`` values, 0 the smallest. For a *factorized* code any
    choice of values is the code of exactly one permutation, so that any product of categoricals over the
    positions is a distribution over permutations.

    A code of your own is a subclass that gives ``name``, ``sizes``, ``_encode`` and ``_decode``; hand it
    to :func:`factorank.register_code` and the models find it by name.
    """

    name: str
    """What :func:`factorank.code` finds it by."""
    factorized: bool = True
    """Whether every sequence within the domains decodes to a permutation (all codes but inline)."""
    positions: Literal["places", "items"] = "places"
    """What position i of the code belongs to: place i of the order, or item i (insertion)."""
    domains_depend_on_n: bool = True
    """Whether position i has another domain in a longer code; if not, lengths can be mixed in a batch."""

    @property
    def title(self) -> str:
        """What messages call it; the name unless a code says otherwise."""
        return self.name

    @abstractmethod
    def sizes(self, n: int) -> Tensor:
        """How many values each position may hold: ``(n,)`` int64."""

    @abstractmethod
    def _encode(self, order: Tensor) -> Tensor:
        """Codes of ``(rows, n)`` permutations that have been checked."""

    @abstractmethod
    def _decode(self, code: Tensor) -> Tensor:
        """Orders of ``(rows, n)`` codes that have been checked."""

    def support_mask(self, n: int) -> Tensor:
        """Bool ``(n, n)``: entry ``[i, v]`` says whether position i may hold the value v.

        >>> import factorank as fr
        >>> fr.Insertion().support_mask(3).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
        """
        return torch.arange(n) < self.sizes(n)[:, None]

    def encode(self, order: Tensor, *, check: bool = True) -> Tensor:
        """The code of each permutation in ``order``, ``(*batch, n)``, in the same dtype.

        ``check=False`` skips the test that the rows are permutations, which on a GPU costs one
        synchronisation; inside ``torch.compile`` and CUDA graph capture it is always off.
        """
        check_integer(order, f"{self.title} encodes orders")
        if order.numel() == 0:
            return order.clone()
        rows, fault = self._encode_rows(as_rows(order), check)
        if check and (row := place_of_fault(fault)) is not None:
            raise_not_permutation(order, row, f"{self.title} encodes")
        return rows.view(order.shape)

    def decode(self, code: Tensor, *, check: bool = True) -> Tensor:
        """The order that each code in ``code``, ``(*batch, n)``, stands for, in the same dtype.

        ``check=False`` skips the test of the domains, as in :meth:`encode`.
        """
        check_integer(code, f"{self.title} decodes codes", CodeError)
        n = code.shape[-1]
        if n - 1 > torch.iinfo(code.dtype).max:
            items = f"have orders with items up to {n - 1}, which {code.dtype} cannot hold"
            raise CodeError(f"{self.title} codes of length {n} {items}")
        if code.numel() == 0:
            return code.clone()
        rows, fault = self._decode_rows(as_rows(code), check)
        if check and (row := place_of_fault(fault)) is not None:
            self._raise_outside(code, row)
        return rows.view(code.shape)

    def _encode_rows(self, rows: Tensor, check: bool) -> tuple[Tensor, Tensor]:
        _, fault = transform(rows, "inverse", check=check)
        return (rows if _found(fault, check) else self._encode(rows)), fault

    def _decode_rows(self, rows: Tensor, check: bool) -> tuple[Tensor, Tensor]:
        if not check or cannot_check(rows):
            return self._decode(rows), torch.tensor(NO_FAULT)
        wide = rows.to(torch.int64)
        outside = ((wide < 0) | (wide >= self.sizes(rows.shape[-1]).to(rows.device))).any(1)
        fault = torch.where(outside.any(), outside.int().argmax(), NO_FAULT)
        return (rows if _found(fault, check) else self._decode(rows)), fault

    def _raise_outside(self, code: Tensor, row: int) -> None:
        n = code.shape[-1]
        values, sizes = as_rows(code)[row].tolist(), self.sizes(n).tolist()
        position = next(i for i in range(n) if not 0 <= values[i] < sizes[i])
        raise CodeError(
            f"{self.title} code of length {n} allows 0..{sizes[position] - 1} at position {position}"
            f" but {row_name(code, row)} holds {values[position]}"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Code) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class KernelCode(Code):
    """A code whose two directions are operations of the kernels' table, checks included."""

    def sizes(self, n: int) -> Tensor:
        return OPERATIONS[f"decode-{self.name}"].domain.sizes(n)

    @property
    def domains_depend_on_n(self) -> bool:  # type: ignore[override]
        return OPERATIONS[f"decode-{self.name}"].domain is not Domain.GROWING

    def _encode(self, order: Tensor) -> Tensor:
        return self._encode_rows(order, False)[0]

    def _decode(self, code: Tensor) -> Tensor:
        return self._decode_rows(code, False)[0]

    def _encode_rows(self, rows: Tensor, check: bool) -> tuple[Tensor, Tensor]:
        return transform(rows, f"encode-{self.name}", check=check)

    def _decode_rows(self, rows: Tensor, check: bool) -> tuple[Tensor, Tensor]:
        return transform(rows, f"decode-{self.name}", check=check)


def _found(fault: Tensor, check: bool) -> bool:
    return check and place_of_fault(fault) is not None
