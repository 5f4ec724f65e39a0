"""The cyclic experiment: its numbers against brute force, and the command from end to end."""

import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

import factorank as fr
from factorank.cli import main
from factorank.commands.cyclic import cyclic_table
from factorank.data.cyclic import all_cyclic, cyclic_split
from factorank.experiments import cyclic
from factorank.experiments.cyclic import Law, Preset
from factorank.figures.cyclic import from_own_ends

TINY = Preset(
    n=5,
    width=8,
    depth=1,
    heads=1,
    dropout=0.0,
    batch_size=4,
    lr=5e-3,
    steps=30,
    samples=60,
    share=0.5,
    held_out=0.25,
)


def is_one_cycle(row):
    return sorted(row) == list(range(len(row))) and len(fr.cycles(torch.tensor(row))) == 1


@pytest.fixture
def tiny(monkeypatch):
    """The laptop preset at n = 5."""
    monkeypatch.setitem(cyclic.PRESETS, "laptop", TINY)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_all_cyclic_permutations_are_listed_once(n):
    listed = [tuple(row) for row in all_cyclic(n).tolist()]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {row for row in itertools.permutations(range(n)) if is_one_cycle(row)}


def test_the_split_is_a_share_and_the_rest():
    train, rest = cyclic_split(6, 0.2, seed=3)
    assert len(train) == 24
    both = {tuple(row) for row in torch.cat([train, rest]).tolist()}
    assert both == {tuple(row) for row in all_cyclic(6).tolist()}
    assert torch.equal(train, cyclic_split(6, 0.2, seed=3)[0])
    assert not torch.equal(train, cyclic_split(6, 0.2, seed=4)[0])


def test_every_row_against_brute_force(monkeypatch):
    """What each row says of its samples, counted one by one; an untrained inline model is often invalid."""
    law = Law("inline", "masked", seed=1)
    torch.manual_seed(0)
    model = fr.PermutationModel(5, "inline", "masked", 8, 1, 1).eval()
    drawn, sample = [], type(model.distribution()).sample
    monkeypatch.setattr(
        type(model.distribution()), "sample", lambda *a, **k: drawn.append(sample(*a, **k)) or drawn[-1]
    )
    rows = list(cyclic.score(law, replace(TINY, samples=400), model, (1, 3, 3, 5)))
    assert [(row["unmask"], row["nfe"]) for row in rows] == [
        (way, nfe) for way in ("random", "left-to-right", "right-to-left") for nfe in (1, 3, 5)
    ]
    train = {tuple(order) for order in cyclic_split(5, TINY.share, 1)[0].tolist()}
    for row, samples in zip(rows, drawn, strict=True):
        orders = [tuple(order) for order in samples.tolist()]
        valid = [order for order in orders if sorted(order) == [0, 1, 2, 3, 4]]
        one_cycle = [order for order in valid if is_one_cycle(order)]
        assert 0 < len(one_cycle) < len(valid) < 400
        assert row["unique"] == len(set(orders)) / 400
        assert row["unique_valid"] == len(set(valid)) / 400
        assert row["unique_cyclic"] == len(set(one_cycle)) / 400
        assert row["cyclic"] == pytest.approx(len(one_cycle) / 400)
        assert row["in_train"] == pytest.approx(sum(order in train for order in one_cycle) / len(one_cycle))
        assert row["unique_expected"] == pytest.approx(24 * (1 - (23 / 24) ** 400) / 400)


def test_likelihoods_of_the_perfect_and_of_the_uniform_model():
    """Fisher-Yates is perfect once its first n - 1 draws are never 0; the uniform law is log2 n bits off."""
    model = fr.PermutationModel(5, "fisher-yates", "masked", 8, 1, 1).eval()
    with torch.no_grad():
        model.network.head.weight.zero_()
        model.network.head.bias.zero_()
        uniform = next(cyclic.score(Law("fisher-yates", "masked"), TINY, model, (1,)))
        model.network.head.bias[:4, 0] = -100
        perfect = next(cyclic.score(Law("fisher-yates", "masked"), TINY, model, (1,)))
    assert perfect["kl"] == pytest.approx(0, abs=1e-5)
    assert perfect["bits"] == pytest.approx(math.log2(24), abs=1e-5)
    assert (perfect["cyclic"], perfect["on_cyclic"]) == (1, pytest.approx(1, abs=1e-5))
    assert uniform["kl"] == pytest.approx(math.log2(5), abs=1e-5)
    assert uniform["on_cyclic"] == pytest.approx(1 / 5, abs=1e-5)
    for row in (perfect, uniform):
        assert row["spread"] == pytest.approx(0, abs=1e-5)


def test_random_partitions_have_no_likelihood_and_autoregressive_models_one_nfe():
    rows = list(
        cyclic.score(Law("lehmer", "masked"), TINY, fr.PermutationModel(5, "lehmer", "masked", 8, 1, 1))
    )
    assert {row["nfe"] for row in rows if row["kl"] is None} == {2, 3, 4, 5}
    assert all(row["kl"] is not None for row in rows if row["unmask"] == "left-to-right")
    causal = fr.PermutationModel(5, "lehmer", "autoregressive", 8, 1, 1)
    rows = list(cyclic.score(Law("lehmer", "autoregressive"), TINY, causal, (1, 2)))
    assert [(row["unmask"], row["nfe"]) for row in rows] == [("left-to-right", 5)]


