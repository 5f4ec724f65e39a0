"""Sinkhorn's limits, and what the two losses are."""

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.baselines import GumbelSinkhorn, best_assignment, sinkhorn
from factorank.errors import ModelError
from tests.models.naive import all_orders


def value(scores, order):
    return scores.gather(-1, order[..., None]).squeeze(-1).sum(-1)


def test_sinkhorn_becomes_doubly_stochastic(generator):
    scores = 2 * torch.randn(20, 6, 6, generator=generator, dtype=torch.float64)
    matrix = sinkhorn(scores, 2000).exp()
    for dim in (-1, -2):
        torch.testing.assert_close(matrix.sum(dim), torch.ones(20, 6, dtype=torch.float64))
    # What rows and columns were multiplied by cancels in every cross ratio.
    log = matrix.log()
    ratio, wanted = (
        m[..., :-1, :-1] + m[..., 1:, 1:] - m[..., :-1, 1:] - m[..., 1:, :-1] for m in (log, scores)
    )
    torch.testing.assert_close(ratio, wanted)


@pytest.mark.parametrize("rounds", [0, 1, 20])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_scores_without_an_answer_are_refused(wrong, rounds):
    scores = torch.zeros(3, 4, 4)
    scores[1, 2, 3] = wrong
    with pytest.raises(ModelError, match="less than infinity, unlike those of matrix 1"):
        sinkhorn(scores, rounds)


@pytest.mark.parametrize("full", [-torch.inf, torch.finfo(torch.float32).min])
def test_empty_columns_are_refused(full):
    scores = torch.full((2, 2), torch.finfo(torch.float32).max)
    scores[:, 1] = full  # or so far below the others that nothing is left of it
    with pytest.raises(ModelError, match="no row or column empty"):
        sinkhorn(scores)
    assert (
        sinkhorn(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), 500)
        .exp()[1]
        .allclose(torch.tensor([0.0, 1.0]), atol=5e-3)
    )


@pytest.mark.parametrize(
    ("scores", "rounds", "message"),
    [
        (torch.zeros(2, 3), 1, "not torch.float32 of shape"),
        (torch.zeros(2, 2).long(), 1, "must be floating"),
        (torch.zeros(2, 2), -1, "iterations must be at least 0, not -1"),
    ],
)
def test_sinkhorn_refuses_other_shapes(scores, rounds, message):
    with pytest.raises(ModelError, match=message):
        sinkhorn(scores, rounds)


@pytest.mark.parametrize("n", [1, 2, 4, 6])
def test_sinkhorn_at_temperature_zero_is_the_best_assignment(n, generator):
    scores = torch.randn(20, n, n, generator=generator, dtype=torch.float64)
    orders = all_orders(n)
    values = value(scores[:, None].expand(-1, len(orders), -1, -1), orders.expand(20, -1, -1))
    best = orders[values.argmax(-1)]
    assert best_assignment(scores).equal(best)
    top = values.sort(descending=True).values
    clear = top[:, 0] - top[:, 1] > 0.1 if n > 1 else torch.ones(20, dtype=torch.bool)
    assert clear.sum() > 10
    matrix = sinkhorn(scores[clear] / 5e-3, 1000).exp()
    torch.testing.assert_close(matrix, nn.functional.one_hot(best[clear], n).double(), atol=0.02, rtol=0)


def model_of(n=4, **options):
    torch.manual_seed(0)
    model = GumbelSinkhorn(n, nn.Linear(2, 16), width=16, depth=2, heads=2, **options).eval()
    with torch.no_grad():
        model.head.linear.weight.mul_(20)
    return model


def test_the_loss_is_what_it_says(generator):
    pieces = torch.rand(5, 4, 2, generator=generator)
    order = fr.random_permutations(4, (5,), generator=generator)
    model = model_of(temperature=0.7, iterations=9, gumbel=0.5)
    noise = model.noise(torch.Size([5]), device="cpu", generator=generator)
    losses = model.loss(order, pieces, noise=noise)
    scores = model.scores(model.tokens(pieces))
    for row, uniform in enumerate(noise[0]):
        noisy = scores[row] - 0.5 * torch.log(-torch.log(uniform))
        matrix, solved = sinkhorn(noisy / 0.7, 9).exp(), pieces[row][order[row]]
        torch.testing.assert_close(losses[row], ((matrix @ pieces[row] - solved) ** 2).mean(-1).sum())


def test_bytes_count_as_fractions():
    model = GumbelSinkhorn(3, _Bytes(), width=16, depth=1, heads=2)
    pieces = torch.randint(256, (4, 3, 2, 2, 1), dtype=torch.uint8)
    order = fr.random_permutations(3, (4,))
    noise = model.noise(torch.Size([4]), device="cpu")
    as_floats = model.loss(order, pieces.float() / 255, noise=noise)
    torch.testing.assert_close(model.loss(order, pieces, noise=noise), as_floats)


class _Bytes(nn.Module):
    """Pieces, as bytes or as fractions, by their first pixel."""

    def forward(self, pieces):
        numbers = pieces.float() / (255 if pieces.dtype == torch.uint8 else 1)
        return numbers[..., 0, 0, :].expand(*pieces.shape[:-3], 16)


def test_a_sample_without_noise_is_the_mode(generator):
    pieces = torch.rand(50, 4, 2, generator=generator)
    model = model_of(gumbel=0.0)
    assert model.sample(pieces, generator=generator).equal(model.mode(pieces))
    assert not model_of().sample(pieces, generator=generator).equal(model.mode(pieces))


def test_the_arrangement_of_the_pieces_does_not_matter(generator):
    pieces = torch.rand(20, 5, 2, generator=generator)
    scramble = fr.random_permutations(5, (20,), generator=generator)
    scrambled = pieces.gather(1, scramble[..., None].expand_as(pieces))
    model = model_of(5)
    # Piece scramble[j] of the first list is piece j of the second.
    assert fr.compose(scramble, model.mode(scrambled)).equal(model.mode(pieces))


def test_refusals():
    with pytest.raises(ModelError, match="temperature"):
        model_of(temperature=0.0)
    pieces, order = {"xy": torch.rand(3, 4, 16)}, fr.random_permutations(4, (3,))
    with pytest.raises(ModelError, match="one tensor of pieces"):
        GumbelSinkhorn(4, _First(), width=16, depth=1, heads=2).loss(order, pieces)


class _First(nn.Module):
    def forward(self, context):
        return context["xy"]
