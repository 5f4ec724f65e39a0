"""``factorank posterior``: the numbers it prints are those of the functions."""

import json

import pytest
import torch

from factorank import Mallows, votes
from factorank.cli import main


@pytest.fixture
def file(tmp_path):
    orders = Mallows([2, 0, 1, 3], 0.5).sample((40,), generator=torch.Generator().manual_seed(0))
    rankings = votes.Rankings.from_orders(orders, ["ann", "bob", "cat", "dan"]).distinct()
    votes.write_rankings(rankings, tmp_path / "votes.soc")
    return tmp_path / "votes.soc"


def test_mallows(file, tmp_path, capsys):
    assert main(["posterior", str(file), "--out", str(tmp_path / "row.jsonl")]) == 0
    out = capsys.readouterr().out
    posterior = votes.mallows_posterior(votes.read_rankings(file))
    assert f"  alpha = n theta  {4 * posterior.mean:.3f} (95%: " in out
    assert out.index("cat") < out.index("ann")
    row = json.loads((tmp_path / "row.jsonl").read_text())
    assert row["alpha"] == pytest.approx(4 * posterior.mean)
    assert row["alpha_low"] < row["alpha_median"] < row["alpha_high"]


def test_plackett_luce(file, tmp_path, capsys):
    command = ["posterior", str(file), "--model", "plackett-luce", "--out", str(tmp_path / "row.jsonl")]
    assert main(command) == 0
    out = capsys.readouterr().out
    row = json.loads((tmp_path / "row.jsonl").read_text())
    generator = torch.Generator().manual_seed(0)
    posterior = votes.plackett_luce_posterior(votes.read_rankings(file), generator=generator)
    assert row["logits"] == pytest.approx(posterior.mean.tolist())
    assert sum(row["p_best"]) == pytest.approx(1)
    assert f"{float(posterior.p_best()[2]):.3f}" in out
    assert f"worth {posterior.effective:,.0f} of the posterior" in out


def test_partial_rankings_are_for_plackett_luce(tmp_path, capsys):
    (tmp_path / "tops.csv").write_text("count,a,b,c\n30,1,2,\n10,,1,2\n5,2,,1\n7,3,2,1\n")
    tops = ["posterior", str(tmp_path / "tops.csv"), "--unranked", "below"]
    assert main(tops) != 0
    assert "complete rankings" in capsys.readouterr().err
    assert main([*tops, "--model", "plackett-luce"]) == 0
    assert "P(best)" in capsys.readouterr().out
