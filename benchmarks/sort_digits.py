"""The sorting example on MNIST: how many lists each code sorts.

    ./run bench sort_digits --folder DIR [--steps 2000] [--out results/sort-digits.jsonl]

DIR holds the four files of MNIST. A row for each code has the share of 2,000 lists of five test digits that
the model of ``examples/sort_digits.py`` sorts without an error at one evaluation, trained on the CPU.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from examples import sort_digits
from factorank.experiments.record import provenance, write_results


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench sort_digits", description=__doc__)
    parser.add_argument("--folder", required=True, help="of the files of MNIST")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", default="runs/bench/sort-digits.jsonl")
    options = parser.parse_args(argv)
    where = provenance(f"factorank bench sort_digits --folder DIR --steps {options.steps}")
    start = time.perf_counter()
    shares = sort_digits.main(options.folder, steps=options.steps)
    took = {"seconds": round(time.perf_counter() - start, 1)}
    setting = {"experiment": "sort-digits", "objective": "masked", "nfe": 1, "n": 5, "steps": options.steps}
    write_results(
        options.out,
        [setting | {"code": code, "exact": share} | where | took for code, share in shares.items()],
    )
    print(" ".join(f"{code} {share:.3f}" for code, share in shares.items()))
    print(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
