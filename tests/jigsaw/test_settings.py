"""Settings: their defaults, what they refuse, and the models that they describe."""

import pytest
import torch

import factorank as fr
from factorank.jigsaw import new_model, setting


def test_the_defaults_of_a_setting_follow_from_code_and_objective():
    assert setting().direction_used == "slot-of-piece"
    assert setting(code="insertion").direction_used == "piece-of-slot"
    assert setting(code="insertion", direction="slot-of-piece").direction_used == "slot-of-piece"
    assert setting(grid=2).code_used == setting().code_used == "lehmer"
    assert setting(grid=4).code_used == setting(grid=6).code_used == "inline"
    assert setting(grid=6).name == "default-6x6-inline-masked-0"
    assert setting(grid=6, code="lehmer").name == "default-6x6-lehmer-masked-0"
    # What may leave the permutations, because nothing is assigned, has another code.
    for others in ({"objective": "autoregressive"}, {"masks": "any"}, {"preset": "paper"}):
        assert setting(**{"grid": 4} | others).code_used == "lehmer"
    assert setting().masks_used == "all"
    assert setting(objective="autoregressive").masks_used == "any"
    assert setting("paper").direction_used == "piece-of-slot"
    assert setting("paper", lr=None).lr == 3e-4


@pytest.mark.parametrize("grid", [3, 4, 5, 6, 7, 8])
def test_the_default_model_has_at_most_1_7_million_parameters(grid):
    assert sum(weight.numel() for weight in new_model(setting(grid=grid)).parameters()) <= 1_700_000


def test_insertion_and_left_lehmer_say_the_same_in_opposite_directions():
    """Why insertion has its direction: its code of the pieces in reading order is, position by position, the
    left-Lehmer code of their slots."""
    slot = fr.random_permutations(9, (200,))
    places = torch.arange(9)
    left = fr.Lehmer(side="left").encode(slot)
    assert torch.equal(fr.Insertion().encode(fr.inverse(slot)), places - left)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"norm": "none"}, "norm is one of before, after, not 'none'"),
        (
            {"preset": "riffle-diffusion", "norm": "after"},
            "norm is 'before' for riffle-diffusion, not 'after'",
        ),
        ({"preset": "other"}, "there is no preset 'other'; there are default, paper"),
        ({"speed": 3}, "a setting has no 'speed'; it has aligned, augment"),
        ({"grid": 40}, "a grid from 1 to 32, not 40"),
        ({"width": 30}, "width is a multiple of the 8 attention heads, not 30"),
        ({"optimizer": "sgd"}, "optimizer is one of adamw, muon, not 'sgd'"),
        ({"method": "magic"}, "method is one of factorank, gumbel-sinkhorn, riffle-diffusion, not 'magic'"),
        ({"label": "a/b"}, "label is the name of a folder, without slashes, not 'a/b'"),
        ({"augment": "blur"}, "augment is 'none' or some of"),
    ],
)
def test_settings_refuse(changes, message):
    with pytest.raises(fr.FactorankError, match=message):
        setting(**changes)


@pytest.mark.parametrize("encoder", ["cnn", "convolution+edges", "mlp+corners"])
def test_unknown_encoders(encoder):
    with pytest.raises(
        fr.FactorankError, match=r"encoder is 'convolution' or 'mlp' with|features of a piece"
    ):
        new_model(setting(encoder=encoder))
