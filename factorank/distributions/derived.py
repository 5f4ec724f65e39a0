"""Laws made of another law: rows of its batch, and kinds that modules register by name.

The base class makes them by :func:`derived`; no law needs to import the laws that come out of it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.types import _size

from factorank.arguments import guard_class
from factorank.errors import DistributionError, FactorankError
from factorank.permutations import checked_shape

Maker = TypeVar("Maker", bound=Callable[..., Any])

_makers: dict[str, Callable[..., Any]] = {}


def derives(name: str) -> Callable[[Maker], Maker]:
    """Register a function, or a class, that makes a law of another law."""

    def register(maker: Maker) -> Maker:
        _makers[name] = maker
        return maker

    return register


def derived(name: str, *arguments: Any) -> Any:
    """The law that the maker of that name makes."""
    return _makers[name](*arguments)


def rows_at(index: Any, batch_shape: torch.Size, error: type[FactorankError]) -> Tensor:
    """The numbers of the rows that an index picks of a batch, in the shape that it gives them.

    >>> rows_at((slice(None), -1), torch.Size((2, 3)), FactorankError)
    tensor([2, 5])
    """
    try:
        if isinstance(index, list):  # of rows, as in numpy
            index = torch.tensor(index, dtype=None if index else torch.int64)
        rows = torch.arange(batch_shape.numel()).view(batch_shape)[index]
    except (IndexError, TypeError, ValueError, RuntimeError) as fault:
        raise error(f"{index!r} is no index of a batch of shape {tuple(batch_shape)}: {fault}") from None
    return rows


def taken(value: Tensor, batch_shape: torch.Size, rows: Tensor) -> Tensor:
    """Of a tensor ``(*batch, *own)`` the rows of these numbers: ``(*rows, *own)``."""
    own = value.shape[len(batch_shape) :]
    flat = value.expand(batch_shape + own).reshape(-1, *own)
    return flat[rows.flatten().to(value.device)].view(rows.shape + own)


class Batched(Distribution):
    """A law whose batch can be expanded and indexed."""

    _batched: ClassVar[tuple[str, ...]] = ()
    """Further attributes, beside the parameters, that have the batch: tensors ``(*batch, *own)`` and laws."""
    error: ClassVar[type[FactorankError]] = DistributionError
    """What is raised for a request that the law cannot meet."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__module__.startswith("factorank."):  # laws that no public name makes, such as learned ones
            guard_class(cls)

    def expand(self, batch_shape: _size, _instance: Self | None = None) -> Self:
        """The same law with its batch dimensions expanded to ``batch_shape``; nothing is copied."""
        shape, old = checked_shape(batch_shape, self.error), len(self.batch_shape)
        fits = len(shape) >= old and all(
            here in (1, there) for here, there in zip(self.batch_shape[::-1], shape[::-1], strict=False)
        )
        if not fits:
            raise self.error(
                f"a law of batch shape {tuple(self.batch_shape)} does not expand to {tuple(shape)}"
            )
        new = type(self).__new__(type(self)) if _instance is None else _instance
        return self._changed(new, shape, lambda x: x.expand(shape + x.shape[old:]), lambda x: x.expand(shape))

    def __getitem__(self, index: Any) -> Self:
        """The laws of some rows of the batch, by the index that a tensor of its shape would take.

        >>> import factorank as fr
        >>> fr.Mallows(torch.arange(3), torch.tensor([0.2, 0.5, 0.9]))[1].phi
        tensor(0.5000)
        """
        return self._taken(rows_at(index, self.batch_shape, self.error))

    def __iter__(self) -> Iterator[Self]:
        if not self.batch_shape:
            raise self.error(f"one iterates over a batch of laws, but {self!r} is one law")
        return (self[row] for row in range(self.batch_shape[0]))

    def _taken(self, rows: Tensor) -> Self:
        """The laws of the rows of these numbers, in the shape of ``rows``."""
        new = type(self).__new__(type(self))
        pick, each = partial(taken, batch_shape=self.batch_shape, rows=rows), lambda law: law._taken(rows)
        return self._changed(new, rows.shape, pick, each)

    def _changed(
        self, new: Self, shape: torch.Size, tensor: Callable[[Tensor], Tensor], law: Callable[[Any], Any]
    ) -> Self:
        """``new`` with the attributes of this law, the batched ones changed to a batch of that shape."""
        for name, value in self.__dict__.items():
            if name in self.arg_constraints or name in self._batched:
                if isinstance(value, Tensor):
                    value = tensor(value)
                elif isinstance(value, Batched):
                    value = law(value)
            new.__dict__[name] = value
        new._batch_shape = shape
        return new
