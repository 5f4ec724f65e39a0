"""``train(watch=…)``: what a watcher sees, and that it changes nothing."""

import json

import torch
from stand_in import make, same_weights

from factorank.permutations import random_permutations
from factorank.training import train

ORDERS = random_permutations(5, (60,), generator=torch.Generator().manual_seed(1))
QUICK = {"steps": 12, "batch_size": 20, "device": "cpu", "lr": 1e-2}


def test_a_watcher_sees_the_averaged_weights_and_changes_nothing(tmp_path):
    seen = []

    def watch(model):
        assert not model.training
        seen.append([weight.detach().clone() for weight in model.parameters()])
        return {"norm": float(sum(weight.abs().sum() for weight in seen[-1]))}

    watched, alone = make(), make()
    result = train(watched, ORDERS, watch=watch, held_out_every=5, out=tmp_path / "run", **QUICK)
    train(alone, ORDERS, **QUICK)
    assert same_weights(watched, alone)
    lines = [json.loads(line) for line in result.history.read_text().splitlines()]
    assert [line["step"] for line in lines if "norm" in line] == [5, 10, 12]
    assert result.held_out is None
    last = [weight.detach() for weight in watched.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(seen[-1], last, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(seen[0], last, strict=True))
