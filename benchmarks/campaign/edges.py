"""Numerical edges: laws whose parameters are as small, large or equal as they may be, of few and many items.

Probabilities of all orders sum to one, samples are permutations, and nothing is NaN.
"""

import itertools
import random
from typing import Any

import torch

import factorank as fr

EDGES = [0.0, 5e-324, 1e-300, 1e-30, 1e-8, 1e-3, 0.5, 0.999, 1 - 1e-7, 1.0]
SCORES = [0.0, 1e-30, 1.0, -1.0, 50.0, -50.0, 700.0, -700.0, 1e4, -1e4]


def law_at(number: int, seed: int) -> tuple[str, Any]:
    """A law at an edge: its description, and a function that makes it."""
    chance = random.Random(f"{seed} {number}")
    n, dtype = chance.choice([0, 1, 2, 3, 5]), chance.choice([torch.float32, torch.float64])
    family = chance.choice(
        ["Mallows", "weighted Mallows", "GeneralizedMallows", "PlackettLuce", "RIM", "Mixture"]
    )
    phis = torch.tensor([chance.choice(EDGES) for _ in range(n)], dtype=dtype)
    scores = torch.tensor([chance.choice(SCORES) for _ in range(n)], dtype=dtype)
    central = torch.randperm(n, generator=torch.Generator().manual_seed(number))
    phi = torch.tensor(chance.choice(EDGES), dtype=dtype)
    described = f"{family} of {n} items, {dtype}: phi {phi.item()}, {phis.tolist()}, {scores.tolist()}"
    makers = {
        "Mallows": lambda: fr.Mallows(central, phi),
        "weighted Mallows": lambda: fr.Mallows(central, phi, weights=phis * 2),
        "GeneralizedMallows": lambda: fr.GeneralizedMallows(central, phis),
        "PlackettLuce": lambda: fr.PlackettLuce(scores),
        "RIM": lambda: fr.RIM(logits=scores[:, None].expand(n, n).clone(), reference=central),
        "Mixture": lambda: fr.Mixture([1e-300, 1.0], [fr.Mallows(central, phi), fr.Uniform(n)]),
    }
    return described, makers[family]


def attempt(number: int, seed: int) -> tuple[str, str]:
    """What came of a law at an edge."""
    described, make = law_at(number, seed)
    try:
        law = make()
    except fr.FactorankError:
        return "refused", described
    except Exception as error:
        return "raw", f"{described}: {type(error).__name__}: {str(error)[:90]}"
    try:
        orders = list(itertools.permutations(range(law.n)))
        every = torch.tensor(orders, dtype=torch.int64).reshape(len(orders), law.n)
        log_prob = law.log_prob(every)
        total = float(log_prob.double().exp().sum())
        drawn = law.sample((20,), generator=torch.Generator().manual_seed(number))
        entropy = float(law.entropy())
    except Exception as error:
        return "raw", f"{described}: {type(error).__name__}: {str(error)[:90]}"
    faults = []
    if bool(log_prob.isnan().any()) or abs(total - 1) > 1e-3:
        faults.append(f"probabilities sum to {total}")
    if not bool(fr.is_permutation(drawn).all()) or bool(law.log_prob(drawn).isneginf().any()):
        faults.append("a sample that cannot be")
    if not -1e-3 <= entropy < 1e3:
        faults.append(f"entropy {entropy}")
    return ("wrong answer", f"{described}: {'; '.join(faults)}") if faults else ("right", described)
