"""From votes to a law: a consensus, which law fits best, how sure it is, and what it says of a new vote.

    python examples/votes_to_a_law.py

The votes are drawn here, from two groups with opposite tastes; ``fr.read_rankings(path)`` reads yours.
"""

import torch

import factorank as fr

FRUIT = ["apple", "pear", "plum", "fig", "kiwi"]


def drawn_votes(count: int, generator: torch.Generator) -> torch.Tensor:
    """Orders of two groups of voters, three to two."""
    groups = fr.Mallows([0, 1, 2, 3, 4], 0.4), fr.Mallows([4, 3, 0, 2, 1], 0.3)
    sizes = 3 * count // 5, count - 3 * count // 5
    parts = [law.sample((size,), generator=generator) for law, size in zip(groups, sizes, strict=True)]
    return torch.cat(parts)


def names(order: torch.Tensor) -> str:
    return " > ".join(FRUIT[item] for item in order.tolist())


def main(votes: int = 1000, seed: int = 0) -> dict[str, float]:
    """Print what is found; the bits that each law takes for a held-out vote."""
    generator = torch.Generator().manual_seed(seed)
    train, test = drawn_votes(votes, generator), drawn_votes(votes, generator)
    best = fr.consensus(train)
    print(f"Kemeny's consensus: {names(best.order)}, {'proven best' if best.exact else 'searched'}")

    laws: dict[str, fr.PermutationDistribution] = {
        "Plackett-Luce": fr.PlackettLuce.fit(train),
        "Mallows": fr.Mallows.fit(train),
        "two Mallows": fr.Mixture.fit(train, components=2, generator=generator),
    }
    bits = {name: -law.log_prob(test).mean().item() / 0.693147 for name, law in laws.items()}
    for name, value in sorted(bits.items(), key=lambda each: each[1]):
        print(f"{name:14} {value:.3f} bits a held-out vote")

    law = laws[min(bits, key=bits.get)]  # type: ignore[arg-type]
    print(
        "P(first):",
        ", ".join(f"{f} {p:.0%}" for f, p in zip(FRUIT, law.marginals()[:, 0].tolist(), strict=True)),
    )
    given = law.condition(observed=[4, 0])
    print(f"likeliest vote with kiwi before apple: {names(given.mode)}")
    return bits


if __name__ == "__main__":
    main()
