"""Insertion vectors: where each item goes among those inserted before it."""

from factorank.codes.base import KernelCode


class Insertion(KernelCode):
    r"""The insertion vector of an order, relative to the reference 0, 1, …, n - 1.

    Item i is put at slot ``code[i]`` (0..i) of the list that items 0..i-1 form, the rest moving right. With
    0-based k, :math:`V(X)_k = k - L_{left}(X^{-1})_k`. For another reference ``ref`` encode
    ``compose(inverse(ref), order)``.

    Doignon, Pekeč and Regenwetter, "The repeated insertion model for rankings", 2004.

    >>> import torch, factorank as fr
    >>> fr.Insertion().decode(torch.tensor([0, 0, 1, 3, 2]))
    tensor([1, 2, 4, 0, 3])
    """

    name = "insertion"
    positions = "items"
