"""Networks on votes: what `factorank train` learns by its defaults, beside the best classical mixtures.

    ./run bench networks --folder DIR/datasets [--mixtures rim:8 rim:6] [--out results/votes-networks.jsonl]

DIR is a copy of the public repository PrefLib/PrefLib-Data. The 5,000 rankings of ten sushi (set 00014) are
split into 4,000 to learn from and 1,000 that decide nothing. A row gives the bits of a ranking of the 1,000:
of the mixture of networks, of the networks of each code that was tried, and of each classical mixture, with
the mean difference to the networks and its standard error, voter by voter.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from factorank.data import read_rankings
from factorank.distributions import Mixture
from factorank.experiments.record import provenance, write_results
from factorank.training import TrainSettings
from factorank.votes import FitSettings, fit_family, train_networks

FILE = Path("00014 - sushi") / "00014-00000001.soc"
SETTINGS = TrainSettings(steps=600, lr=2e-3, batch_size=256, ema=0.98, patience=10, device="cpu")
"""Those of `factorank train`."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench networks", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="that of PrefLib's sets")
    parser.add_argument("--mixtures", nargs="*", default=["rim:8"], help="family:components")
    parser.add_argument("--restarts", type=int, default=50, help="starts of each mixture")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="runs/bench/votes-networks.jsonl")
    options = parser.parse_args(argv)
    told = f"--mixtures {' '.join(options.mixtures)} --restarts {options.restarts} --seed {options.seed}"
    where = provenance(f"factorank bench networks --folder DIR/datasets {told}")
    train, test = read_rankings(options.folder / FILE).split(0.2, torch.Generator().manual_seed(0))
    orders, scored = train.orders(), test.orders()
    about = {"experiment": "votes-networks", "data": "sushi", "n": train.n, "voters": train.voters}
    about |= {"scored": test.voters, "seed": options.seed}

    start, used = time.perf_counter(), time.process_time()
    settings = TrainSettings(**vars(SETTINGS) | {"seed": options.seed})
    networks = train_networks(orders, settings)
    took = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - used}
    ours = networks.law.log_prob(scored).detach()
    rows = [
        about | {"method": "networks", "networks": len(networks.members)} | bits(ours, ours) | took | where
    ]
    for tried in networks.tried:
        parts = Mixture([1.0] * len(tried.models), [model.distribution() for model in tried.models])
        facts = {"method": tried.candidate.name, "networks": len(tried.models), "share": tried.weight}
        facts |= {"held_out_bits": tried.bits, "seconds": tried.seconds}
        rows.append(about | facts | bits(parts.log_prob(scored).detach(), ours) | where)
    write_results(options.out, rows)
    for name in options.mixtures:
        family, _, components = name.partition(":")
        start = time.perf_counter()
        fit = FitSettings(components=int(components), family=family, smoothing=1.0, penalty=0.1)
        fit = FitSettings(**vars(fit) | {"restarts": options.restarts})
        generator = torch.Generator().manual_seed(options.seed)
        law = fit_family("mixture", train, fit, generator)
        facts = {"method": f"mixture of {components} {family}", "restarts": options.restarts}
        facts |= {"seconds": time.perf_counter() - start}
        rows.append(about | facts | bits(law.log_prob(scored), ours) | where)
        write_results(options.out, rows)
    for row in rows:
        less = f"networks need {row['less']:.3f} ± {row['less_se']:.3f} less"
        print(f"{row['method']:<28} {row['bits']:.3f} ± {row['bits_se']:.3f} bits, {less}")
    print(f"wrote {options.out}")
    return 0


def bits(log_probs: Tensor, ours: Tensor) -> dict[str, Any]:
    """Mean bits, and by how much the networks need less, each with its standard error over voters."""
    own, less = -log_probs.double() / math.log(2), (ours - log_probs).double() / math.log(2)
    error = len(own) ** 0.5
    return {
        "bits": float(own.mean()),
        "bits_se": float(own.std()) / error,
        "less": float(less.mean()),
        "less_se": float(less.std()) / error,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
