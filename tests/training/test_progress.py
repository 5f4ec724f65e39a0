"""The progress of a run: the bar and the history."""

from factorank.training import train
from factorank.training.progress import cut_back
from tests.training.stand_in import ORDERS, QUICK, make


def test_silent_unless_on_a_terminal_or_asked(capfd):
    train(make(), ORDERS, **QUICK)
    assert capfd.readouterr() == ("", "")
    train(make(), ORDERS, progress=True, log_every=2, held_out=0.2, **QUICK)
    out, err = capfd.readouterr()
    assert out == ""
    assert "step 12/12" in err
    assert "bits, held-out" in err
    assert "0:00 left" in err


def test_history_is_cut_back_to_whole_lines_up_to_a_step(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    cut_back(path, 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    path.write_text('{"step": 1}\n{"step": 2')
    cut_back(path, 9)
    assert path.read_text() == '{"step": 1}\n'
