"""The leaderboard command: its table, its page, its figure, its errors."""

import json
import re

import polars
import pytest

from factorank.cli import main
from tests.leaderboard.test_board import battles


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "battles.csv"
    polars.DataFrame(battles(400)).write_csv(path)
    return path


def test_the_table_is_printed_and_everything_is_saved(file, tmp_path, capsys):
    assert main(["leaderboard", str(file), "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "battles.csv: 4 items, Davidson, 400 battles" in out
    assert max(map(len, out.splitlines()[:-1])) < 90
    last = next(line for line in out.splitlines() if "charlie" in line)
    assert last.split()[0] == "4"
    facts = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert facts["table"]["item"][-1] == "charlie"
    assert facts["above"][0][-1] > 0.99
    assert (tmp_path / "out" / "leaderboard.png").read_bytes()[:4] == b"\x89PNG"
    page = (tmp_path / "out" / "leaderboard.html").read_text()
    assert not re.search(r"(src|href)\s*=", page)  # nothing is loaded from elsewhere


def test_a_name_cannot_break_out_of_the_page(tmp_path, capsys):
    name = "</script><img src=x onerror=alert(1)>"
    columns = {"model_a": [name, "y", name], "model_b": ["y", name, "y"], "winner": ["model_a"] * 3}
    polars.DataFrame(columns).write_csv(tmp_path / "battles.csv")
    assert main(["leaderboard", str(tmp_path / "battles.csv"), "--html", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert name in json.loads(data[1])["table"]["item"]


def test_elo_bootstrap_scores_and_errors(file, tmp_path, capsys):
    assert main(["leaderboard", str(file), "--scale", "elo", "--bootstrap", "100", "--top", "2"]) == 0
    out = capsys.readouterr().out
    assert "score (elo)" in out
    assert "and 2 more" in out
    table = {"model": ["x", "y"], "a": [1.0, 2.0], "b": [1.5, 2.5], "c": [0.9, 2.2]}
    polars.DataFrame(table).write_csv(tmp_path / "scores.csv")
    assert main(["leaderboard", str(tmp_path / "scores.csv")]) == 0
    assert "2 items, mean of 3 tasks" in capsys.readouterr().out
    assert main(["leaderboard", str(file), "--level", "2"]) == 2
    assert "--level is between 0 and 1, not 2" in capsys.readouterr().err
    (tmp_path / "bad.csv").write_text("model_a,model_b,winner\nx,y,nobody\n")
    assert main(["leaderboard", str(tmp_path / "bad.csv")]) == 2
    assert "line 2: column 'winner' holds 'nobody'" in capsys.readouterr().err


def test_an_item_that_never_lost_is_told(tmp_path, capsys):
    (tmp_path / "b.csv").write_text("winner,loser\nx,y\ny,z\nz,y\n")
    assert main(["leaderboard", str(tmp_path / "b.csv")]) == 0
    assert "warning: the likelihood has no maximum: nothing else is ever placed above item 'x'" in (
        capsys.readouterr().out
    )
