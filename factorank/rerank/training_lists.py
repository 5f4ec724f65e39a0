"""Lists of rated items as a model trains on them: items in a random order, and the order of preference."""

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from factorank.data.ratings import Ratings, order_of
from factorank.errors import FactorankError


class RatingLists:
    """Makes batches from ratings: orders ``(batch, n)`` of preference and items ``(batch, n)``, -1 pads.

    With ``told`` the items come with their relevances ``(batch, n)``, as a pair.

    Which ratings of a user, their order in the list (the reference of the code) and the order of equal
    ratings are drawn anew each time. Tensor operations alone, on the generator's device.
    """

    capturable = True

    def __init__(self, ratings: Ratings, n: int, shortest: int | None = None, told: bool = False) -> None:
        self.ratings, self.n, self.shortest, self.told = ratings, n, shortest, told
        enough = ratings.users_with(n if shortest is None else shortest)
        if not len(enough):
            raise FactorankError(
                f"no user has the {n if shortest is None else shortest} ratings that the shortest list takes"
            )

    def __call__(
        self, batch_size: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
        if self.ratings.device != generator.device:
            self.ratings = self.ratings.to(generator.device)
        items, relevance = self.ratings.draw(self.n, batch_size, generator, shortest=self.shortest)
        return preferred(items, relevance, generator), (items, relevance) if self.told else items


def preferred(items: Tensor, relevance: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """The order ``(*batch, n)`` of a list's places, best first, ties at random, -1 after the list's end."""
    return torch.where(items < 0, -1, order_of(relevance, generator))


def held_out_lists(
    ratings: Ratings,
    n: int,
    shortest: int | None,
    count: int,
    generator: torch.Generator,
    told: bool = False,
) -> tuple[Tensor, Tensor | tuple[Tensor, Tensor]]:
    """``count`` lists of users that are not trained on, as :class:`RatingLists` makes them.

    Where nobody has n ratings, and shorter lists are trained on, the longest are as long as there are.
    """
    longest = min(n, int(ratings.lengths.max()))
    least = n if shortest is None else shortest
    if longest < least:
        raise FactorankError(
            f"validation users have up to {longest} ratings, but a list takes {least}; lower shortest or n,"
            " or hold out more users"
        )
    batch = RatingLists(ratings, longest, shortest, told)(count, generator)
    return tree_map(lambda part: torch.nn.functional.pad(part, (0, n - longest), value=-1), batch)


def mean_gains(ratings: Ratings, n: int, generator: torch.Generator, lists: int = 20_000) -> Tensor:
    r"""The mean gain :math:`2^{rel} - 1` of each place ``(n,)`` over training lists of n, best first.

    Where fewer than a quarter of the users have n ratings, lists are as long as those have it, and their
    places are stretched to n.
    """
    longest = min(n, int(ratings.lengths.sort(descending=True).values[len(ratings) // 4]))
    _, relevance = ratings.draw(longest, lists, generator)
    gains = (torch.exp2(relevance) - 1).sort(-1, descending=True).values.mean(0)
    return stretched(gains, n)


def stretched(gains: Tensor, n: int) -> Tensor:
    """Gains ``(m,)`` of the places of a list of m, read at the relative places of a list of n: ``(n,)``.

    >>> stretched(torch.tensor([4.0, 2.0]), 4)
    tensor([4.0000, 3.5000, 2.5000, 2.0000])
    """
    m = len(gains)
    if n == 0 or m == 0:
        return gains.new_zeros(n)
    at = ((torch.arange(n, device=gains.device) + 0.5) / n * m - 0.5).clamp(0, m - 1)
    low = at.floor().long()
    high = (low + 1).clamp(max=m - 1)
    return gains[low] + (at - low) * (gains[high] - gains[low])
