"""The coverage of rank sets, on a small setting, measured once and read again."""

import numpy as np
import torch

from factorank.cli import main
from factorank.experiments import rank_coverage
from factorank.experiments.rank_coverage import Tournament
from factorank.files import read_json_lines


def test_every_method_is_measured_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rank_coverage, "TOURNAMENTS", (Tournament(4, "sparse", "spread"),))
    monkeypatch.setattr(rank_coverage, "CHUNK", 4)
    command = ["coverage", "ranks", "--elections", "8", "--out", str(tmp_path)]
    assert main(command) == 0
    rows = read_json_lines(tmp_path / "coverage.jsonl")
    assert [row["method"] for row in rows] == list(rank_coverage.METHODS)
    assert [row["repetitions"] for row in rows] == [8, 4, 4, 8, 8]
    for row in rows:
        assert 0.5 <= row["simultaneous_coverage"] <= 1
        assert 1 <= row["simultaneous_width"] <= 4
    widths = {row["method"]: row["simultaneous_width"] for row in rows}
    assert widths["normal"] <= widths["bonferroni"]
    assert "one-step bootstrap" in capsys.readouterr().out
    monkeypatch.setattr(rank_coverage, "repeated", None)  # nothing is measured again
    assert main(command) == 0
    assert read_json_lines(tmp_path / "coverage.jsonl") == rows


def test_a_sparse_tournament_is_connected_and_each_item_meets_about_four():
    random = np.random.default_rng(0)
    setting = Tournament(30, "sparse", "near ties")
    battles = setting.battles(random)
    assert len(battles.first) == 60
    reach = np.eye(30, dtype=bool)
    met = np.zeros((30, 30), dtype=bool)
    met[battles.first, battles.second] = met[battles.second, battles.first] = True
    for _ in range(30):
        reach |= reach @ met
    assert reach.all()
    assert battles.total == 3000
    torch.testing.assert_close(setting.truth().diff(), torch.full((29,), -0.02, dtype=torch.float64))
