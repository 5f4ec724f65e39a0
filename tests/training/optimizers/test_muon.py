"""Muon: against singular values, on the right weights, and like AdamW in all that goes around it."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from factorank.baselines import GumbelSinkhorn
from factorank.errors import TrainingError
from factorank.jigsaw import new_model, setting
from factorank.models import PermutationModel
from factorank.permutations import random_cyclic
from factorank.training import TrainSettings, checkpoints, train
from factorank.training.optimizers import make_update
from factorank.training.optimizers.adamw import TorchUpdate
from factorank.training.optimizers.average import Average
from factorank.training.optimizers.muon import Muon, hidden_matrices, orthogonalised
from tests.training.stand_in import StandIn, same_weights

CPU = torch.device("cpu")
ORDERS = random_cyclic(6, (200,), generator=torch.Generator().manual_seed(1))
OPTIONS = {"optimizer": "muon", "batch_size": 20, "device": "cpu", "lr": 1e-2, "ema": 0.9, "log_every": 1}


def small_model(objective="masked", code="fisher-yates", dropout=0.1):
    torch.manual_seed(0)
    return PermutationModel(6, code, objective, width=16, depth=2, heads=2, dropout=dropout)


# Newton–Schulz.


def polynomial(values):
    """What five steps make of the singular values of one matrix."""
    values = values / (values.square().sum().sqrt() + 1e-7)
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return values


@pytest.mark.parametrize("shape", [(1, 24, 24), (3, 8, 40), (2, 40, 8), (5, 1, 7), (1, 1, 1)])
def test_singular_values_come_near_one_and_vectors_stay(shape):
    generator = torch.Generator().manual_seed(0)
    u, _, v = torch.linalg.svd(torch.randn(shape, generator=generator), full_matrices=False)
    values = torch.logspace(-2, 3, u.shape[-1]).flip(0) if u.shape[-1] < 9 else torch.linspace(9, 0.5, 24)
    found = orthogonalised(u * values @ v)
    assert found.shape == shape
    gains = (u.mT @ found @ v.mT).diagonal(dim1=-2, dim2=-1)
    seen = values / values.norm() > 2e-3
    assert ((gains[..., seen] > 0.65) & (gains[..., seen] < 1.25)).all()
    assert (gains > 0).all()  # the direction of each stays, also of those too small to come near one
    torch.testing.assert_close(found, u * gains[:, None] @ v, atol=1e-4, rtol=0)  # nothing else is there


def test_matrices_of_a_batch_know_nothing_of_each_other():
    matrices = (
        torch.randn(4, 6, 9, generator=torch.Generator().manual_seed(0))
        * torch.logspace(-6, 6, 4)[:, None, None]
    )
    alone = torch.cat([orthogonalised(one[None]) for one in matrices])
    torch.testing.assert_close(orthogonalised(matrices), alone)
    assert torch.equal(orthogonalised(torch.zeros(2, 3, 3)), torch.zeros(2, 3, 3))


# Which weights.


def hidden_names(model):
    hidden = hidden_matrices(model)
    return {name: hidden[weight] for name, weight in model.named_parameters() if weight in hidden}


BLOCK = {"qkv": 3, "out": 1, "up": 1, "down": 1}


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_hidden_matrices_are_those_of_the_blocks(objective):
    found = hidden_names(small_model(objective))
    (prefix,) = {name.split("blocks.")[0] for name in found}
    wanted = {f"{prefix}blocks.{i}.{layer}.weight": count for i in range(2) for layer, count in BLOCK.items()}
    assert found == wanted


def test_the_hidden_matrices_of_jigsaw_models():
    model = new_model(setting(grid=2, width=16, depth=1, heads=2, rounds=3), 16)
    found = hidden_names(model)
    rounds = {name: count for name, count in found.items() if "rounds." in name}
    assert len(rounds) == 3 * 3
    assert set(rounds.values()) == {1}
    assert {name.split("blocks.")[1]: count for name, count in found.items() if name not in rounds} == {
        f"0.{layer}.weight": count for layer, count in BLOCK.items()
    }
    others = {name: weight for name, weight in model.named_parameters() if name not in found}
    assert any(weight.ndim == 2 for weight in others.values())  # first layers, tables and heads


def test_other_models():
    baseline = GumbelSinkhorn(4, encoder=nn.Linear(1, 16), width=16, depth=1, heads=2)
    assert len(hidden_names(baseline)) == 4

    class Odd(nn.Module):
        """Lists in lists, a shared layer, a qkv that is not packed, a convolution, a layer outside."""

        def __init__(self):
            super().__init__()
            shared = nn.Linear(4, 4)
            inner = nn.ModuleList([shared, nn.ModuleDict({"qkv": nn.Linear(4, 8)})])
            self.parts = nn.ModuleList([inner, shared, nn.Conv1d(4, 4, 1), nn.Embedding(3, 4)])
            self.qkv = nn.Linear(4, 12)

    assert hidden_names(Odd()) == {"parts.0.0.weight": 1, "parts.0.1.qkv.weight": 1}


# One step after the other.


class Layers(nn.Module):
    """Weights of many shapes: packed, wide, tall, square; a first layer, a table and biases."""

    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        block = {
            "qkv": nn.Linear(6, 18),
            "up": nn.Linear(6, 10),
            "down": nn.Linear(10, 6),
            "last": nn.Linear(6, 6),
        }
        self.first, self.table = nn.Linear(3, 6), nn.Embedding(5, 6)
        self.blocks = nn.ModuleList([nn.ModuleDict(block), nn.ModuleDict({"up": nn.Linear(6, 10)})])
        self.to(dtype)


def updating(kind, clip=1.0, ema=None, dtype=torch.float64, decay=0.1):
    model = Layers(dtype)
    named = list(model.named_parameters())
    average = None if ema is None else Average([weight for _, weight in named], ema)
    chosen = settings(decay, clip, optimizer=kind)
    if kind == "muon":
        return make_update(model, CPU, chosen, average, captured=False, alone=True)
    return TorchUpdate(named, CPU, chosen, average)


def settings(decay, clip, optimizer="muon"):
    return TrainSettings(
        steps=1, lr=1e-2, betas=(0.9, 0.99), weight_decay=decay, clip=clip, optimizer=optimizer
    )


MISSING = "blocks.0.last.weight"


def gradients(update, step):
    generator = torch.Generator().manual_seed(step)
    return {
        name: torch.randn(weight.shape, generator=generator, dtype=weight.dtype) / (step + 1)
        for name, weight in update.named
        if name != MISSING or step % 2
    }


def go(update, steps, first=0):
    norms = []
    for step in range(first, first + steps):
        given = gradients(update, step)
        for name, weight in update.named:
            weight.grad = given.get(name)
        if update.average is not None:
            update.average.prepare(step)
        update.set_lr(1e-2 / (step + 1))
        norm = torch.zeros((), dtype=torch.float64)
        update.apply(norm)
        norms.append(float(norm))
    return norms


def moved(weight, momentum, gradient, lr, decay):
    """One matrix by hand, through its singular values: the new weight and momentum."""
    momentum = gradient + 0.95 * momentum
    u, values, v = torch.linalg.svd(gradient + 0.95 * momentum, full_matrices=False)
    change = 0.2 * max(weight.shape) ** 0.5 * (u @ torch.diag(polynomial(values)) @ v)
    return weight - lr * decay * weight - lr * change, momentum


@pytest.mark.parametrize("clip", [None, 0.7, 1e4])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_equals_muon_by_hand(clip, decay):
    update = updating("muon", clip, decay=decay)
    assert type(update) is Muon
    by_hand = {}
    for name, weight in update.named:
        if name.startswith("blocks.") and name.endswith(".weight"):
            parts = weight.detach().clone().chunk(3 if ".qkv." in name else 1)
            by_hand[name] = [(part, torch.zeros_like(part)) for part in parts]
    for step in range(6):
        given = gradients(update, step)
        size = torch.cat([gradient.flatten() for gradient in given.values()]).norm()
        assert go(update, 1, step) == [pytest.approx(float(size))]
        factor = 1.0 if clip is None else min(1.0, clip / (float(size) + 1e-6))
        for name, parts in by_hand.items():
            if name in given:
                pieces = (factor * given[name]).chunk(len(parts))
                by_hand[name] = [
                    moved(*part, piece, 1e-2 / (step + 1), decay)
                    for part, piece in zip(parts, pieces, strict=True)
                ]
    weights = dict(update.named)
    assert len(by_hand) == 5
    for name, parts in by_hand.items():
        torch.testing.assert_close(
            weights[name].detach(), torch.cat([w for w, _ in parts]), atol=1e-12, rtol=0
        )
        torch.testing.assert_close(update.state()[f"momentum/{name}"], torch.cat([m for _, m in parts]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_other_weights_move_as_by_adamw_alone(dtype):
    ours, theirs = updating("muon", dtype=dtype), updating("adamw", dtype=dtype)
    assert go(ours, 5) == go(theirs, 5)
    both = dict(ours.named), dict(theirs.named)
    by_muon = {name for name in both[0] if f"momentum/{name}" in ours.state()}
    assert by_muon == {name for name in both[0] if name.startswith("blocks.") and name.endswith("weight")}
    for name in both[0]:
        assert torch.equal(both[0][name], both[1][name]) == (name not in by_muon), name


def test_weights_that_the_loss_does_not_reach_stay():
    update = updating("muon")
    before = dict(update.named)[MISSING].detach().clone()
    go(update, 1)
    assert torch.equal(dict(update.named)[MISSING], before)
    for weight in update.weights:
        weight.grad = None
    state = {name: value.clone() for name, value in update.state().items()}
    weights = [weight.detach().clone() for weight in update.weights]
    update.apply(torch.zeros(()))
    assert all(torch.equal(value, state[name]) for name, value in update.state().items())
    assert all(map(torch.equal, update.weights, weights))


def test_the_average_follows_all_weights_once():
    update, plain = updating("muon", ema=0.9), updating("muon")
    wanted = [weight.detach().clone() for weight in plain.weights]
    for step in range(8):
        go(update, 1, step)
        go(plain, 1, step)
        pull = 1 - min(0.9, (1 + step) / (10 + step))
        wanted = [one + pull * (w.detach() - one) for one, w in zip(wanted, plain.weights, strict=True)]
    for found, one in zip(update.average.tensors, wanted, strict=True):
        torch.testing.assert_close(found, one, atol=1e-7, rtol=1e-7)


def test_state_goes_over():
    whole, first, second = updating("muon"), updating("muon"), updating("muon")
    go(whole, 7)
    go(first, 4)
    second.load_state({name: value.clone() for name, value in first.state().items()})
    with torch.no_grad():
        for (_, a), (_, b) in zip(second.named, first.named, strict=True):
            a.copy_(b)
    go(second, 3, first=4)
    assert all(torch.equal(a, b) for a, b in zip(second.weights, whole.weights, strict=True))
    assert second.state().keys() == whole.state().keys()


def test_a_model_of_hidden_matrices_only():
    layers = nn.ModuleList([nn.Linear(3, 3, bias=False)])
    named = list(layers.named_parameters())
    update = Muon(named, hidden_matrices(layers), CPU, settings(0.1, 1.0), None)
    before = named[0][1].detach().clone()
    named[0][1].grad = torch.ones(3, 3)
    update.apply(norm := torch.zeros(()))
    assert norm == pytest.approx(3.0)
    assert not torch.equal(named[0][1], before)
    update.load_state(update.state())


# Training.


def losses(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_it_learns(tmp_path, objective):
    train(small_model(objective), ORDERS, steps=60, out=tmp_path, **OPTIONS)
    seen = losses(tmp_path)
    assert sum(seen[-10:]) < 0.9 * sum(seen[:10])
    assert json.loads((tmp_path / "training.json").read_text())["optimizer"] == "muon"


def test_a_resumed_run_ends_as_the_undisturbed_one(tmp_path):
    options = OPTIONS | {"steps": 12, "held_out": 0.1, "held_out_every": 3, "checkpoint_every": 5}
    whole, broken = small_model(), small_model()
    train(whole, ORDERS, out=tmp_path / "whole", **options)
    result = train(broken, ORDERS, out=tmp_path / "broken", max_seconds=1e-9, **options)
    assert result.stopped == "max_seconds"
    train(broken, ORDERS, out=tmp_path / "broken", **options)
    for path in (tmp_path / "broken/checkpoints/12").iterdir():
        path.unlink()
    (tmp_path / "broken/checkpoints/12").rmdir()
    assert checkpoints.steps_in(tmp_path / "broken/checkpoints") == [10]
    train(mended := small_model(), ORDERS, out=tmp_path / "broken", **options)
    assert same_weights(whole, mended)
    assert losses(tmp_path / "whole") == losses(tmp_path / "broken")
    ours, theirs = (
        load_file(tmp_path / run / "checkpoints/12/optimizer.safetensors") for run in ("whole", "broken")
    )
    assert sum(name.startswith("momentum/") for name in ours) == 8
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("there", ["adamw", "muon"])
def test_a_run_goes_on_only_with_its_optimizer(tmp_path, there):
    here = {"adamw": "muon", "muon": "adamw"}[there]
    train(small_model(), ORDERS, out=tmp_path, steps=2, **OPTIONS | {"optimizer": there})
    assert json.loads((tmp_path / "training.json").read_text())["optimizer"] == there
    with pytest.raises(TrainingError, match=f'another run: optimizer is "{there}" there and "{here}" here'):
        train(small_model(), ORDERS, out=tmp_path, steps=2, **OPTIONS | {"optimizer": here})


def test_refusals(tmp_path):
    options = OPTIONS | {"steps": 2, "out": tmp_path / "run"}
    with pytest.raises(TrainingError, match="optimizer is one of 'adamw', 'muon', not 'sgd'"):
        train(small_model(), ORDERS, **options | {"optimizer": "sgd"})
    with pytest.raises(
        TrainingError, match=r"this model has none to train.*optimizer='adamw' trains any model"
    ):
        train(StandIn(6), ORDERS, **options)
    frozen = small_model()
    for weight in hidden_matrices(frozen):
        weight.requires_grad_(False)
    with pytest.raises(TrainingError, match="this model has none to train"):
        train(frozen, ORDERS, **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"precision": "bf16", "compile": True}, {"clip": None, "ema": None}])
def test_captured_and_eager_steps_agree(tmp_path, options):
    """The body waits for nothing, and reads the learning rate of each step, which changes here."""
    settings = OPTIONS | {"steps": 40, "device": "cuda", "warmup": 5, "lr": 3e-3} | options
    for capture in (True, False):
        train(small_model(dropout=0.0), ORDERS, out=tmp_path / str(capture), capture=capture, **settings)
    ours, theirs = (torch.tensor(losses(tmp_path / str(capture))) for capture in (True, False))
    assert len(ours) == 40
    torch.testing.assert_close(ours[:10], theirs[:10], rtol=0.01, atol=0.01)
    torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)


@pytest.mark.gpu
def test_on_a_gpu_singular_values_come_near_one_in_bfloat16():
    matrices = torch.randn(3, 32, 128, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
    found = orthogonalised(matrices)
    assert found.dtype == torch.float32
    values = torch.linalg.svdvals(found)
    assert ((values > 0.6) & (values < 1.3)).all()
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    assert torch.cosine_similarity(found.flatten(1), (u @ v).flatten(1)).min() > 0.97
