"""Puzzles to learn from, the loss, and training that goes on where it stopped."""

import numpy as np
import pytest
import torch

from factorank.jigsaw.photographs import crops
from factorank.jigsaw.photographs.crops import Kind, jpeg_blocks, random_batch, random_kind
from factorank.jigsaw.photographs.network import PhotographNetwork
from factorank.jigsaw.photographs.training import loss_of, train
from tests.jigsaw.photographs.small import SMALL, photograph

PHOTOGRAPHS = [photograph(90 + 10 * seed, 130, seed).movedim(-1, 0) for seed in range(4)]


def test_kinds_fit_the_budget_and_vary():
    chooser = torch.Generator().manual_seed(0)
    kinds = [random_kind(400_000, chooser) for _ in range(300)]
    assert {rows for kind in kinds for rows in kind.grid} == set(range(2, 14))
    for kind in kinds:
        pieces = kind.grid[0] * kind.grid[1]
        pairs = (16 if kind.turned else 2) * pieces**2 * kind.puzzles
        assert pairs <= 400_000 or kind.puzzles == 4
        assert not kind.turned or kind.size[0] == kind.size[1]
    assert {kind.turned for kind in kinds} == {True, False}
    assert any(kind.missing for kind in kinds)
    on_blocks = sum(kind.on_blocks for kind in kinds)
    assert 0.2 < on_blocks / len(kinds) < 0.4


def test_puzzles_on_blocks_are_cut_where_the_blocks_of_the_file_are():
    """Of a picture of flat blocks of 8×8 pixels, every piece is whole blocks."""
    blocks = torch.randint(0, 256, (3, 12, 16), generator=torch.Generator().manual_seed(0))
    picture = blocks.repeat_interleave(8, 1).repeat_interleave(8, 2).to(torch.uint8)
    kind = Kind((2, 3), (16, 24), 1)
    assert kind.on_blocks
    for seed in range(20):
        chooser = torch.Generator().manual_seed(seed)
        crop = crops._crop([picture], (32, 72), 8, chooser)
        if torch.equal(crop, crop.round()):  # at its own resolution
            parts = crop.unflatten(2, (9, 8)).unflatten(1, (4, 8))
            assert (parts == parts[:, :, :1, :, :1]).all()


@pytest.mark.parametrize(
    "kind",
    [
        Kind((3, 2), (20, 30), 3),
        Kind((2, 3), (24, 24), 3, turned=True),
        Kind((3, 3), (20, 20), 2, missing=0.2),
        Kind((2, 2), (60, 90), 2, turned=False),
    ],
)
def test_the_loss_has_a_gradient_for_every_weight_that_is_used(kind):
    chooser = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = PhotographNetwork(**SMALL).train()
    loss, parts = loss_of(network, random_batch(PHOTOGRAPHS, kind, chooser), kind)
    assert torch.isfinite(loss)
    loss.backward()
    silent = {name for name, weight in network.named_parameters() if weight.grad is None}
    assert not silent or kind.turned
    assert set(parts) >= {"match", "place", "right"}
    assert silent <= {"matching.sides"}


def test_training_goes_on_where_it_stopped(tmp_path):
    torch.manual_seed(0)
    network = PhotographNetwork(**SMALL)
    options = {"seconds": 600, "budget": 500, "largest": 2, "lr": 1e-2}
    kept = []
    state = train(network, PHOTOGRAPHS, **options, max_steps=3, checkpoint=kept.append)
    assert state["step"] == kept[-1]["step"] == 3
    torch.save(state, tmp_path / "state.pt")
    read = torch.load(tmp_path / "state.pt", weights_only=True)
    other = PhotographNetwork(**SMALL)
    again = train(other, PHOTOGRAPHS, **options, max_steps=1, state=read)
    assert again["step"] == 4
    steps = {float(value) for name, value in again["moments"].items() if name.endswith(":step")}
    assert max(steps) == 4
    assert any(not torch.equal(other.state_dict()[name], value) for name, value in read["network"].items())


def test_blocks_of_jpeg_are_those_of_pillow():
    """At the standard's own quality, a grey picture differs from Pillow's by rounding only."""
    import io

    from PIL import Image

    grey = photograph(64, 48)[..., :1].expand(-1, -1, 3).contiguous()
    content = io.BytesIO()
    Image.fromarray(grey.numpy()).convert("L").save(content, "JPEG", quality=50)
    theirs = np.asarray(Image.open(content)).astype(float)
    ours = jpeg_blocks(grey.movedim(-1, 0)[None].float(), torch.full((1, 1, 1, 1, 1, 1), 50.0))
    assert np.abs(ours[0, 0].numpy() - theirs).mean() < 0.6
    assert torch.allclose(ours[:, 0], ours[:, 2], atol=1e-2)
    shifted = jpeg_blocks(grey.movedim(-1, 0)[None].float(), torch.full((1, 1, 1, 1, 1, 1), 50.0), (3, 5))
    assert shifted.shape == ours.shape
    assert (shifted - ours).abs().max() > 1
