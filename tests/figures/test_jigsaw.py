"""The figures of the jigsaw experiment."""

import json

import pytest

import factorank as fr
from factorank.figures import draw
from factorank.figures.jigsaw import _one_code_a_grid, jigsaw_figure


def row(method="factorank", code="lehmer", objective="masked", **more):
    base = {"experiment": "jigsaw", "method": method, "code": code, "objective": objective, "nfe": 1}
    base |= {
        "label": "default",
        "split": "test",
        "grid": 3,
        "solved_identical": 0.9,
        "pieces_identical": 0.95,
    }
    base |= {"solved_identical_low": 0.88, "solved_identical_high": 0.92, "per_second": 1e5}
    return base | more


def test_of_our_models_those_of_the_code_with_the_most_seeds_are_lines():
    rows = [row(seed=0), row(seed=1), row(code="inline", seed=0), row(grid=6, code="inline", seed=0)]
    rows += [row(method="riffle-diffusion", code=None, objective=None)]
    found = _one_code_a_grid(rows)
    assert sorted((one["grid"], one["method"], str(one["code"])) for one in found) == [
        (3, "factorank", "lehmer"),
        (3, "factorank", "lehmer"),
        (3, "riffle-diffusion", "None"),
        (6, "factorank", "inline"),
    ]


def test_results_are_drawn(tmp_path):
    rows = [
        row(grid=grid, seed=seed, solved_identical=0.9 - 0.01 * grid) for grid in (2, 3, 8) for seed in (0, 1)
    ]
    rows += [
        row(code=code, objective=o, nfe=9) for code in ("inline", "insertion") for o in ("autoregressive",)
    ]
    rows += [row(method="riffle-diffusion", code=None, objective=None, label="x", per_second=None)]
    rows += [row(label="no-ema"), row(label="codes", code="left-lehmer"), row(split="held_out")]
    results = tmp_path / "jigsaw.jsonl"
    results.write_text("".join(json.dumps(one) + "\n" for one in rows))
    draw("jigsaw", results, tmp_path / "jigsaw.png")
    assert (tmp_path / "jigsaw.png").read_bytes().startswith(b"\x89PNG")
    perfect = {"solved_identical": 1.0, "solved_identical_low": 1.0, "solved_identical_high": 1.0}
    results.write_text(json.dumps(row(label="codes", **perfect)) + "\n")
    jigsaw_figure(results, tmp_path / "perfect.png")
    assert (tmp_path / "perfect.png").exists()
    results.write_text(json.dumps(row(split="held_out")) + "\n")
    with pytest.raises(fr.FactorankError, match="holds no results on test pictures"):
        jigsaw_figure(results, tmp_path / "other.png")


def results_of(folder):
    path = folder / "jigsaw.jsonl"
    path.write_text(json.dumps(row()) + "\n")
    return path


def test_a_format_that_is_not_there(tmp_path):
    with pytest.raises(fr.FactorankError, match=r"a.xyz: Format 'xyz' is not supported"):
        jigsaw_figure(results_of(tmp_path), tmp_path / "a.xyz")
    assert [path.name for path in tmp_path.iterdir()] == ["jigsaw.jsonl"]
