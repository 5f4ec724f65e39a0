"""Rankings as plain lists, between a file and :class:`factorank.Rankings`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from factorank.data.rankings.checks import fail

UNRANKED = -1


@dataclass
class PlainRankings:
    """What a file of rankings holds, and where each ranking stands in it."""

    items: list[str]
    ranks: list[list[int]]
    """A row for each ranking: the place of each item from 0, equal for tied items, -1 for unranked ones."""
    counts: list[int]
    places: list[str] = field(default_factory=list)
    """Where each row stands, for messages: ``votes.soc:17``."""
    metadata: Mapping[str, str] = field(default_factory=dict)


def ranks_from_levels(levels: Sequence[Sequence[int]], n: int) -> list[int]:
    """Ranks of n items from groups of tied items, best first."""
    ranks = [UNRANKED] * n
    for place, level in enumerate(levels):
        for item in level:
            ranks[item] = place
    return ranks


def levels_of(ranks: Sequence[int]) -> list[list[int]]:
    """Groups of tied items, best first: the inverse of :func:`ranks_from_levels`."""
    levels: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for item, rank in enumerate(ranks):
        if rank >= 0:
            levels[rank].append(item)
    return levels


def close_ranks(
    numbers: Mapping[int, int], n: int, first: int, where: str, items: Sequence[str]
) -> list[int]:
    """Levels from 0 for ranks as a file numbers them; ``numbers`` maps ranked items to their numbers.

    Tied items share a number. The number after a tie is either the next one (1, 2, 2, 3) or the number of
    items before plus one (1, 2, 2, 4). Anything else is a gap.
    """
    if not numbers:
        fail(where, "no item is ranked")
    least = min(numbers, key=lambda item: numbers[item])
    if numbers[least] != first:
        fail(where, f"the ranks begin with {numbers[least]} ({items[least]}); the best item has rank {first}")
    used = sorted(set(numbers.values()))
    dense = {value: level for level, value in enumerate(used)}
    if used[-1] - first >= len(used):
        before = first
        holders = {value: sum(rank == value for rank in numbers.values()) for value in used}
        for value in used:
            if value != before:
                missing = next(rank for rank in range(first, used[-1]) if rank not in dense)
                above = next(rank for rank in used if rank > missing)
                fail(where, f"rank {missing} is missing, but {items[_who(numbers, above)]} has rank {above}")
            before += holders[value]
    return [dense[numbers[item]] if item in numbers else UNRANKED for item in range(n)]


def _who(numbers: Mapping[int, int], value: int) -> int:
    return next(item for item, rank in numbers.items() if rank == value)
