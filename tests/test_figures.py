"""Figures are drawn from plain numbers, without torch."""

import subprocess
import sys

import pytest

import factorank as fr
from factorank.figures import fit_figure, read_results


def part(n, weight=1.0, intervals=True):
    return {
        "consensus": list(range(n))[::-1],
        "marginals": [[1 / n] * n for _ in range(n)],
        "place_intervals": [[1, n]] * n if intervals else None,
        "parameter": "phi",
        "values": [0.5],
        "weight": weight,
    }


@pytest.mark.parametrize(("n", "components"), [(3, 1), (3, 5), (40, 1)])
def test_heat_maps_of_any_size(n, components, tmp_path):
    facts = {"items": [f"item {i}" for i in range(n)], "refits": 10, "family": "Mallows", "file": "votes.soc"}
    facts["components"] = [part(n, intervals=bool(k % 2)) for k in range(components)]
    fit_figure(facts, tmp_path / "fit.png")
    assert (tmp_path / "fit.png").read_bytes().startswith(b"\x89PNG")


def test_figures_import_no_torch():
    code = "import sys, factorank.figures; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_bad_line_of_results_is_named(tmp_path):
    (tmp_path / "votes.jsonl").write_text('{"bits": 1}\n{\n')
    with pytest.raises(fr.FactorankError, match=r"votes.jsonl:2: not JSON"):
        read_results(tmp_path / "votes.jsonl")
