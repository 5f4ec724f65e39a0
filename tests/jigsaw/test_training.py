"""Training and resuming at a tiny size."""

from functools import partial

import pytest
import torch

import factorank as fr
from factorank.jigsaw import cut, evaluate, join, learn, load_any, scrambled, setting, solve_puzzles
from tests.jigsaw.small import PICTURES, TINY


def test_it_learns_and_its_solutions_are_pictures():
    model, result = learn(
        setting(**(TINY | {"steps": 120, "lr": 1e-2, "ema": 0.98, "augment": "none"})),
        PICTURES,
        device="cpu",
        watch_every=None,
    )
    assert result.steps == 120
    scores = evaluate(partial(solve_puzzles, model), PICTURES.test, 2, "slot-of-piece")
    assert scores["solved"] > 0.5  # 1/24 by chance
    order, pieces = scrambled(PICTURES.test, 2, seed=9)
    solution = solve_puzzles(model, pieces)
    for picture, slots, shown, truth in zip(PICTURES.test, solution, pieces, order, strict=True):
        by_slot = shown[fr.inverse(slots)]
        assert torch.equal(join(by_slot, 2), picture) == torch.equal(slots, truth)
        assert sorted(map(bytes, by_slot.flatten(1).numpy())) == sorted(
            map(bytes, cut(picture, 2).flatten(1).numpy())
        )


def test_time_ends_a_run_and_what_is_left_of_it_is_known(tmp_path):
    chosen = setting(**(TINY | {"steps": None, "seconds": 2.0}))
    _, result = learn(chosen, PICTURES, tmp_path / "run", device="cpu", log_every=1)
    assert result.stopped == "max_seconds"
    assert result.steps > 0
    _, again = learn(chosen, PICTURES, tmp_path / "run", device="cpu", log_every=1)
    assert again.steps <= result.steps + 2  # nothing was left, or next to nothing


def test_training_can_begin_from_a_trained_model(tmp_path):
    first, _ = learn(setting(**TINY), PICTURES, tmp_path / "one", device="cpu", watch_every=None)
    gentle = setting(**(TINY | {"lr": 1e-12, "weight_decay": 0.0, "steps": 1, "label": "more", "seed": 5}))
    more, _ = learn(
        gentle, PICTURES, tmp_path / "two", start=tmp_path / "one", device="cpu", watch_every=None
    )
    for before, after in zip(first.parameters(), more.parameters(), strict=True):
        torch.testing.assert_close(before, after)


def killed_at_step_7(run):
    if run.done == 7:
        raise RuntimeError("killed")


def test_the_papers_network_is_trained_saved_and_resumed(tmp_path):
    chosen = setting("paper", **(TINY | {"grid": 2, "steps": 12}))
    assert (chosen.norm, chosen.dropout) == ("after", 0.1)
    whole, _ = learn(chosen, PICTURES, tmp_path / "whole", device="cpu", watch_every=None)
    with pytest.raises(RuntimeError, match="killed"):
        learn(
            chosen,
            PICTURES,
            tmp_path / "parts",
            device="cpu",
            watch_every=None,
            checkpoint_every=5,
            callbacks=[killed_at_step_7],
        )
    parts, result = learn(chosen, PICTURES, tmp_path / "parts", device="cpu", watch_every=None)
    assert result.steps == 12
    norm = whole.context.layers[1]
    assert norm.num_batches_tracked == 12  # the statistics of the batches are part of a checkpoint
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[name], weight, rtol=0, atol=0)
    loaded = load_any(2, tmp_path / "whole").context
    torch.testing.assert_close(loaded.layers[1].running_mean, norm.running_mean)
    assert loaded.places.shape == (4, 16)
    assert "places" not in loaded.state_dict()
