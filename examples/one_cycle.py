"""What a code can say at one evaluation: cyclic permutations by Fisher-Yates draws and by Lehmer codes.

    python examples/one_cycle.py

Both models see the same orders, each of which is one cycle. Fisher-Yates draws of such orders do not depend
on each other, so one evaluation is enough; Lehmer values do, and need more.
"""

import torch

import factorank as fr


def learned(code: str, orders: torch.Tensor, steps: int, seed: int) -> fr.PermutationModel:
    """A small masked model of the orders."""
    torch.manual_seed(seed)
    model = fr.PermutationModel(orders.shape[-1], code, "masked", width=32, depth=2, heads=4)
    fr.train(model, orders, steps=steps, lr=3e-3, batch_size=256, device="cpu", seed=seed)
    return model


def main(n: int = 6, steps: int = 600, samples: int = 4000, seed: int = 0) -> dict[str, list[float]]:
    """Print the share of samples that are one cycle, by evaluations; the shares."""
    generator = torch.Generator().manual_seed(seed)
    orders = fr.random_cyclic(n, (2000,), generator=generator)
    print(f"{'code':14}" + "".join(f"{nfe:>7} NFE" for nfe in range(1, n)))
    shares = {}
    for code in ("fisher-yates", "lehmer"):
        model = learned(code, orders, steps, seed)
        shares[code] = []
        for nfe in range(1, n):
            law = model.distribution(nfe=nfe, unmask="left-to-right")
            drawn = law.sample((samples,), generator=generator)
            assert fr.is_permutation(drawn).all()  # whatever was learned
            shares[code].append(fr.is_cyclic(drawn).float().mean().item())
        print(f"{code:14}" + "".join(f"{share:11.1%}" for share in shares[code]))
    print(f"{'by chance':14}{1 / n:11.1%}")
    return shares


if __name__ == "__main__":
    main()
