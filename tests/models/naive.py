"""The laws once more, written from the definition for tiny n: loops over partitions, blocks, positions."""

import itertools
import math

import numpy
import scipy.stats
import torch
from torch import Tensor

import factorank as fr


def small_model(
    n: int, code: str, objective: str = "masked", *, seed: int = 0, **options
) -> fr.PermutationModel:
    """A random model that is far from uniform and whose positions depend on each other."""
    torch.manual_seed(seed)
    options = {"width": 16, "depth": 2, "heads": 2, **options}
    model = fr.PermutationModel(n, code, objective, **options).eval()
    with torch.no_grad():
        model.network.head.weight.mul_(10)
        model.network.head.bias.normal_()
    return model


def all_orders(n: int) -> Tensor:
    return torch.tensor(list(itertools.permutations(range(n))))


def all_sequences(model: fr.PermutationModel) -> Tensor:
    """Everything that the law of a model can draw."""
    n = model.n
    return (
        all_orders(n) if model.code.factorized else torch.tensor(list(itertools.product(range(n), repeat=n)))
    )


def free_positions(model: fr.PermutationModel, fixed=()) -> list[int]:
    """Those that are not fixed and have more than one possible value."""
    return [i for i, size in enumerate(model.code.sizes(model.n).tolist()) if size > 1 and i not in fixed]


def first_certain(model: fr.PermutationModel) -> list[int]:
    """The positions at the front with one possible value, which are revealed with the first block."""
    return list(itertools.takewhile(lambda i: int(model.code.sizes(model.n)[i]) == 1, range(model.n)))


def cut(listing: list[int], nfe: int) -> list[tuple[int, ...]]:
    """A list of positions in ``nfe`` blocks, the larger ones first: dealt out in turns, then put together."""
    sizes = [len(range(step, len(listing), nfe)) for step in range(nfe)]
    rest = iter(listing)
    return [tuple(sorted(itertools.islice(rest, size))) for size in sizes]


def block_log_probs(model: fr.PermutationModel, code: Tensor, shown: list[int], known=None) -> Tensor:
    """``(rows, n)``: log-probability of each value of ``code`` when the network sees the positions shown."""
    visible = torch.full_like(code, model.n)
    visible[:, shown] = code[:, shown]
    logits = model.network.head(model.network.hidden(visible, known, None))
    return logits.log_softmax(-1).gather(-1, code[..., None]).squeeze(-1)


@torch.no_grad()
def partition_log_prob(
    model: fr.PermutationModel, order: Tensor, blocks, known=None, shown=(), certain=None
) -> Tensor:
    """``certain`` are the positions that are revealed with the first block without being in it."""
    certain = first_certain(model) if certain is None else certain
    code, shown, total = model.code.encode(order, check=False), list(shown), torch.zeros(len(order))
    for block in blocks:
        total += block_log_probs(model, code, shown, known)[:, list(block)].sum(-1)
        shown += [*block, *certain]
    return total


def random_probs(model: fr.PermutationModel, order: Tensor, nfe: int) -> Tensor:
    """The mixture over all partitions, exactly."""
    partitions: dict = {}
    free = free_positions(model)
    for listing in itertools.permutations(free):
        key = tuple(cut(list(listing), nfe))
        partitions[key] = partitions.get(key, 0) + 1 / math.factorial(len(free))
    return sum(
        weight * partition_log_prob(model, order, blocks).exp() for blocks, weight in partitions.items()
    )


@torch.no_grad()
def confident_log_prob(model: fr.PermutationModel, order: Tensor, nfe: int) -> Tensor:
    """One row and one step at a time; the ties of certainty are those of the library's grid."""
    result = []
    for row in model.code.encode(order, check=False):
        shown, total = [], 0.0
        for size in (len(block) for block in cut(free_positions(model), nfe)):
            visible = torch.full_like(row, model.n)
            visible[shown] = row[shown]
            probs = model.network.head(model.network.hidden(visible[None], None, None))[0].softmax(-1)
            certainty = [-round(float(probs[i].max()) * 4096) for i in range(model.n)]
            rest = sorted(free_positions(model, shown), key=lambda i: (certainty[i], i))
            total += sum(math.log(float(probs[i, row[i]])) for i in rest[:size])
            shown += [*rest[:size], *first_certain(model)]
        result.append(total)
    return torch.tensor(result)


@torch.no_grad()
def autoregressive_log_prob(model: fr.PermutationModel, order: Tensor) -> Tensor:
    """Position by position; later values are replaced by zeros, which must not matter."""
    code, total = model.code.encode(order, check=False), torch.zeros(len(order))
    for position in range(model.n):
        seen = code.clone()
        seen[:, position:] = 0
        logits = model.network.head(model.network.causal_hidden(seen, None))[:, position]
        total += logits.log_softmax(-1).gather(-1, code[:, position, None]).squeeze(-1)
    return total


def assert_drawn_from(samples: Tensor, outcomes: Tensor, probs: Tensor) -> None:
    """A chi-square test; rare outcomes are put together, and impossible ones must not occur."""
    base = int(max(samples.max(), outcomes.max())) + 2
    key = (base ** torch.arange(outcomes.shape[-1])).double()
    codes = ((outcomes + 1) @ key.long()).tolist()
    index = {code: i for i, code in enumerate(codes)}
    counts = numpy.zeros(len(codes))
    for code in ((samples.reshape(-1, outcomes.shape[-1]) + 1) @ key.long()).tolist():
        counts[index[code]] += 1
    expected = probs.double().numpy() / float(probs.double().sum()) * counts.sum()
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    observed = [*counts[~rare], counts[rare].sum()]
    wanted = [*expected[~rare], expected[rare].sum()]
    if wanted[-1] < 5:
        observed, wanted = (
            [observed[0] + observed[-1], *observed[1:-1]],
            [wanted[0] + wanted[-1], *wanted[1:-1]],
        )
    if len(wanted) > 1:
        assert scipy.stats.chisquare(observed, wanted).pvalue > 1e-4
