"""How close the fits of mixtures come to the best that is known, by the number of starts.

    ./run bench mixtures --folder DIR/datasets [--components 3 4] [--out results/votes-mixtures.jsonl]

DIR is a copy of the public repository PrefLib/PrefLib-Data. Mixtures of Mallows laws are fitted to the 5,000
rankings of ten sushi (set 00014) from a few and from many starts, each with several seeds. A row gives the
log-likelihood of a fit, how far it lies below the best of all fits with as many components, and its time.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from factorank.data import read_rankings
from factorank.experiments.record import provenance, write_results
from factorank.votes import FitSettings, fit_family

FILE = Path("00014 - sushi") / "00014-00000001.soc"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench mixtures", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="that of PrefLib's sets")
    parser.add_argument("--components", nargs="*", type=int, default=[3, 4, 6])
    parser.add_argument("--starts", nargs="*", type=int, default=[5, 50])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", default="runs/bench/votes-mixtures.jsonl")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    numbers = f"--components {' '.join(map(str, options.components))}"
    numbers += f" --starts {' '.join(map(str, options.starts))} --seeds {options.seeds}"
    where = provenance(f"factorank bench mixtures --folder DIR/datasets {numbers}")
    votes = read_rankings(options.folder / FILE)
    rows: list[dict[str, Any]] = []
    fit_family("mixture", votes, FitSettings(components=2, restarts=2))  # compiled before anything is timed
    for components, starts in itertools.product(options.components, options.starts):
        for seed in range(options.seeds):
            settings = FitSettings(components=components, family="mallows", restarts=starts)
            start = time.process_time()
            law = fit_family("mixture", votes, settings, torch.Generator().manual_seed(seed))
            assert law.report is not None
            row = {"experiment": "votes-mixtures", "data": "sushi", "n": votes.n, "voters": votes.voters}
            row |= {"family": "mallows", "components": components, "starts": starts, "seed": seed}
            row |= {"log_likelihood": law.report.log_likelihood, "cpu_seconds": time.process_time() - start}
            rows.append(row)
    for row in rows:
        best = max(each["log_likelihood"] for each in rows if each["components"] == row["components"])
        row["below_best"] = best - row["log_likelihood"]
        print(
            f"{row['components']} components, {row['starts']:3} starts, seed {row['seed']}:"
            f" {row['log_likelihood']:.1f} ({row['below_best']:.1f} below), {row['cpu_seconds']:.1f} s"
        )
    write_results(options.out, [row | where for row in rows])
    return 0


if __name__ == "__main__":
    sys.exit(main())
