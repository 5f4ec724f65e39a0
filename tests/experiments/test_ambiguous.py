"""Tasks with several right answers: their answers against brute force, the scores, and the command."""

import itertools
import math

import pytest
import torch

import factorank as fr
from factorank.cli import main
from factorank.data.digits import Digits, DigitSets
from factorank.experiments import (
    ambiguous,
    ambiguous_scores,
    ambiguous_tasks,
    assignment_task,
    digit_networks,
)
from factorank.files import read_json_lines


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_matrices_have_one_or_two_optimal_matchings():
    n = 6
    costs, matchings = assignment_task.solved_matrices(n, 30, generator())
    orders = torch.tensor(list(itertools.permutations(range(n))))
    kinds = set()
    for cost, answers in zip(costs, matchings, strict=True):
        totals = cost[torch.arange(n), orders].sum(-1)
        best = orders[totals < totals.min() + 1e-9].tolist()
        assert sorted(best) == sorted({tuple(x): x for x in answers.tolist()}.values())
        kinds.add(len(best))
    assert kinds == {1, 2}


def test_sinkhorn_gives_optimal_matchings_equal_shares():
    costs, matchings = assignment_task.solved_matrices(6, 30, generator())
    matrix = assignment_task.sinkhorn_of_costs(costs).exp()
    shares = torch.nn.functional.one_hot(matchings, 6).double().mean(1)
    near = (matrix - shares).abs().amax((-1, -2)) < 0.05
    assert near.double().mean() > 0.9  # a few second-best matchings are almost as cheap


@pytest.fixture(scope="module")
def assignment():
    return assignment_task.SymmetricAssignment(6, 40, 20, "cpu")


def test_assignments_are_named_by_the_draft(assignment):
    cases = assignment.cases(50, generator())
    assert set(cases.ambiguous.tolist()) == {True, False}
    picked = cases.context.gather(-1, cases.ranks.mT)
    assert (picked > 0.3).double().mean() > 0.95  # what the matrix has large is what the answers take
    certain = cases.context.diagonal(dim1=-2, dim2=-1)
    assert (certain.diff(dim=-1) > -assignment_task.NEAR).all()
    same = (cases.ranks == torch.arange(6)).all(-1)
    assert same.any(-1).double().mean() > 0.9  # the draft is one of the answers
    with pytest.raises(fr.FactorankError, match="there are 20 test matrices, not 21"):
        assignment.cases(21, generator(), "test")


@pytest.fixture(scope="module")
def digits():
    labels = torch.arange(40) % 10
    pixels = (25 * labels[:, None, None]).expand(40, 28, 28).to(torch.uint8)
    return ambiguous_tasks.BlendedDigits(DigitSets(*[Digits(pixels, labels)] * 3), "cpu")


def test_blended_digits_have_two_readings(digits):
    cases = digits.cases(400, generator(), "test")
    assert cases.ambiguous.double().mean() == pytest.approx(0.5, abs=0.08)
    shown = cases.context.mean((-1, -2)) * 255 / 25  # the mean of the digits that a picture shows
    whole = (shown - shown.round()).abs() < 1e-3
    for case in range(400):
        first, second = cases.ranks[case]
        blended = (first - shown[case]).abs() > 1e-3
        assert int(blended.sum()) <= 2
        assert bool(cases.ambiguous[case]) == bool(blended.any())
        assert torch.equal(first.sort().values, torch.arange(10))
        if int(blended.sum()) == 1:
            a, other = first[blended], 2 * shown[case][blended] - first[blended]
            read = torch.where(blended, other.round().long(), first)
            assert abs(int(a) - int(other.round())) >= 2
            assert torch.equal(second, read.argsort(stable=True).argsort())
        elif int(blended.sum()) == 2:
            pair = first[blended]
            assert torch.equal(second[blended], pair.flip(0))
            assert torch.allclose(shown[case][blended], pair.float().mean())
    assert whole.double().mean() > 0.8


def test_distorted_digits_keep_their_place_and_range():
    pixels = torch.zeros(20, 28, 28, dtype=torch.uint8)
    pixels[:, 10:18, 10:18] = 255
    moved = digit_networks.distorted(pixels, generator())
    assert moved.shape == pixels.shape
    assert 0 <= float(moved.min()) <= float(moved.max()) <= 1
    assert not torch.equal(moved[0], moved[1])
    assert moved.sum((-1, -2)).sub(64).abs().max() < 30
    assert moved[:, :4].sum() == 0


