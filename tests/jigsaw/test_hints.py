"""Hints: the loss against its definition, and that a hinted model is saved as any other."""

import pytest
import torch

import factorank as fr
from factorank.jigsaw import HintedModel, new_model, setting, setting_of
from factorank.jigsaw.encoder import Encoded, SlotGuess
from factorank.jigsaw.puzzles import scrambled

TINY = {"grid": 3, "width": 16, "depth": 1, "heads": 2, "rounds": 2}


@pytest.fixture
def pictures(generator):
    return torch.randint(256, (5, 12, 12, 3), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("direction", ["slot-of-piece", "piece-of-slot"])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_the_loss_is_that_of_the_model_and_of_the_slots(direction, objective, pictures):
    model = new_model(setting(**TINY, direction=direction, objective=objective, hints=0.5), 12)
    assert isinstance(model, HintedModel)
    order, pieces = scrambled(pictures, 3, direction=direction)
    noise = model.noise(torch.Size([5]), device="cpu")
    plain = fr.PermutationModel.loss(model, order, pieces, noise=noise)
    logits = model.context.read(pieces)[1].log_softmax(-1)
    expected = plain.clone()
    for row in range(5):
        for piece in range(9):
            slot = order[row, piece] if direction == "slot-of-piece" else order[row].tolist().index(piece)
            expected[row] -= 0.5 * logits[row, piece, slot]
    torch.testing.assert_close(model.train().loss(order, pieces, noise=noise), expected)
    torch.testing.assert_close(model.eval().loss(order, pieces, noise=noise), plain)


def test_what_the_guess_says_is_part_of_the_token(pictures):
    context = new_model(setting(**TINY, hints=1.0), 12).context
    pieces = scrambled(pictures, 3)[1]
    tokens, logits = context.read(pieces)
    assert torch.equal(context(pieces), tokens)
    assert torch.equal(context(Encoded(tokens)), tokens)
    with torch.no_grad():
        context.slots.meaning += 1.0  # the weights of a guess sum to one
    torch.testing.assert_close(context(pieces), tokens + 1.0, rtol=1e-4, atol=1e-4)
    assert logits.shape == (5, 9, 9)
    context.slots.values.data += 1.0  # and one value of the draft is added to each
    torch.testing.assert_close(context(pieces), tokens + 2.0, rtol=1e-4, atol=1e-4)
    assert context.read(pieces)[1].dtype == torch.float32


def test_a_hinted_model_comes_back_as_a_plain_one(pictures, tmp_path):
    model = new_model(setting(**TINY), 12).eval()
    model.save_pretrained(tmp_path)
    loaded = fr.PermutationModel.from_pretrained(tmp_path)
    assert type(loaded) is fr.PermutationModel
    pieces = scrambled(pictures, 3)[1]
    assert torch.equal(loaded.distribution(pieces).mode, model.distribution(pieces).mode)
    chosen = setting_of(loaded)
    assert (chosen.hints, chosen.rounds, chosen.encoder) == (1.0, 2, "mlp+neighbours")


def test_without_hints_there_is_no_guess(pictures):
    model = new_model(setting(**TINY, hints=0.0), 12)
    assert type(model) is fr.PermutationModel
    assert model.context.read(scrambled(pictures, 3)[1])[1] is None
    assert new_model(setting("paper", **TINY)).context.slots is None


@pytest.mark.parametrize("code", fr.code_names())
@pytest.mark.parametrize("direction", ["slot-of-piece", "piece-of-slot"])
def test_the_draft_is_the_code_of_what_was_guessed(code, direction):
    guess = SlotGuess(6, 8, code)
    slot = fr.random_permutations(6, (50,), generator=torch.Generator().manual_seed(0))
    order = slot if direction == "slot-of-piece" else fr.inverse(slot)
    sure = torch.nn.functional.one_hot(slot, 6).float()
    assert torch.equal(guess.draft(sure, direction), fr.code(code).encode(order))
    unsure = torch.randn((50, 6, 6), generator=torch.Generator().manual_seed(1))
    drafts = fr.code(code).decode(guess.draft(unsure, direction))
    assert fr.is_permutation(drafts).all()
