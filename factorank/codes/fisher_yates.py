"""Fisher-Yates draws: the swaps of a shuffle that ends in the permutation."""

from factorank.codes.base import KernelCode


class FisherYates(KernelCode):
    """The draws of the Fisher-Yates shuffle that turns the identity into the order.

    At step i the item at place i is swapped with the one ``draws[i]`` places further; 0 leaves it. The order
    is a single n-cycle exactly when the first n - 1 draws are above zero (Sattolo).

    Fisher and Yates, "Statistical tables", 1953; Sattolo, "An algorithm to generate a random cyclic
    permutation", 1986.

    >>> import torch, factorank as fr
    >>> fr.FisherYates().decode(torch.tensor([3, 1, 0, 0]))
    tensor([3, 2, 1, 0])
    """

    name = "fisher-yates"
    title = "Fisher-Yates"
