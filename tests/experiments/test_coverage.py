"""The coverage of intervals, on a small setting."""

from factorank.cli import main
from factorank.experiments import coverage
from factorank.files import read_json_lines


def test_every_kind_of_interval_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(coverage, "SETTINGS", ((3, 8),))
    assert main(["coverage", "--elections", "12", "--out", str(tmp_path)]) == 0
    rows = read_json_lines(tmp_path / "coverage.jsonl")
    assert [row["method"] for row in rows] == list(coverage.METHODS)
    for row in rows:
        assert 0 <= row["coverage"] <= 1
        assert 0 < row["width"] <= 1
    assert rows[3]["coverage"] >= 0.7
    assert "test inversion" in capsys.readouterr().out
