"""The playground in Chromium: how soon it is painted, how long the networks take to load, puzzles to solve.

    ./run bench playground [--out results/playground.jsonl]

Times are those of the browser, on an idle machine. A puzzle is solved from its pixels to slots and
probabilities, after the network is loaded; the median of several scrambles is taken.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.rows import merge
from benchmarks.timing import show
from factorank.experiments.record import provenance
from factorank.playground import build
from tests.playground.browser import launched, served, visiting

PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
GRIDS = ("3 × 3", "5 × 5", "8 × 8", "10 × 10")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench playground", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="scrambles of each grid")
    parser.add_argument("--folder", default="runs/playground", help="where the page is built")
    parser.add_argument("--out", default="runs/bench/playground.jsonl", help="rows of other devices are kept")
    options = parser.parse_args(argv)
    where = provenance(" ".join(["factorank bench playground", *(argv or ())]))
    with served(build(options.folder)) as address, launched() as browser:
        about = {"browser": f"Chromium {browser.version}", "repeats": options.repeats}
        rows = [row | about | where for row in measure(browser, address, options.repeats)]
    print(f"\nThe playground on {where['device']}, {about['browser']}, milliseconds")
    show(["what", "", "median", "most"], [_cells(row) for row in rows])
    merge(options.out, rows, figure=False)
    return 0


def measure(browser: Any, address: str, repeats: int) -> list[dict[str, Any]]:
    paints, loads = [], []
    for _ in range(repeats):
        with visiting(browser, address) as visit:
            panel = visit.open("puzzle")
            panel.locator(".piece").first.wait_for()
            visit.page.wait_for_function(f"() => {PAINT} !== null")
            paints.append(visit.page.evaluate(PAINT))
            load = "async () => { const start = performance.now(); await (await import('/js/photographs.js'))"
            loads.append(visit.page.evaluate(f"{load}.ready(); return performance.now() - start; }}"))
    rows = [_row("first contentful paint", paints), _row("load the network for photographs", loads)]
    with visiting(browser, address) as visit:
        panel = visit.open("puzzle")
        for grid in GRIDS:
            panel.get_by_text(grid, exact=True).click()
            times = []
            for _ in range(repeats):
                panel.get_by_role("button", name="Scramble").click()
                panel.get_by_text("Scrambled. Drag").wait_for()
                panel.evaluate("(panel) => delete panel.dataset.solved")
                panel.get_by_role("button", name="Solve").click()
                visit.page.wait_for_selector("[data-solved]")
                times.append(json.loads(panel.get_attribute("data-solved"))["milliseconds"])
            rows.append(_row(f"solve {grid.replace(' ', '')}", times))
    return rows


def _row(what: str, milliseconds: list[float]) -> dict[str, Any]:
    return {
        "experiment": "playground",
        "what": what,
        "milliseconds": round(median(milliseconds), 1),
        "milliseconds_most": round(max(milliseconds), 1),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [row["what"], "", f"{row['milliseconds']:.0f}", f"{row['milliseconds_most']:.0f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
