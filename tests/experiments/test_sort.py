"""Sorting handwritten numbers: the law, the lists, and both commands on a few made-up digits."""

import pytest
import torch

from factorank.cli import main
from factorank.data.digits import Digits, DigitSets
from factorank.experiments import number_sorter, sort
from factorank.experiments.number_sorter import NumberSorter
from factorank.files import read_json_lines
from tests.data.test_digits import write_digits

SMALL = ["--tries", "1", "--channels", "2", "--n", "6", "--batch-size", "2", "--lists", "5"]


def test_a_number_has_the_probability_of_its_digits():
    model = NumberSorter("factorank", (2,))
    features = torch.randn(5, 4, 10, generator=torch.Generator().manual_seed(0))
    levels = (1 - number_sorter.FLOOR) * features.double().softmax(-1) + number_sorter.FLOOR / 10
    probs = model.law_of(features).logits.softmax(-1)
    assert probs.shape == (5, 10_000)
    for digits in ((0, 0, 0, 0), (1, 2, 3, 4), (9, 0, 9, 1)):
        wanted = torch.stack([levels[:, cell, digit] for cell, digit in enumerate(digits)]).prod(0)
        torch.testing.assert_close(probs[:, int(sort.values(torch.tensor(digits)))], wanted)


def test_a_reader_that_knows_every_digit_sorts_every_list():
    labels = torch.randint(10, (50,), generator=torch.Generator().manual_seed(0))
    digits = Digits(torch.zeros(50, 28, 28, dtype=torch.uint8), labels)
    model = NumberSorter("factorank", (2,))
    model.reader = Known(labels)
    rows = list(sort.score(sort.SortSetting(), [model], digits, lengths=(5, 40), lists=30, scored=10))
    assert [(row["n"], row["items"], row["exact"], row["digit_error"]) for row in rows] == [
        (5, 1.0, 1.0, 0.0),
        (40, 1.0, 1.0, 0.0),
    ]
    assert all(row["bits"] < 0.05 and row["stated"] > 0.95 for row in rows)


def test_equal_numbers_may_come_in_either_order(monkeypatch):
    digits = Digits(torch.zeros(2, 28, 28, dtype=torch.uint8), torch.tensor([3, 7]))
    model = NumberSorter("factorank", (2,))
    model.reader = Known(digits.labels)
    turned = lambda features: NumberSorter.sort(model, features.flip(1)).sub(5).neg()  # noqa: E731
    monkeypatch.setattr(model, "sort", turned)  # the last of equal numbers comes first
    (row,) = sort.score(sort.SortSetting(), [model], digits, lengths=(6,), lists=20, scored=1)
    assert row["items"] == 1.0


def test_levels_become_digits_from_orders_alone(monkeypatch):
    """Ten pictures that a linear map can tell apart: the levels end up in the order of the digits."""
    pixels = torch.zeros(10, 28, 28, dtype=torch.uint8)
    for digit in range(10):
        pixels[digit, 2 * digit : 2 * digit + 4] = 255
    digits = Digits(pixels, torch.tensor([5, 2, 9, 0, 7, 1, 3, 8, 6, 4]))
    monkeypatch.setattr(sort, "TRIED", 20)
    for module in (sort, number_sorter):
        monkeypatch.setattr(module, "CELLS", 2)  # a hundred grades: seconds instead of minutes
    monkeypatch.setattr(sort, "distorted", lambda pixels, generator: pixels.float() / 255)
    monkeypatch.setattr(number_sorter, "DigitNetwork", lambda out, channels: Linear(out))
    sets = DigitSets(digits, digits, digits)
    options = {"steps": 150, "max_seconds": None, "schedule": "cosine", "warmup": 5, "held_out_every": 1000}
    setting = sort.SortSetting(n=25, batch_size=8, lr=0.1, weight_decay=0.0, tries=2)
    model, _ = sort.learn(setting, sets, device="cpu", watch=None, **options)
    assert sort.digit_error(model, digits) == {"digit_error": 0.0}


class Known(torch.nn.Module):
    """Reads pictures, given in their order, as their labels."""

    def __init__(self, labels):
        super().__init__()
        self.logits = torch.nn.Parameter(40.0 * torch.nn.functional.one_hot(labels, 10).float())

    def forward(self, pictures):
        return self.logits


class Linear(torch.nn.Linear):
    def __init__(self, out):
        super().__init__(28, out)

    def forward(self, pictures):
        return super().forward(pictures.float().mean(-1))


def test_the_commands_train_score_and_resume(tmp_path, monkeypatch, capsys):
    write_digits(tmp_path, monkeypatch, train=60, test=20)
    monkeypatch.setattr("factorank.data.digits.mnist.__kwdefaults__", {"held_out": 10, "seed": 0})
    out = tmp_path / "out"
    train = ["sort", "train", "--data", str(tmp_path), "--out", str(out), "--max-seconds", "0.5", *SMALL]
    assert main(train) == 0
    rows = read_json_lines(out / "sort.jsonl")
    assert {row["method"] for row in rows} == {"factorank", "score-and-sort"}
    assert {row["n"] for row in rows} == {5, 10, 32, 100, 200}
    wanted = {
        "n",
        "method",
        "code",
        "items",
        "exact",
        "lists",
        "split",
        "seed",
        "command",
        "commit",
        "device",
    }
    for row in rows:
        assert wanted <= set(row)
        assert 0 <= row["exact"] <= row["items"] <= 1
        assert not any(isinstance(value, dict | list) for value in row.values())
    capsys.readouterr()
    assert main(train) == 0  # nothing is trained again
    assert read_json_lines(out / "sort.jsonl") == rows
    longer = [
        "--methods",
        "factorank",
        "--start",
        str(out / "factorank-0"),
        "--out",
        str(tmp_path / "longer"),
    ]
    assert main([*train, *longer]) == 0
    assert main([*train, *longer, "--seeds", "2"]) == 2
    assert "--start takes a folder for each" in capsys.readouterr().err
    assert main([*train, "--channels", *["2"] * 14]) == 2
    assert "1 to 13 layers, not 14" in capsys.readouterr().err
    one, other = out / "factorank-0", out / "score-and-sort-0"
    scored = ["--data", str(tmp_path), "--n", "5", "--lists", "5"]
    assert main(["sort", "eval", str(one), str(one), *scored, "--out", str(tmp_path / "rows.jsonl")]) == 0
    (row,) = read_json_lines(tmp_path / "rows.jsonl")
    (same,) = [row for row in rows if (row["n"], row["method"], row["split"]) == (5, "factorank", "test")]
    assert (row["items"], row["exact"], row["nfe"]) == (same["items"], same["exact"], 2)
    assert main(["sort", "eval", str(one), str(other), *scored]) == 2
    assert "if all of them read digits" in capsys.readouterr().err


@pytest.mark.gpu
def test_a_step_is_captured_on_a_gpu():
    digits = Digits(torch.zeros(20, 28, 28, dtype=torch.uint8), torch.arange(20) % 10)
    setting = sort.SortSetting(channels=(8, 8), n=10, batch_size=2)
    options = {"steps": 20, "max_seconds": None, "schedule": "cosine", "capture": True, "watch": None}
    assert sort.learn(setting, DigitSets(digits, digits, digits), **options)[1].steps == 20
