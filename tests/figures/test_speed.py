"""The figure of the speed benchmarks is drawn from their rows."""

import json

import pytest

import factorank as fr
from benchmarks.rows import merge
from factorank.figures import draw


def rows(device="a GPU"):
    base = {"experiment": "speed", "ratio": None, "peer": None, "unit": "permutations/s", "device": device}
    lines = [{"what": "train cyclic", "ours": 900.0, "limit": 4000.0, "n": 10, "batch": 1024}]
    for nfe in (1, 4):
        lines += [
            {"what": "cost sample", "ours": 1e6 / n / nfe, "limit": 1e8 / n, "n": n, "batch": 64, "nfe": nfe}
            for n in (10, 1000)
        ]
    lines += [{"what": "cost train", "ours": 1e5 / n, "limit": None, "n": n, "batch": 64} for n in (10, 1000)]
    return [base | row for row in lines]


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("devices", [["a GPU"], ["a GPU", "two cores"]])
def test_drawn_for_each_device(devices, tmp_path):
    results = write(tmp_path / "speed.jsonl", [row for device in devices for row in rows(device)])
    draw("speed", results, tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_panels_are_what_was_measured_and_the_dotted_lines_have_a_name(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("factorank.figures.speed.save", lambda figure, path: drawn.append(figure))
    sampled = [row for row in rows("two cores") if row["what"] == "cost sample"]
    draw("speed", write(tmp_path / "speed.jsonl", rows("a GPU") + sampled), tmp_path / "speed.png")
    shown = [axis for axis in drawn[0].axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == ["sampling", "training", "sampling"]
    assert [axis.get_ylabel().split("\n")[-1] for axis in shown] == ["a GPU", "", "two cores"]
    legends = [axis.get_legend() for axis in shown]
    assert [text.get_text() for text in legends[0].get_texts()] == [
        "nfe = 1",
        "nfe = 4",
        "the device's limit",
    ]
    assert legends[1] is None  # no limit is known, and there is one line


def test_ratios_alone_make_no_figure(tmp_path):
    results = write(tmp_path / "speed.jsonl", rows()[:1])
    with pytest.raises(fr.FactorankError, match=r"speed.jsonl holds no rows of the cost"):
        draw("speed", results, tmp_path / "speed.png")


def test_rows_of_other_lengths_and_devices_stay(tmp_path):
    path = write(tmp_path / "speed.jsonl", rows() + rows("another GPU"))
    again = [row | {"ours": 1.0} for row in rows() if row["n"] == 1000]
    merge(str(path), again, figure=False)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(kept) == len(rows() + rows("another GPU"))
    assert [row for row in kept if row["ours"] == 1.0] == again