@pytest.mark.parametrize("n", range(2, 7))
def test_from_their_own_ends_three_codes_have_one_law_to_learn(n):
    """Over all permutations: the codes agree up to a renumbering that keeps cyclic permutations cyclic."""
    orders = torch.tensor(list(itertools.permutations(range(n))))
    renumbered = n - 1 - orders.flip(-1)
    left = fr.code("left-lehmer").encode(orders)
    assert torch.equal(left.flip(-1), fr.code("lehmer").encode(renumbered))
    assert torch.equal(fr.is_cyclic(orders), fr.is_cyclic(renumbered))
    assert torch.equal(fr.code("insertion").encode(fr.inverse(orders)), torch.arange(n) - left)
    assert torch.equal(fr.is_cyclic(orders), fr.is_cyclic(fr.inverse(orders)))
    for code in cyclic.CODES:
        own = "right-to-left" if code in cyclic.FROM_THE_END else "left-to-right"
        rows = [{"objective": "masked", "code": code, "unmask": way} for way in cyclic.UNMASK]
        assert [row["unmask"] for row in from_own_ends(rows)] == [own]


def test_autoregressive_rows_of_the_other_end_are_kept_where_there_are_no_others():
    rows = [
        {"objective": "autoregressive", "code": "insertion", "unmask": way}
        for way in ("left-to-right", "right-to-left")
    ]
    assert from_own_ends(rows[:1]) == rows[:1]
    assert from_own_ends(rows) == rows[1:]


def test_autoregressive_models_begin_at_the_end_of_the_code_that_tells_most():
    listed = cyclic.laws(["lehmer", "insertion"], ["masked", "autoregressive"], 1)
    assert [law.reveal for law in listed] == ["left-to-right"] * 3 + ["right-to-left"]
    assert len({law.name for law in listed}) == 4
    other = cyclic.laws(["insertion"], ["autoregressive"], 1, own_end=False)
    assert [law.reveal for law in other] == ["left-to-right"]
    row = next(cyclic.score(listed[3], TINY, cyclic.learn(listed[3], replace(TINY, steps=2))[0]))
    assert (row["unmask"], row["nfe"]) == ("right-to-left", TINY.n)


def test_only_autoregressive_models_hold_rows_out():
    """Patience is for them alone: a masked model takes all of its steps."""
    size = replace(TINY, patience=1)
    masked = cyclic.learn(Law("lehmer", "masked"), size)[1]
    assert (masked.steps, masked.held_out) == (30, None)
    assert cyclic.learn(Law("lehmer", "autoregressive"), size)[1].held_out is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("lehmer", "gray"), ("masked",), 1), "there is no 'gray' in this experiment"),
        ((("lehmer",), ("diffusion",), 1), "there is no 'diffusion'"),
        ((("lehmer",), ("masked",), 0), "at least 1 code, objective and seed, not 1, 1 and 0"),
    ],
)
def test_laws_refuse(arguments, message):
    with pytest.raises(fr.FactorankError, match=message):
        cyclic.laws(*arguments)


def test_laws_and_presets():
    laws = cyclic.laws(("lehmer", "inline", "lehmer"), ("masked",), 2)
    assert [law.name for law in laws] == [
        "lehmer-masked-0",
        "inline-masked-0",
        "lehmer-masked-1",
        "inline-masked-1",
    ]
    paper = cyclic.preset("paper", steps=7, precision=None)
    assert (paper.n, paper.width, paper.depth, paper.batch_size, paper.lr, paper.dropout, paper.steps) == (
        *(10, 128, 8, 1024, 3e-4, 0.05),
        7,
    )
    with pytest.raises(fr.FactorankError, match="there is no preset 'large'"):
        cyclic.preset("large")


