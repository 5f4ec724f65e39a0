"""The figures of sorting, of several right answers and of laws: which rows make which marks and labels."""

import json
from importlib import import_module
from itertools import pairwise

import pytest

import factorank as fr
from factorank.figures import draw

OURS = {"method": "factorank", "code": "lehmer", "objective": "masked"}
BASELINE = {"method": "gumbel-sinkhorn", "code": None, "objective": None}


def drawn(name, rows, tmp_path, monkeypatch):
    figures = []
    module = import_module(f"factorank.figures.{name}")
    monkeypatch.setattr(module, "save", lambda figure, path: figures.append(figure))
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row | {"experiment": name}) + "\n" for row in rows)
    )
    draw(name, tmp_path / "rows.jsonl", tmp_path / "figure.png")
    return figures[0]


def test_sorting(tmp_path, monkeypatch):
    rows = [
        {"method": method, "nfe": nfe, "n": n, "split": "test", "items": 0.9, "exact": exact}
        for method, nfe in (("factorank", 1), ("factorank", 2), ("score-and-sort", 1))
        for n, exact in ((10, 0.8), (200, 0.4), (200, 0.6))
    ]
    figure = drawn("sort", rows, tmp_path, monkeypatch)
    items, exact = figure.axes
    labels = {text.get_text() for text in exact.texts}
    published = {"Soft-Rank Diffusion (published)", "SymmetricDiffusers (published)"}
    assert labels == {"factorank", "factorank, 2 readers", "score and sort"} | published
    assert exact.lines[0].get_ydata().tolist() == [80, pytest.approx(50)]  # the middle of two seeds
    assert len(items.lines) == 2 * 3 + 2
    heights = sorted(text.get_position()[1] for text in exact.texts)
    assert all(high - low > 0.059 for low, high in pairwise(heights))
    with pytest.raises(fr.FactorankError, match="no results on test digits"):
        drawn("sort", [row | {"split": "held_out"} for row in rows], tmp_path, monkeypatch)


def test_several_right_answers(tmp_path, monkeypatch):
    about = {"task": "coin-sort", "n": 4, "entropy_bound": None}
    rows = [about | OURS | {"nfe": nfe, "both": 0.25 * nfe, "kl": 1 / nfe} for nfe in (1, 2, 4)]
    rows.append(about | OURS | {"nfe": 1.5, "both": 1.0, "kl": 0.01, "entropy_bound": 0.1})
    rows.append(about | OURS | {"nfe": 4, "both": 1.0, "kl": 0.0, "objective": "autoregressive"})
    rows.append(about | BASELINE | {"nfe": 1, "both": 0.5, "kl": None})
    figure = drawn("ambiguous", rows, tmp_path, monkeypatch)
    both, divergence = figure.axes
    assert [line.get_ydata().tolist() for line in both.lines] == [[25, 50, 100], [100], [100], [50]]
    assert len(divergence.lines) == 3
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert labels == {"lehmer", "entropy bound", "autoregressive (not filled)", "Gumbel-Sinkhorn"}


def test_laws(tmp_path, monkeypatch):
    rows, about = [], {"encoder": "mlp", "hints": 0.0}
    for grid, ours, theirs in ((3, 0.9, 0.8), (4, 0.7, 0.75)):
        for decode in ("mode", "marginals"):
            rows.append(OURS | about | {"grid": grid, "decode": decode, "solved_identical": ours})
        rows.append(OURS | about | {"grid": grid, "decode": "mode", "solved_identical": 1.0, "hints": 1.0})
        rows.append(BASELINE | about | {"grid": grid, "decode": "mode", "solved_identical": theirs})
    solved, lead = drawn("laws", rows, tmp_path, monkeypatch).axes
    assert {text.get_text() for text in solved.texts} == {"Lehmer", "Lehmer, marginals", "Gumbel-Sinkhorn"}
    assert lead.lines[0].get_ydata().tolist() == [pytest.approx(10), pytest.approx(-5)]


def test_coverage_of_ranks(tmp_path, monkeypatch):
    rows = [
        {"what": "coverage", "method": method, "n": n, "graph": "dense", "scores": "spread"}
        | {"interval_coverage": 0.95, "simultaneous_coverage": held, "simultaneous_se": 0.01}
        | {"simultaneous_width": width}
        for n in (10, 50)
        for method, held, width in (("normal", 0.97, 4.0), ("bonferroni", 0.98, 5.0), ("naive", 0.6, 3.0))
    ]
    figure = drawn("leaderboard", [*rows, {"what": "fit"}], tmp_path, monkeypatch)
    intervals, held, width = figure.axes
    assert [label.get_text() for label in intervals.get_yticklabels()] == [
        "10 items, dense, spread",
        "50 items, dense, spread",
    ]
    shares = {float(line.get_xdata()[0]) for line in held.lines if len(line.get_xdata()) == 1}
    assert shares == {97.0, 98.0, 60.0}
    assert {float(line.get_xdata()[0]) for line in width.lines if len(line.get_xdata()) == 1} == {
        1,
        1.25,
        0.75,
    }
    with pytest.raises(fr.FactorankError, match="no rows of coverage"):
        drawn("leaderboard", [{"what": "fit"}], tmp_path, monkeypatch)
