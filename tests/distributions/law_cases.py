"""Every law by name, as the contract tests build it. A new law is covered by adding its name here."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import factorank as fr
from factorank.distributions import PermutationDistribution


@dataclass(frozen=True)
class Case:
    name: str
    shapes: Callable[[int], tuple[tuple[int, ...], ...]]
    """Shapes, without batch, of the real numbers that the law is made from."""
    make: Callable[..., PermutationDistribution]
    """``make(central, *numbers)``; the numbers are any reals, and are squashed here where need be."""

    def numbers(
        self, n: int, batch: tuple[int, ...] = (), dtype: torch.dtype = torch.float64
    ) -> list[Tensor]:
        g = torch.Generator().manual_seed(n)
        return [
            torch.randn((*batch, *shape), generator=g, dtype=torch.float64).to(dtype)
            for shape in self.shapes(n)
        ]

    def law(
        self, n: int, batch: tuple[int, ...] = (), dtype: torch.dtype = torch.float64
    ) -> PermutationDistribution:
        g = torch.Generator().manual_seed(100 + n)
        central = fr.random_permutations(n, batch, generator=g)
        return self.make(central, *self.numbers(n, batch, dtype))


class History(torch.nn.Module):
    """A conditional that looks at all slots so far, with one weight for every (slot so far, next slot)."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight  # (*batch, n, n)

    def forward(self, slots: Tensor) -> Tensor:
        i = slots.shape[-1]
        met = torch.nn.functional.one_hot(slots, self.weight.shape[-1]).sum(-2).to(self.weight.dtype)
        return (met[..., None, :] @ self.weight).squeeze(-2)[..., : i + 1]


def _uniform(central: Tensor, zero: Tensor) -> fr.Uniform:
    return fr.Uniform(central.shape[-1], batch_shape=central.shape[:-1], dtype=zero.dtype, device=zero.device)


CASES = {
    case.name: case
    for case in (
        Case("uniform", lambda n: ((),), _uniform),
        Case("mallows", lambda n: ((),), lambda c, x: fr.Mallows(c, x.sigmoid())),
        Case(
            "weighted-mallows",
            lambda n: ((), (n,)),
            lambda c, x, w: fr.Mallows(c, x.sigmoid(), weights=w.exp()),
        ),
        Case("generalized-mallows", lambda n: ((n,),), lambda c, x: fr.GeneralizedMallows(c, x.sigmoid())),
        Case("rim", lambda n: ((n, n),), lambda c, x: fr.RIM(logits=x, reference=c)),
        Case(
            "rim-probs",
            lambda n: ((n, n),),
            lambda c, x: fr.RIM(x.exp().tril() / x.exp().tril().sum(-1, keepdim=True), c),
        ),
        Case("grim", lambda n: ((n, n),), lambda c, x: fr.GRIM(History(x), c)),
        Case("plackett-luce", lambda n: ((n,),), lambda c, x: fr.PlackettLuce(x)),
        Case("random-grades", lambda n: ((n, n + 2),), lambda c, x: fr.RandomGrades(x)),
    )
}
