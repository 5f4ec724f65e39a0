"""Symmetric assignment: the cheapest matching of the rows and columns of a symmetric matrix of costs.

The costs are uniform on 0 to 1. If a matching of rows to columns is optimal then so is its inverse. The
optimum has cycles of length 1 and 2 and odd ones (a longer even cycle would cost as much as its two perfect
matchings in mean). Matrices whose optimum has one longer cycle have exactly two optimal matchings, those with
none have one; matrices with more such cycles are left out.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from factorank.assignment import best_assignment
from factorank.errors import FactorankError
from factorank.experiments.ambiguous_tasks import Cases, Split, VectorTokens
from factorank.files import alone, write_whole
from factorank.permutations import compose, cycle_count, inverse

COLDEST, TEMPERATURES, ROUNDS = 2e-5, 40, 10
"""Of Sinkhorn's algorithm on the costs: the last temperature, how many there are, rounds at each."""
NEAR = 0.1
"""Probabilities of rows that differ by less are taken as almost equal."""


class SymmetricAssignment:
    """The cheapest matching of rows and columns, by what Sinkhorn's algorithm says of the costs.

    The context is the matrix of Sinkhorn's algorithm at a low temperature. Its columns are named by a draft,
    the best assignment under that matrix: column i is the one that the draft gives to row i. Rows whose
    draft is the least certain come first, almost equal ones in random order. All methods get the same
    context. Matrices are drawn and solved once, and kept in ``folder``.
    """

    name = "symmetric-assignment"

    def __init__(
        self, n: int, trained: int, tested: int, device: torch.device | str, folder: Path | None = None
    ) -> None:
        self.n = n
        sizes = {"train": trained, "test": tested, "held_out": tested}
        self.solved = {
            split: _kept(folder, f"assignment-{n}-{split}", n, count, seed, device)
            for seed, (split, count) in enumerate(sizes.items(), 1)
        }

    def cases(self, count: int, generator: torch.Generator, split: Split = "train") -> Cases:
        solved = self.solved[split]
        if split == "test":
            chosen = torch.arange(count, device=generator.device)
            if count > len(solved.ranks):
                raise FactorankError(f"there are {len(solved.ranks)} test matrices, not {count}")
        else:
            many = len(solved.ranks)
            chosen = torch.randint(many, (count,), generator=generator, device=generator.device)
        return self._listed(solved.context[chosen], solved.ranks[chosen], generator)

    def _listed(self, matrix: Tensor, ranks: Tensor, generator: torch.Generator) -> Cases:
        """The cases with their rows in the order of certainty, and the columns with them."""
        certain, matrix, ranks = matrix.diagonal(dim1=-2, dim2=-1).float(), matrix.float(), ranks.long()
        noise = torch.rand(certain.shape, generator=generator, device=certain.device)
        names = (certain + NEAR * noise).argsort(-1)
        matrix = matrix.gather(-2, names[:, :, None].expand_as(matrix))
        matrix = matrix.gather(-1, names[:, None, :].expand_as(matrix))
        ranks = ranks.gather(-1, names[:, None].expand_as(ranks))
        return Cases(matrix, names.argsort(-1)[:, None].expand_as(ranks).gather(-1, ranks))

    def encoder(self, width: int) -> nn.Module:
        return VectorTokens(self.n, width)


def solved_matrices(n: int, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Symmetric costs ``(count, n, n)``, float64, and their optimal matchings ``(count, 2, n)``, exactly.

    A matching gives each row its column. Matrices with more than two optimal matchings are drawn again.
    """
    costs: list[Tensor] = []
    matchings: list[Tensor] = []
    while sum(len(some) for some in costs) < count:
        drawn = torch.rand((max(64, count // 4), n, n), generator=generator, dtype=torch.float64).triu()
        drawn = drawn + drawn.triu(1).mT
        best = best_assignment(-drawn)
        fixed = (best == torch.arange(n)).sum(-1)
        back = best.gather(-1, best) == torch.arange(n)  # in cycles of length 1 and 2
        longer = cycle_count(best) - fixed - (back.sum(-1) - fixed) // 2
        costs.append(drawn[longer <= 1])
        matchings.append(best[longer <= 1])
    best = torch.cat(matchings)[:count]
    return torch.cat(costs)[:count], torch.stack([best, inverse(best, check=False)], 1)


def sinkhorn_of_costs(costs: Tensor) -> Tensor:
    """The doubly stochastic matrix of costs ``(*batch, n, n)`` at a low temperature, in logarithms.

    The temperature falls step by step and the potentials are kept, so that a few rounds at each are enough.
    Cheapest matchings share the matrix equally: two optimal ones have 1/2 each.
    """
    rows, columns = costs.new_zeros(costs.shape[:-1]), costs.new_zeros(costs.shape[:-1])
    for step in range(TEMPERATURES):
        temperature = 0.2 * (COLDEST / 0.2) ** (step / (TEMPERATURES - 1))
        for _ in range(ROUNDS):
            rows = -temperature * ((columns[..., None, :] - costs) / temperature).logsumexp(-1)
            columns = -temperature * ((rows[..., :, None] - costs) / temperature).logsumexp(-2)
    return (rows[..., :, None] + columns[..., None, :] - costs) / COLDEST


def _kept(folder: Path | None, name: str, n: int, count: int, seed: int, device: torch.device | str) -> Cases:
    """Solved matrices, as context and ranks relative to the draft; from the folder if they are there."""
    from safetensors.torch import load, save

    if folder is None:
        made = _drafted(n, count, seed, device)
    else:
        path = folder / f"{name}-{count}.safetensors"
        with alone(folder, wait=True):  # several processes need the same matrices: one solves them
            if not path.exists():
                write_whole(path, save(_drafted(n, count, seed, device)))
        made = load(path.read_bytes())
    return Cases(made["context"].to(device), made["ranks"].to(device))


def _drafted(n: int, count: int, seed: int, device: torch.device | str) -> dict[str, Tensor]:
    """Contexts, float16, and ranks, int16, of random matrices."""
    costs, matchings = solved_matrices(n, count, torch.Generator().manual_seed(seed))
    contexts, ranks = [], []
    for some, best in zip(costs.float().split(500), matchings.split(500), strict=True):
        log_matrix = sinkhorn_of_costs(some.to(device))
        draft = best_assignment(log_matrix)
        columns = draft[:, None, :].expand_as(log_matrix)
        contexts.append(log_matrix.exp().gather(-1, columns).half().cpu())
        back = inverse(draft, check=False).cpu()[:, None].expand_as(best)
        ranks.append(compose(back, best).to(torch.int16))
    return {"context": torch.cat(contexts), "ranks": torch.cat(ranks)}
