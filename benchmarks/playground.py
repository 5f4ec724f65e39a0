"""The playground in Chromium: how soon it is painted, how long the networks take to load, puzzles to solve.

    ./run bench playground [--out results/playground.jsonl]

Times are those of the browser, so the machine should be idle. A puzzle is solved from its pixels to slots and
probabilities, after the network is loaded; the median of several scrambles is taken. Beside it stands the CPU
time of the page's process for the same puzzle, which other programs do not lengthen.
"""

import argparse
import json
import os
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
AGAIN = """async (times) => {
  const { read, settle } = await import("/js/photographs.js");
  const { pixels, side, grid } = document.getElementById("panel-puzzle").puzzle;
  for (let i = 0; i < times; i++) await settle(await read(pixels, side, ...grid));
}"""
"""Solves the last puzzle again, without moving its pieces."""
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
        about["load"] = round(os.getloadavg()[0], 1)  # programs that ran besides: wall times grow with them
        rows = [row | about | where for row in measure(browser, address, options.repeats)]
    print(f"\nThe playground on {where['device']}, {about['browser']}, milliseconds")
    show(["what", "", "median", "most", "CPU"], [_cells(row) for row in rows])
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
            before = _cpu_milliseconds(browser)
            visit.page.evaluate(AGAIN, repeats)
            cpu = (_cpu_milliseconds(browser) - before) / repeats
            rows.append(_row(f"solve {grid.replace(' ', '')}", times) | {"cpu_milliseconds": round(cpu, 1)})
    return rows


def _cpu_milliseconds(browser: Any) -> float:
    """What the processes of pages have run, all their threads together."""
    session = browser.new_browser_cdp_session()
    processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return 1000 * sum(process["cpuTime"] for process in processes if process["type"] == "renderer")


def _row(what: str, milliseconds: list[float]) -> dict[str, Any]:
    return {
        "experiment": "playground",
        "what": what,
        "milliseconds": round(median(milliseconds), 1),
        "milliseconds_most": round(max(milliseconds), 1),
    }


def _cells(row: dict[str, Any]) -> list[str]:
    cpu = row.get("cpu_milliseconds")
    times = [f"{row['milliseconds']:.0f}", f"{row['milliseconds_most']:.0f}"]
    return [row["what"], "", *times, "–" if cpu is None else f"{cpu:.0f}"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
