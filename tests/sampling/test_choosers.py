"""Stratified draws: spread as promised, and nothing drawn that has no probability."""

import math

import pytest
import torch

from factorank.sampling import choosers
from factorank.sampling.categorical import BELOW_ONE
from factorank.sampling.choosers import Draw, StratifiedDraw


@pytest.mark.parametrize("samples", [1, 2, 7, 21])
def test_every_position_has_one_sample_in_each_stratum(samples, generator):
    uniform = StratifiedDraw(samples, 50, 6, generator).uniform
    assert uniform.shape == (samples, 50, 6)
    stratum = (uniform * samples).floor().long()
    assert torch.equal(stratum.sort(0).values, torch.arange(samples)[:, None, None].expand(samples, 50, 6))
    if samples == 7:  # by chance two of 300 permutations are alike, 300² / 2 / 7! = 9 times, hardly 40
        alike = stratum.movedim(0, -1).reshape(300, 7).unique(dim=0)
        assert len(alike) > 260
        within = uniform * samples - stratum
        assert 0.45 < within.mean() < 0.55
        assert (within[0] - within[1]).abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("samples", [1, 4, 21, 200])
def test_samples_that_share_predictions_have_nearly_the_expected_counts(samples, dtype, generator):
    """The values up to any one are less than one draw off what is expected; one by itself, less than two."""
    rows, positions, values = 9, 5, 50
    logits = (3 * torch.randn(rows, positions, values, generator=generator)).to(dtype)
    logits[..., [0, 17, 49]] = -torch.inf
    chooser = StratifiedDraw(samples, rows, positions, generator)
    drawn = chooser.shared(logits, samples)
    at = torch.arange(positions).expand(samples, rows, positions)
    same = chooser.values(logits.expand(samples, *logits.shape), at)
    assert torch.equal(drawn, same)
    counts = torch.nn.functional.one_hot(drawn, values).sum(0)
    expected = samples * logits.double().softmax(-1)
    assert (counts.cumsum(-1) - expected.cumsum(-1)).abs().max() < 1 + 1e-9
    assert (counts - expected).abs().max() < 2 + 1e-9
    assert counts[expected == 0].sum() == 0


def test_nothing_lies_between_the_largest_uniform_number_and_one():
    assert math.nextafter(BELOW_ONE, 2) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("end", [0.0, BELOW_ONE])
@pytest.mark.parametrize("samples", [1, 3, 21, 64])
def test_values_without_probability_are_never_drawn(samples, end, dtype, monkeypatch, generator):
    """Also by the smallest and the largest uniform numbers there are: with the latter the sum of a stratum
    and the number rounds up to the next stratum, and for the last one to 1."""
    monkeypatch.setattr(
        choosers.torch, "rand", lambda shape, **options: torch.full(shape, end, dtype=options["dtype"])
    )
    chooser = StratifiedDraw(samples, 40, 3)
    monkeypatch.undo()
    assert (chooser.uniform >= 0).all()
    assert (chooser.uniform < 1).all()
    allowed = torch.rand(40, 3, 50, generator=generator) < 0.3
    allowed[..., 7] = True
    allowed[:20, :, [0, 49]] = False
    logits = (9 * torch.randn(40, 3, 50, generator=generator)).to(dtype).masked_fill(~allowed, -torch.inf)
    at = torch.arange(3).expand(samples, 40, 3)
    for drawn in (chooser.shared(logits, samples), chooser.values(logits.expand(samples, 40, 3, 50), at)):
        assert drawn.max() < 50
        assert allowed.expand(samples, 40, 3, 50).gather(-1, drawn[..., None]).all()


def test_parts_are_those_of_the_whole_and_positions_have_their_own_numbers(generator):
    chooser = StratifiedDraw(10, 4, 6, generator)
    logits = torch.randn(10, 4, 2, 30, generator=generator)
    positions = torch.stack([torch.randperm(6, generator=generator)[:2] for _ in range(40)]).view(10, 4, 2)
    whole = chooser.values(logits, positions)
    parts = [chooser.part(some).values(logits[some], positions[some]) for some in (slice(0, 3), slice(3, 10))]
    assert torch.equal(torch.cat(parts), whole)
    cumulative = logits.double().softmax(-1).cumsum(-1)
    for sample, row, place in ((0, 0, 0), (9, 3, 1), (4, 2, 0)):
        number = chooser.uniform[sample, row, positions[sample, row, place]]
        assert whole[sample, row, place] == int((cumulative[sample, row, place] <= number).sum())


def test_the_same_interface_as_plain_draws(generator):
    logits = torch.randn(4, 6, 30, generator=generator)
    positions = torch.arange(6).expand(10, 4, 6)
    plain, spread = Draw(generator), StratifiedDraw(10, 4, 6, generator)
    for one, other in (
        (plain.shared(logits, 10), spread.shared(logits, 10)),
        (
            plain.values(logits.expand(10, 4, 6, 30), positions),
            spread.values(logits.expand(10, 4, 6, 30), positions),
        ),
    ):
        assert one.shape == other.shape == (10, 4, 6)
        assert one.dtype == other.dtype == torch.int64


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
def test_on_a_gpu_nothing_waits():
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(9, 5, 50, device="cuda").masked_fill(torch.rand(50, device="cuda") < 0.3, -torch.inf)
    at = torch.arange(5, device="cuda").expand(21, 9, 5)
    before = torch.cuda.get_sync_debug_mode()
    try:
        torch.cuda.set_sync_debug_mode("error")
        chooser = StratifiedDraw(21, 9, 5, generator, logits.device)
        found = chooser.shared(logits, 21), chooser.values(logits.expand(21, 9, 5, 50), at)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    expected = 21 * logits.double().softmax(-1)
    assert torch.equal(*found)
    counts = torch.nn.functional.one_hot(found[0], 50).sum(0)
    assert (counts.cumsum(-1) - expected.cumsum(-1)).abs().max() < 1 + 1e-9
    assert counts[expected == 0].sum() == 0