def test_the_command_from_end_to_end(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["cyclic"]) == 0
    out = capsys.readouterr().out
    folder = tmp_path / "runs" / "cyclic"
    assert max(map(len, out.splitlines())) < 80
    assert (folder / "cyclic.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (folder / "cyclic.jsonl").read_text().splitlines()]
    assert len(rows) == 5 * (3 * 5 + 1)
    factorized = [row for row in rows if row["code"] != "inline"]
    assert all(row["unique"] == row["unique_valid"] for row in factorized)
    assert all(row["on_cyclic"] <= 1.0001 for row in rows if row["kl"] is not None)
    assert {"command", "commit", "device", "seconds", "trained_steps", "lr"} <= rows[0].keys()
    assert cyclic_table(rows) in out

    weights = {path: path.read_bytes() for path in folder.glob("laws/*/model.safetensors")}
    assert len(weights) == 10
    assert main(["cyclic"]) == 0
    again = [json.loads(line) for line in (folder / "cyclic.jsonl").read_text().splitlines()]
    assert all(path.read_bytes() == data for path, data in weights.items())
    changing = {"seconds", "train_seconds"}
    assert [{k: v for k, v in row.items() if k not in changing} for row in again] == [
        {k: v for k, v in row.items() if k not in changing} for row in rows
    ]

    figure = folder / "again.png"
    assert main(["figure", "cyclic", "--results", str(folder / "cyclic.jsonl"), "--out", str(figure)]) == 0
    assert figure.read_bytes() == (folder / "cyclic.png").read_bytes()


def test_a_watched_run_tells_learning_from_learning_by_heart(tiny, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["cyclic", "--codes", "lehmer", "--watch", "--dropout", "0.1", "--nfe", "1", "--out", str(out)]
    assert main(command) == 0
    assert "cyclic-curve.png" in capsys.readouterr().out
    rows = [json.loads(line) for line in (out / "cyclic-curve.jsonl").read_text().splitlines()]
    assert {row["objective"] for row in rows} == {"masked", "autoregressive"}
    assert {row["dropout"] for row in rows} == {0.1}
    for objective in ("masked", "autoregressive"):
        mine = [row for row in rows if row["objective"] == objective]
        assert [row["step"] for row in mine] == sorted({row["step"] for row in mine})
        assert all(0 <= row["cyclic"] <= 1 and 0 <= row["in_train"] <= 1 for row in mine)
        assert (mine[-1]["held_out_bits"] is None) == (objective == "masked")
    figure = out / "again.png"
    results = ["--results", str(out / "cyclic-curve.jsonl"), "--out", str(figure)]
    assert main(["figure", "cyclic-curve", *results]) == 0
    assert figure.read_bytes() == (out / "cyclic-curve.png").read_bytes()


def test_the_table_has_means_over_the_seeds():
    base = {"n": 4, "share": 0.2, "samples": 10, "unique_expected": 0.5, "unmask": "left-to-right"}
    base |= {"code": "lehmer", "objective": "masked", "unique_cyclic": 0.5, "in_train": 0.25}
    rows = [base | {"nfe": 4, "cyclic": 0.5, "kl": 1.0}, base | {"nfe": 4, "cyclic": 0.7, "kl": 2.0}]
    rows += [base | {"nfe": 4, "unmask": "random", "cyclic": 0.0, "kl": None}]
    assert cyclic_table(rows).splitlines()[1].split() == ["lehmer", "masked", "60.0", "50.0", "25.0", "1.500"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--nfe", "6"], "--nfe is from 1 to 5 at this size, not 6"), (["--seeds", "0"], "at least 1 code")],
)
def test_the_command_refuses_before_it_trains(arguments, message, tiny, tmp_path, capsys):
    assert main(["cyclic", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


SCRIPT = """
import sys
from factorank.cli import main
from factorank.experiments import cyclic
cyclic.PRESETS["laptop"] = cyclic.preset("laptop", **{size!r})
sys.exit(main(["cyclic", "--codes", "lehmer", "insertion", "--objectives", "masked", "--out", sys.argv[1]]))
"""


def test_a_killed_run_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    """Killed while it trains the second law: the same command finishes with the weights of a quiet run."""
    size = replace(TINY, steps=300, dropout=0.1)
    out = tmp_path / "killed"
    killed = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(size=vars(size)), out],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    second = out / "laws" / "insertion-masked-0" / "metrics.jsonl"
    while killed.poll() is None and not (second.exists() and second.stat().st_size):
        time.sleep(0.01)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert not second.with_name("model.safetensors").exists()

    monkeypatch.setitem(cyclic.PRESETS, "laptop", size)
    command = ["cyclic", "--codes", "lehmer", "insertion", "--objectives", "masked", "--out"]
    for folder in (out, tmp_path / "quiet"):
        assert main([*command, str(folder)]) == 0
    for path in sorted((tmp_path / "quiet").glob("laws/*/model.safetensors")):
        assert (out / path.relative_to(tmp_path / "quiet")).read_bytes() == path.read_bytes()


def test_jobs_side_by_side_give_the_same(tiny, tmp_path, capsys):
    command = ["cyclic", "--codes", "lehmer", "--objectives", "masked", "--seeds", "2", "--nfe", "1", "--out"]
    assert main([*command, str(tmp_path / "one")]) == 0
    assert main([*command, str(tmp_path / "two"), "--jobs", "2"]) == 0
    assert "[2/2] lehmer-masked-" in capsys.readouterr().out
    for path in sorted((tmp_path / "one").glob("laws/*/model.safetensors")):
        assert (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes() == path.read_bytes()
    texts = [(tmp_path / name / "cyclic.jsonl").read_text() for name in ("one", "two")]
    kept = [[json.loads(line) for line in text.splitlines()] for text in texts]
    changing = {"seconds", "train_seconds", "command"}
    assert [{k: v for k, v in row.items() if k not in changing} for row in kept[0]] == [
        {k: v for k, v in row.items() if k not in changing} for row in kept[1]
    ]
    assert main([*command, str(tmp_path / "three"), "--jobs", "0"]) == 2
    assert "--jobs is at least 1, not 0" in capsys.readouterr().err
