"""The experiment on votes, on small files in the same places."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import factorank as fr
from factorank.cli import main
from factorank.data import Rankings, write_rankings
from factorank.experiments import votes
from factorank.figures import votes_means
from factorank.files import read_json_lines


@pytest.fixture
def folder(tmp_path):
    generator = torch.Generator().manual_seed(0)
    (tmp_path / "preflib").mkdir()
    (tmp_path / "jester").mkdir()
    for name, n in (("00009-00000001.soc", 4), ("00014-00000001.soc", 4), ("00009-00000002.soc", 3)):
        orders = fr.Mallows(torch.arange(n), 0.5).sample((60,), generator=generator)
        write_rankings(Rankings.from_orders(orders), tmp_path / "preflib" / name)
    orders[:30, 1:] = -1
    write_rankings(Rankings.from_orders(orders), tmp_path / "preflib" / "00001-00000002.soi")
    ratings = np.random.default_rng(0).integers(-3, 4, (50, 5)).astype(np.float32)
    ratings[0, 0] = np.nan
    np.savez(tmp_path / "jester" / "jester_24983x100.npz", ratings=ratings)
    return tmp_path


def test_every_law_is_scored_on_the_same_voters(folder, capsys, monkeypatch):
    small = tuple(
        replace(chosen, splits=min(chosen.splits, 2), restarts=1, max_iterations=10) for chosen in votes.SETS
    )
    monkeypatch.setattr(votes, "SETS", small)
    monkeypatch.setattr(votes, "COMPONENTS", 2)
    assert main(["votes", "--data", str(folder), "--out", str(folder / "out")]) == 0
    rows = read_json_lines(folder / "out" / "votes.jsonl")
    assert (folder / "out" / "votes.png").read_bytes().startswith(b"\x89PNG")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[:-1])) < 80
    assert main(["votes", "--data", str(folder), "--out", str(folder / "out"), "--sets", "jester"]) == 0
    again = read_json_lines(folder / "out" / "votes.jsonl")
    assert len(again) == len(rows)  # the other sets are kept
    assert again[0] == rows[0]
    assert again[-1]["command"] == "factorank votes --data DIR --sets jester"
    options = ["--sets", "jester", "--families", "rim"]
    assert main(["votes", "--data", str(folder), "--out", str(folder / "out"), *options]) == 0
    single = read_json_lines(folder / "out" / "votes.jsonl")
    named = [(row["data"], row["family"], row["components"], row["seed"]) for row in rows]
    assert [(row["data"], row["family"], row["components"], row["seed"]) for row in single] == named
    redone = [row["family"] for row in single if row["command"].endswith("--families rim")]
    assert redone == ["rim", "rim"]
    wanted = {"experiment", "data", "family", "components", "bits", "bits_se", "parameters", "seed"}
    wanted |= {"command", "commit", "device", "seconds"}
    for row in rows:
        assert wanted <= set(row)
        assert not any(isinstance(value, dict | list) for value in row.values())
    laws = {(row["data"], row["family"], row["components"], row["seed"]) for row in rows}
    assert len(laws) == len(rows)
    sets = {"courses-2003", "courses-2004", "dublin-west-2002", "sushi", "jester"}
    assert {row["data"] for row in rows} == sets
    assert ("dublin-west-2002", "rim", 1, 0) in laws
    for data, seed in {(row["data"], row["seed"]) for row in rows}:
        split = [row for row in rows if (row["data"], row["seed"]) == (data, seed)]
        best = min(split, key=lambda row: row["bits"])
        assert best["difference"] == 0
        for row in split:
            assert row["difference"] == pytest.approx(row["bits"] - best["bits"], abs=1e-9)
    assert ("dublin-west-2002", "plackett-luce", 2, 0) in laws
    assert ("jester", "plackett-luce", 2, 0) in laws
    assert {row["voters"] + row["held_out"] for row in rows if row["data"] == "jester"} == {49}


def test_jester_keeps_users_who_rated_everything(folder):
    rankings = votes.jester(folder)
    assert rankings.voters == 49
    assert rankings.complete
    assert rankings.strict
    assert rankings.items[0] == "joke 1"


def test_unknown_sets_are_named(folder):
    with pytest.raises(fr.FactorankError, match="there is no set of votes 'dublin'; there are courses-2003"):
        votes.jobs(folder, ("dublin",))


def test_means_are_over_the_splits():
    rows = [
        {"data": "a", "family": "rim", "components": 1, "bits": bits, "bits_se": 0.5} for bits in (1.0, 2.0)
    ]
    assert votes_means(rows) == {("a", "rim", 1): (1.5, 0.5)}
    paired = [row | {"difference_se": 0.1 * row["bits"]} for row in rows]
    assert votes_means(paired) == {("a", "rim", 1): (1.5, pytest.approx(0.15))}
