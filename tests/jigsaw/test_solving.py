"""Solving batches of puzzles: assignment, beams, speed, and replays on a GPU."""

import itertools
import math

import pytest
import torch

import factorank as fr
from factorank.jigsaw import (
    Search,
    new_model,
    puzzles_per_second,
    scrambled,
    setting,
    solve_puzzles,
)
from factorank.kernels import dispatch
from tests.jigsaw.small import PICTURES, TINY


def test_an_inline_model_can_be_made_to_give_permutations():
    torch.manual_seed(1)
    model = new_model(setting(**(TINY | {"code": "inline"})), 16).eval()
    with torch.no_grad():
        model.network.head.weight.mul_(20)
    pieces = scrambled(PICTURES.test, 2)[1]
    assert not fr.is_permutation(solve_puzzles(model, pieces, Search(assign=False))).all()
    order = solve_puzzles(model, pieces)
    assert torch.equal(order, solve_puzzles(model, pieces, Search(assign=True)))
    law = model.distribution(pieces, nfe=1)
    every = torch.tensor(list(itertools.permutations(range(4))))
    best = law.log_prob(every[:, None].expand(24, 80, 4)).max(0).values
    torch.testing.assert_close(law.log_prob(order), best)
    shaky = new_model(setting(**(TINY | {"code": "inline", "dropout": 0.5})), 16).train()
    assert torch.equal(solve_puzzles(shaky, pieces), solve_puzzles(shaky, pieces))
    assert shaky.training
    for wrong in ({"assign": True}, {"nfe": 4}):
        with pytest.raises(fr.FactorankError, match="are for our models, not for baselines"):
            solve_puzzles(new_model(setting("gumbel-sinkhorn", **TINY), 16), pieces, Search(**wrong))
    with pytest.raises(fr.FactorankError, match="nfe is a whole number from 1 to 4, not 0"):
        solve_puzzles(model, pieces, Search(nfe=0))
    with pytest.raises(fr.FactorankError, match="assign is for masked inline models at one evaluation"):
        solve_puzzles(new_model(setting(**TINY), 16), pieces, Search(assign=True))


def test_speed_is_counted_in_puzzles():
    calls = []

    def solver(pieces):
        calls.append(len(pieces))
        return torch.zeros(len(pieces), 4, dtype=torch.int64)

    rate = puzzles_per_second(solver, PICTURES.test, 2, batch_size=100, seconds=0.05)
    assert set(calls) == {100}
    assert len(calls) >= 3
    assert math.isfinite(rate)
    assert rate > 0


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("preset", "changes", "how"),
    [
        ("default", {}, {}),
        ("default", {"code": "inline"}, {}),
        ("default", {"code": "inline", "masks": "any"}, {"nfe": 3}),
        ("default", {"masks": "any"}, {"nfe": 2}),
        ("paper", {}, {}),
        ("gumbel-sinkhorn", {}, {}),
        ("riffle-diffusion", {}, {"beam": 20}),
    ],
)
def test_solving_again_on_a_gpu_replays_it(preset, changes, how):
    """Called, recorded and replayed, each in an autocast of its own, for puzzles that differ."""
    torch.manual_seed(0)
    chosen = setting(preset, **(TINY | {"grid": 3, "width": 32} | changes))
    model = new_model(chosen, side=16).cuda().eval()
    with torch.no_grad():
        for weight in model.parameters():  # the first weights of some networks hardly see the pieces
            weight.add_(0.3 * torch.randn_like(weight))
    puzzles = scrambled(PICTURES.train.cuda(), 3)[1].split(100)

    def solved():
        orders = []
        for pieces in puzzles:
            orders.append(solve_puzzles(model, pieces, Search(**how)))
            torch.full((2**24,), torch.nan, device="cuda")  # over what has been freed
        return torch.cat(orders)

    weight = max(model.parameters(), key=torch.numel)
    before, recorded = weight.detach().clone(), solved()
    with torch.no_grad():
        weight.mul_(-1)
    changed = solved()
    with dispatch.plain("recording"):
        assert torch.equal(changed, solved())
    with torch.no_grad():
        weight.copy_(before)
    with dispatch.plain("recording"):
        assert torch.equal(recorded, solved())
    assert not torch.equal(recorded, changed)
