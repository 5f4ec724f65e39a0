"""Random numbers that belong to items: the same item and seed have the same number in any list.

References and ties are decided by them, so that an answer does not depend on the order in which items are
listed, nor on who else is asked for.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_GOLDEN = -7046029254386353131
_FIRST, _SECOND = -4658895280553007687, -7723592293110705685
_ALL = (1 << 64) - 1


def item_keys(identity: Tensor, seeds: Tensor) -> Tensor:
    """Uniform numbers in [0, 1), float64, for items by their int64 ``identity`` and seeds; shapes broadcast.

    The finalizer of SplitMix64 (Steele, Lea and Flood, 2014), on identity and seed in turn.

    >>> identity = torch.tensor([3, 1, 2])
    >>> keys = item_keys(identity, torch.tensor(0))
    >>> bool((item_keys(identity.flip(0), torch.tensor(0)) == keys.flip(0)).all())
    True
    """
    mixed = _mixed(_mixed(seeds) + identity)
    return ((mixed >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


def seeds_of(generator: torch.Generator, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Seeds ``(count,)`` that a generator draws."""
    drawn = torch.randint(2**62, (count,), generator=generator, device=generator.device)
    return drawn.to(device)


def name_identity(name: object) -> int:
    """The identity of an item that has no number in the catalogue, by its name.

    >>> name_identity(np.str_("x")) == name_identity("x")
    True
    """
    name = name.item() if isinstance(name, np.generic) else name
    digest = hashlib.blake2b(repr(name).encode(), digest_size=7).digest()
    return (1 << 60) + int.from_bytes(digest, "big")


def sorted_by_key(identities: Sequence[int], seed: int) -> list[int]:
    """Places of items sorted by their keys: a random order of them that does not depend on how they stand.

    In plain numbers: a user has few items, and operations on small tensors take longer.

    >>> ids = [3, 1 << 60, 2, 77]
    >>> sorted_by_key(ids, 5) == item_keys(torch.tensor(ids), torch.tensor(5)).argsort().tolist()
    True
    """
    base = _mixed_number(seed)
    keys = [_mixed_number((base + identity) & _ALL) >> 11 for identity in identities]
    return sorted(range(len(keys)), key=keys.__getitem__)


def _mixed_number(number: int) -> int:
    """:func:`_mixed` of one number, as an unsigned one."""
    number = (number + _GOLDEN) & _ALL
    number = ((number ^ (number >> 30)) * _FIRST) & _ALL
    number = ((number ^ (number >> 27)) * _SECOND) & _ALL
    return number ^ (number >> 31)


def _mixed(numbers: Tensor) -> Tensor:
    """Whole numbers int64 mixed so that all bits depend on all bits; products wrap around."""
    numbers = numbers + _GOLDEN
    numbers = (numbers ^ _shifted(numbers, 30)) * _FIRST
    numbers = (numbers ^ _shifted(numbers, 27)) * _SECOND
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: Tensor, bits: int) -> Tensor:
    """Shifted right with zeros coming in, which torch's shift of signed numbers does not do."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
