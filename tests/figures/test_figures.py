"""Figures are drawn from plain numbers."""

import json

import pytest

import factorank as fr
from factorank.figures import FIGURES, cyclic_figure, draw, fit_figure


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


def test_the_colour_bar_is_in_percent(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("factorank.figures.votes.save", lambda figure, path: drawn.append(figure))
    facts = {"items": ["a", "b", "c"], "refits": 0, "family": "Mallows", "components": [part(3)]}
    fit_figure(facts, tmp_path / "fit.png")
    bar = drawn[0].axes[-1]
    assert bar.get_ylabel() == "probability (%)"
    assert bar.yaxis.get_major_formatter()(0.25, 0) == "25"


@pytest.mark.parametrize(("objectives", "note"), [(["masked"], ""), (["masked", "autoregressive"], "NFE 4")])
def test_autoregressive_marks_are_explained(objectives, note, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("factorank.figures.cyclic.save", lambda figure, path: drawn.append(figure))
    about = {"unmask": "left-to-right", "code": "lehmer", "nfe": 4, "n": 4, "unique_expected": 0.9}
    about |= {"unique": 0.5, "unique_valid": 0.5, "unique_cyclic": 0.5, "kl": 0.1}
    lines = [json.dumps(about | {"objective": objective}) + "\n" for objective in objectives]
    (tmp_path / "cyclic.jsonl").write_text("".join(lines))
    cyclic_figure(tmp_path / "cyclic.jsonl", tmp_path / "cyclic.png")
    for axis in drawn[0].axes:
        assert axis.get_xlabel().endswith(f"autoregressive, {note}" if note else "(NFE)")


def test_a_bad_line_of_results_is_named(tmp_path):
    (tmp_path / "votes.jsonl").write_text('{"bits": 1}\n{\n')
    with pytest.raises(fr.FactorankError, match=r"votes.jsonl:2: not JSON"):
        draw("votes", tmp_path / "votes.jsonl", tmp_path / "votes.png")


ROW = {
    "experiment": "votes",
    "data": "sushi",
    "family": "mallows",
    "components": 1,
    "bits": 2.0,
    "bits_se": 0.1,
}


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_same_results_give_the_same_bytes(suffix, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    for name in ("one", "two"):
        draw("votes", tmp_path / "rows.jsonl", tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"one.{suffix}").read_bytes() == (tmp_path / f"two.{suffix}").read_bytes()


@pytest.mark.parametrize("name", sorted(FIGURES))
@pytest.mark.parametrize("fields", [{}, {"what": "cost", "n": 3, "step": "x", "split": "test", "wrong": 3}])
def test_rows_that_lack_something_are_refused_by_name(name, fields, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"experiment": name} | fields) + "\n")
    with pytest.raises(fr.FactorankError, match=r"rows\.jsonl"):
        draw(name, tmp_path / "rows.jsonl", tmp_path / "figure.png")
    assert not (tmp_path / "figure.png").exists()
