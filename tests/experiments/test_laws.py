"""Laws at equal encoders: the table of settings, the rows of tiny runs, and the choice of the rate."""

import itertools

import pytest
import torch

from factorank.cli import main
from factorank.errors import FactorankError
from factorank.experiments import jigsaw, laws
from factorank.files import read_json_lines
from factorank.jigsaw import new_model, puzzles_per_second
from tests.jigsaw.small import PICTURES

SMALL = {"width": 8, "depth": 1, "heads": 2, "batch_size": 4}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Speed is measured on one small batch."""
    small = {"batch_size": 8, "seconds": 0}
    for module in (jigsaw, laws):
        monkeypatch.setattr(
            module, "puzzles_per_second", lambda *given, **_: puzzles_per_second(*given, **small)
        )


def test_everything_but_law_encoder_grid_and_rate_is_equal():
    equal = [law for law in laws.LAWS if not law.endswith("drafted")]
    listed = laws.settings(equal)
    assert len({each.name for each in listed}) == len(listed) == 5 * 2 * 4 * 3
    assert len({each.name for each in laws.settings()}) == 7 * 2 * 4 * 3
    drafted = laws.settings(["lehmer-drafted", "inline-drafted"])
    assert {(each.hints, each.optimizer, each.steps) for each in drafted} == {(1.0, "adamw", 3000)}
    free = {"label", "method", "code", "objective", "encoder", "grid", "lr"}
    for each in listed:
        assert {name for name, value in vars(each).items() if value != getattr(listed[0], name)} <= free
    assert {(each.hints, each.optimizer, each.steps) for each in listed} == {(0.0, "adamw", 3000)}


@pytest.mark.parametrize("law", laws.LAWS)
def test_a_run_gives_rows_of_both_splits_and_is_not_repeated(law, tmp_path):
    (chosen,) = laws.settings([law], ["mlp+neighbours"], [2], [1e-3], steps=2, **SMALL)
    rows = laws.run(chosen, tmp_path, PICTURES, most=8, device="cpu")
    decoded = ["mode", "marginals"] if law in ("lehmer-masked", "lehmer-drafted") else ["mode"]
    decoded = ["assignment"] if law.startswith("inline") else decoded
    assert [(row["split"], row["decode"]) for row in rows] == list(
        itertools.product(("held_out", "test"), decoded)
    )
    wanted = {"method", "code", "objective", "encoder", "grid", "seed", "nfe", "hints", "solved_identical"}
    wanted |= {"pieces_identical", "per_second", "bits", "stated", "command", "commit", "device", "seconds"}
    for row in rows:
        assert wanted <= set(row)
        assert (row["bits"] is None) == (chosen.method != "factorank")
        assert not any(isinstance(value, dict | list) for value in row.values())
    assert laws.run(chosen, tmp_path, PICTURES, most=8, device="cpu") == rows
    assert laws.run(chosen, tmp_path / "other", PICTURES, until=0.0) == []
    alone = laws.time_alone(chosen, tmp_path, PICTURES)
    changed = {"per_second", "solve_batch"}
    kept = [{name: value for name, value in row.items() if name not in changed} for row in alone]
    assert kept == [{name: value for name, value in row.items() if name not in changed} for row in rows]
    assert laws.run(chosen, tmp_path, PICTURES, most=8, device="cpu") == alone
    assert laws.time_alone(chosen, tmp_path / "other", PICTURES) == []


def test_marginals_maximise_the_expected_number_of_right_pieces():
    (chosen,) = laws.settings(["lehmer-masked"], ["convolution"], [2], [1e-3], **SMALL)
    torch.manual_seed(1)
    model = new_model(chosen, 16).eval()
    with torch.no_grad():
        model.network.head.bias.normal_(std=2)
    pieces = torch.randint(256, (3, 4, 8, 8, 3), dtype=torch.uint8)
    law = model.distribution(pieces, nfe=1)
    orders = law.enumerate_support(expand=False)[:, 0]
    probs = law.log_prob(orders[:, None]).exp()  # (24, 3)
    agree = (orders[:, None] == orders[None]).sum(-1).float()  # (24, 24)
    best = (agree @ probs).argmax(0)
    assert torch.equal(laws.by_marginals(model, pieces), orders[best])


def test_the_rate_is_chosen_on_held_out_pictures():
    base = {"method": "factorank", "code": "lehmer", "objective": "masked", "encoder": "mlp", "grid": 3}
    base |= {"hints": 0.0}
    rows = [
        base | {"lr": lr, "split": split, "solved_identical": solved}
        for lr, split, solved in (
            (1e-3, "held_out", 0.5),
            (1e-3, "test", 0.9),
            (2e-3, "held_out", 0.6),
            (2e-3, "test", 0.4),
        )
    ]
    assert laws.best_rates(rows) == [rows[3] | {"lr_tried": "0.001, 0.002"}]


def test_the_command_writes_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("factorank.commands.laws.pictures_of", lambda folder: PICTURES)
    command = [
        "laws",
        "--laws",
        "inline-assignment",
        "--encoders",
        "convolution",
        "--grids",
        "2",
        "--lrs",
        "1e-3",
    ]
    command += ["--steps", "2", "--batch-size", "4", "--width", "8", "--most", "6", "--out", str(tmp_path)]
    assert main(command) == 0
    (row,) = read_json_lines(tmp_path / "laws.jsonl")
    assert (row["split"], row["code"], row["lr_tried"], row["experiment"]) == (
        "test",
        "inline",
        "0.001",
        "laws",
    )
    assert "inline masked assignment" in capsys.readouterr().out
    assert main([*command, "--out", str(tmp_path / "none"), "--max-seconds", "0.1"]) == 2


def test_a_law_that_is_sure_and_right_is_calibrated():
    sure = torch.ones(10)
    assert laws.calibration_error(sure, torch.ones(10, dtype=torch.bool)) == 0
    assert laws.calibration_error(sure, torch.zeros(10, dtype=torch.bool)) == 1
    assert laws.calibration_error(torch.full((4,), 0.5), torch.tensor([True, False, True, False]), 2) == 0


def test_rates_of_one_grid_are_those_of_every_grid():
    """Each law and encoder has its own rate; grids, seeds and the rest are as listed."""
    row = {
        "method": "factorank",
        "code": "lehmer",
        "objective": "masked",
        "encoder": "convolution",
        "grid": 4,
    }
    rows = [row | {"hints": 0.0, "lr": 4e-4}, row | {"hints": 1.0, "lr": 2e-3}]
    rows.append(
        row | {"method": "gumbel-sinkhorn", "code": None, "objective": None, "hints": 0.0, "lr": 1e-3}
    )
    names = ["lehmer-masked", "lehmer-drafted", "gumbel-sinkhorn"]
    listed = laws.settings(names, ["convolution"], (3, 5), (1e-3, 3e-3), (0, 1))
    chosen = laws.at_rates(listed, rows)
    assert len(chosen) == 3 * 2 * 2
    rates = {"lehmer-masked": 4e-4, "lehmer-drafted": 2e-3, "gumbel-sinkhorn": 1e-3}
    for each in chosen:
        law = each.label.partition("-convolution")[0]
        assert each.lr == rates[law]
        assert each.label.endswith(f"-lr{rates[law]:g}")
    assert {(each.grid, each.seed) for each in chosen} == {(3, 0), (3, 1), (5, 0), (5, 1)}
    with pytest.raises(FactorankError, match=r"holds no rate of factorank, lehmer, masked, 0\.0, conv"):
        laws.at_rates(listed, rows[1:])
    with pytest.raises(FactorankError, match=r"rows of one grid, not of \[3, 4\]"):
        laws.at_rates(listed, [*rows, rows[0] | {"grid": 3}])


def test_the_command_takes_the_rates_of_an_earlier_call(tmp_path, monkeypatch):
    monkeypatch.setattr("factorank.commands.laws.pictures_of", lambda folder: PICTURES)
    command = [
        "laws",
        "--laws",
        "inline-assignment",
        "--encoders",
        "convolution",
        "--steps",
        "2",
        "--most",
        "6",
    ]
    command += ["--batch-size", "4", "--width", "8"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert main([*command, "--grids", "2", "--lrs", "1e-3", "2e-3", "--out", str(first)]) == 0
    (tuned,) = read_json_lines(first / "laws.jsonl")
    rates = ["--rates", str(first / "laws.jsonl")]
    assert main([*command, "--grids", "2", "4", *rates, "--out", str(second)]) == 0
    rows = read_json_lines(second / "laws.jsonl")
    assert [(row["grid"], row["lr"]) for row in rows] == [(2, tuned["lr"]), (4, tuned["lr"])]
    assert {(row["lr_tried"], row["lr_chosen_at"]) for row in rows} == {("0.001, 0.002", "2x2, 2 steps")}
