"""The diffusion against its own definition: every step's law multiplied out for few pieces."""

import itertools

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.baselines import RiffleDiffusion, RiffleShuffle, riffle_diffusion
from factorank.baselines.generalized_plackett_luce import choice_log_prob
from factorank.errors import ModelError
from tests.models.naive import all_orders, assert_drawn_from


def model_of(n, **options):
    """A random model whose steps are far from uniform."""
    torch.manual_seed(3)
    model = RiffleDiffusion(n, nn.Linear(2, 16), width=16, depth=2, heads=2, **options).eval()
    with torch.no_grad():
        model.head.linear.weight.mul_(100)
    return model


@torch.no_grad()
def transitions(model, pieces, step):
    """``[a, b]``: log-probability to go from list a to list b, for one context ``(n, 2)``."""
    lists, tokens = all_orders(model.n), model.tokens(pieces)
    table = torch.empty(len(lists), len(lists))
    for a, now in enumerate(lists):
        scores = model.scores(tokens[now][None], step)[0]
        for b, then in enumerate(lists):
            move = fr.compose(fr.inverse(now), then)  # then[i] stands at place move[i] of now
            assert now[move].equal(then)
            table[a, b] = choice_log_prob(scores, move)
    return table


def exact_probs(model, pieces):
    """The law of the order, from a uniform list through every step."""
    probs = torch.full((len(all_orders(model.n)),), 1.0)
    probs /= probs.sum()
    for step in reversed(range(model.steps)):
        probs = probs @ transitions(model, pieces, step).exp()
    return probs


def test_samples_follow_the_law(generator):
    model, pieces = model_of(4), 3 * torch.randn(2, 4, 2, generator=generator)
    samples = model.sample(pieces, (4000,), generator=generator)
    assert samples.shape == (4000, 2, 4)
    for row in range(2):
        probs = exact_probs(model, pieces[row])
        assert probs.sum().item() == pytest.approx(1, abs=1e-5)
        assert probs.max() > 1.5 * probs.min()  # the test can tell it from uniform
        assert_drawn_from(samples[:, row], all_orders(4), probs)


def test_the_loss_estimates_the_bound(generator):
    """The bound summed over all trajectories of the shuffle; and it is one."""
    n, schedule = 3, [0, 1, 3]
    model, pieces = model_of(n, schedule=schedule), torch.rand(n, 2, generator=generator)
    orders = all_orders(n)
    order = orders[4]
    back = [transitions(model, pieces, step) for step in range(2)]
    bound = 0.0
    shuffles = [RiffleShuffle(n, 2 ** (t - s)).log_prob(orders) for s, t in itertools.pairwise(schedule)]
    for a, b in itertools.product(range(6), repeat=2):
        log_q = (shuffles[0][a], shuffles[1][b])
        weight = (log_q[0] + log_q[1]).exp()
        if weight == 0:
            continue
        first = order[orders[a]]
        second = first[orders[b]]
        start, middle, end = (fr.index_of(x) for x in (order, first, second))
        log_p = back[0][middle, start] + back[1][end, middle] - torch.tensor(6.0).log()
        bound += weight * (log_q[0] + log_q[1] - log_p)
    rows = 40_000
    losses = model.loss(order.expand(rows, n), pieces.expand(rows, n, 2), generator=generator).detach()
    assert losses.mean().item() == pytest.approx(bound.item(), abs=5 * losses.std().item() / rows**0.5)
    assert bound > -exact_probs(model, pieces)[fr.index_of(order)].log()


def test_full_search_is_brute_force(generator):
    n = 3
    model, pieces = model_of(n, schedule=[0, 1, 3]), torch.rand(6, n, 2, generator=generator)
    ends, log_probs = model.search(pieces, beam=6, paths=36)
    assert ends.shape == (6, 36, n)
    assert model.mode(pieces, beam=6, paths=36).equal(ends[:, 0])
    for row in range(6):
        first, second = (transitions(model, pieces[row], step) for step in (1, 0))
        paths = first[0][:, None] + second  # the arrangement of the context is list 0
        best = int(paths.argmax()) % 6
        assert ends[row, 0].equal(all_orders(n)[best])
        torch.testing.assert_close(log_probs[row], paths.flatten().sort(descending=True).values)


def test_greedy_takes_the_best_item_at_every_place(generator):
    model, pieces = model_of(5), torch.rand(8, 5, 2, generator=generator)
    greedy = model.mode(pieces, beam=1)
    lists = torch.arange(5).expand(8, 5)
    with torch.no_grad():
        for step in reversed(range(model.steps)):
            tokens = torch.stack([model.tokens(pieces[row][lists[row]]) for row in range(8)])
            moved = []
            for row, scores in enumerate(model.scores(tokens, step)):
                left: list[int] = list(range(5))
                move = [left.pop(int(scores[i, left].argmax())) for i in range(5)]
                moved.append(lists[row][torch.tensor(move)])
            lists = torch.stack(moved)
    assert greedy.equal(lists)


def test_a_wider_search_finds_likelier_ways(generator):
    model, pieces = model_of(6), torch.rand(30, 6, 2, generator=generator)
    narrow, wide = (model.search(pieces, beam, paths)[1][:, 0] for beam, paths in ((1, 1), (200, 50)))
    assert (wide >= narrow - 1e-5).all()
    assert (wide > narrow + 1e-3).any()


def test_large_batches_go_through_in_parts(monkeypatch, generator):
    model, pieces = model_of(4), torch.rand(7, 4, 2, generator=generator)
    whole = model.search(pieces, 24, 5)
    monkeypatch.setattr(riffle_diffusion, "MOST_TOKENS", 3 * 5 * 8)
    parts = model.search(pieces, 24, 5)
    assert parts[0].equal(whole[0])
    torch.testing.assert_close(parts[1], whole[1])


def test_the_places_see_no_later_place(generator):
    """The scores of a place depend on the pieces and on the places before it."""
    model = model_of(4)
    tokens = torch.randn(1, 4, 16, generator=generator)
    before = model.scores(tokens, 0)
    with torch.no_grad():
        model.slot[2] += torch.randn(16, generator=generator)
    after = model.scores(tokens, 0)
    torch.testing.assert_close(after[:, :2], before[:, :2])
    for place in (2, 3):
        assert (after[:, place] - before[:, place]).abs().max() > 1e-3


def test_a_place_points_at_pieces(generator):
    """The score of a piece goes with its token, wherever the list has it."""
    model = model_of(5)
    with torch.no_grad():
        model.place.zero_()
    tokens, mixed = torch.randn(1, 5, 16, generator=generator), torch.tensor([3, 0, 4, 1, 2])
    scores = model.scores(tokens, 0)
    torch.testing.assert_close(model.scores(tokens[:, mixed], 0), scores[..., mixed])
    assert scores.std(-1).min() > 1e-3


def test_refusals():
    for schedule in ([0], [1, 3], [0, 3, 3], [0, 25]):
        with pytest.raises(ModelError, match="rising numbers of shuffles from 0"):
            model_of(4, schedule=schedule)
    with pytest.raises(ModelError, match="1 or more"):
        model_of(4).mode(torch.rand(1, 4, 2), beam=0)