def test_answers_of_numbers_and_scores():
    numbers = ambiguous_tasks.CoinSort().cases(20, generator())
    for row, (up, down) in zip(numbers.context.squeeze(-1), numbers.ranks, strict=True):
        assert torch.equal(row[up.argsort()], row.sort().values)
        assert torch.equal(row[down.argsort()], row.sort(descending=True).values)
    cases = ambiguous_tasks.GivenScores().cases(10_000, generator())
    scores, drawn = cases.scores, cases.ranks[:, 0]
    best = fr.PlackettLuce(scores).logits.softmax(-1)
    first = drawn == 0
    assert best[first].mean() == pytest.approx(float((best**2).sum(-1).mean()), abs=0.02)


def test_both_counts_answers_among_samples():
    answers = torch.tensor([[[0, 1, 2], [0, 1, 2]], [[2, 1, 0], [1, 0, 2]]])
    drawn = torch.tensor([[[0, 1, 2], [0, 1, 2]], [[2, 1, 0], [0, 1, 2]], [[2, 1, 0], [2, 1, 0]]])
    counted = ambiguous_scores.count_answers(drawn, answers)
    assert counted == {"both": 0.5, "right": 5 / 6, "share": pytest.approx((2 / 3 + 1) / 2)}


def test_divergence_of_the_uniform_law_is_what_enumeration_gives():
    task = ambiguous_tasks.GivenScores()
    model = fr.PermutationModel(6, "inline", "autoregressive", 16, 1, 2, context=task.encoder(16))
    with torch.no_grad():
        model.network.head.weight.zero_()
        model.network.head.bias.zero_()
    (row,) = ambiguous_scores.score(model, task, by_rank=False, cases=30)
    cases = task.cases(30, generator(12345), "test")
    entropy = fr.PlackettLuce(cases.scores.double()).entropy().mean() / math.log(2)
    assert row["bits"] == pytest.approx(6 * math.log2(6), rel=1e-5)  # inline can leave the permutations
    assert row["kl"] == pytest.approx(6 * math.log2(6) - float(entropy), rel=1e-4)


def test_learning_rates_are_chosen_on_held_out_cases():
    base = {"task": "coin-sort", "n": 10, "method": "factorank", "code": "lehmer", "objective": "masked"}
    losses = {(1e-3, 0): 2.0, (1e-3, 1): 2.0, (3e-4, 0): 2.5, (3e-4, 1): 1.0}
    rows = [
        base | {"lr": lr, "seed": seed, "held_out": loss, "nfe": nfe}
        for (lr, seed), loss in losses.items()
        for nfe in (1, 2)
    ]
    rows.append(base | {"lr": 1e-3, "seed": 0, "held_out": 3.0, "nfe": 1, "code": "inline"})
    chosen = ambiguous.best_rates(rows)
    assert [(row["code"], row["lr"], row["seed"], row["nfe"]) for row in chosen] == [
        ("lehmer", 3e-4, 0, 1),
        ("lehmer", 3e-4, 0, 2),
        ("lehmer", 3e-4, 1, 1),
        ("lehmer", 3e-4, 1, 2),
        ("inline", 1e-3, 0, 1),
    ]
    assert [row["lr_tried"] for row in chosen] == ["0.0003, 0.001"] * 4 + ["0.001"]


def test_the_command_runs_every_method(tmp_path, capsys):
    small = ["--steps", "2", "--batch-size", "4", "--width", "8", "--depth", "1", "--cases", "6"]
    command = ["ambiguous", "--tasks", "coin-sort", "--codes", "insertion", "--lrs", "1e-3", *small]
    assert main([*command, "--out", str(tmp_path)]) == 0
    rows = read_json_lines(tmp_path / "ambiguous.jsonl")
    masked = [row for row in rows if row["objective"] == "masked" and row["code"] == "insertion"]
    assert [row["nfe"] for row in masked][:5] == [
        1,
        2,
        4,
        8,
        9,
    ]  # the first value of an insertion code is certain
    assert masked[-1]["entropy_bound"] == ambiguous_scores.ENTROPY_BOUND
    assert {row["method"] for row in rows} == {"factorank", "gumbel-sinkhorn", "riffle-diffusion"}
    wanted = {"task", "n", "method", "code", "objective", "nfe", "clean", "both", "share", "bits", "kl"}
    for row in rows:
        assert wanted | {"seed", "lr_tried", "command", "commit", "device", "seconds"} <= set(row)
        assert not any(isinstance(value, dict | list) for value in row.values())
    capsys.readouterr()
    assert main([*command, "--out", str(tmp_path), "--max-seconds", "0.1"]) == 0  # nothing is left to do
    assert read_json_lines(tmp_path / "ambiguous.jsonl") == rows
    other = ["--out", str(tmp_path / "other"), "--max-seconds", "0.1"]
    assert main([*command, *other]) == 2
    assert "holds no rows yet" in capsys.readouterr().err
