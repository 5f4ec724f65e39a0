"""Encoders of jigsaw pieces: what they see, what they do not, and that models with them can be saved."""

import itertools

import pytest
import torch

import factorank as fr
from factorank.jigsaw.encoder import FEATURES, PieceConvolution, PieceEncoder

OWN = tuple(name for name in FEATURES if name != "neighbours")
"""Features that come from the piece alone."""
ENCODERS = {
    "mlp": lambda **options: PieceEncoder(3, 5, 16, **options),
    "own": lambda **options: PieceEncoder(3, 5, 16, features=OWN, **options),
    "all": lambda **options: PieceEncoder(3, 5, 16, features=FEATURES, **options),
    "convolution": lambda **options: PieceConvolution(3, 5, 16, **options),
}


@pytest.fixture
def pieces(generator):
    return torch.randint(256, (2, 4, 9, 5, 5, 3), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("name", ENCODERS)
def test_tokens_move_with_their_pieces(name, pieces):
    encoder = ENCODERS[name]()
    tokens = encoder(pieces)
    assert tokens.shape == (2, 4, 9, 16)
    moved = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(encoder(pieces[:, :, moved]), tokens[:, :, moved], rtol=1e-4, atol=1e-5)
    apart = ENCODERS[name](aligned=False)
    apart.load_state_dict(encoder.state_dict(), strict=False)
    torch.testing.assert_close(apart(pieces) - apart.places, tokens)


@pytest.mark.parametrize("features", [some for k in range(4) for some in itertools.combinations(OWN, k)])
def test_every_pixel_of_a_piece_is_seen_and_none_of_others(features, pieces):
    encoder = PieceEncoder(3, 5, 16, features=features)
    base = pieces[0, 0].clamp(1, 254)
    tokens = encoder(base)
    for y, x, channel in itertools.product(range(5), range(5), range(3)):
        changed = base.clone()
        changed[0, y, x, channel] += 1
        difference = (encoder(changed) - tokens).abs().amax(-1)
        assert difference[0] > 0
        assert (difference[1:] == 0).all()


def test_bytes_are_exact_in_bfloat16():
    levels = (torch.arange(256).to(torch.uint8).float() - 127.5) / 64
    assert torch.equal(levels.bfloat16().float(), levels)


def test_contrast_shows_faint_pieces_as_strongly_as_others():
    """The added features of a piece whose grey levels are eight times fainter are nearly the same."""
    encoder = PieceEncoder(1, 5, 8, features=("contrast",))
    strong = torch.randint(0, 17, (1, 5, 5, 3), generator=torch.Generator().manual_seed(0)) * 8
    added = []
    encoder.up.register_forward_pre_hook(lambda module, inputs: added.append(inputs[0][..., 75:]))
    for levels in (strong + 60, strong // 8 + 200):
        encoder(levels.to(torch.uint8))
    torch.testing.assert_close(added[0], added[1], rtol=0.05, atol=0.05)
    encoder(torch.full((1, 5, 5, 3), 99, dtype=torch.uint8))
    assert (added[2] == 0).all()


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_models_train_solve_and_come_back(name, aligned, objective, pieces, tmp_path):
    torch.manual_seed(0)
    context = ENCODERS[name](aligned=aligned, direction="piece-of-slot")
    model = fr.PermutationModel(9, "lehmer", objective, 16, 1, 2, context=context).eval()
    model.loss(fr.random_permutations(9, (2, 4)), pieces).sum().backward()
    assert all(weight.grad is not None for weight in context.parameters())
    mode = model.distribution(pieces).mode
    model.save_pretrained(tmp_path)
    loaded = fr.PermutationModel.from_pretrained(tmp_path)
    assert loaded.context.config() == context.config()
    assert loaded.context.direction == "piece-of-slot"
    assert torch.equal(loaded.distribution(pieces).mode, mode)


@pytest.mark.parametrize("piece", range(1, 17))
def test_convolution_takes_pieces_of_any_size(piece):
    encoder = PieceConvolution(2, piece, 8)
    assert encoder(torch.zeros(4, piece, piece, 3, dtype=torch.uint8)).shape == (4, 8)


def test_what_encoders_refuse(pieces):
    encoder = ENCODERS["mlp"]()
    with pytest.raises(
        fr.ModelError, match=r"are bytes \(\*batch, 9, 5, 5, 3\), not torch.float32 \(2, 4, 9"
    ):
        encoder(pieces.float())
    with pytest.raises(fr.ModelError, match=r"not torch.uint8 \(2, 4, 8, 5, 5, 3\)"):
        encoder(pieces[:, :, 1:])
    with pytest.raises(
        fr.ModelError, match="features of a piece are edges, contrast, means, neighbours, not 'corners'"
    ):
        PieceEncoder(3, 5, 16, features=("corners",))
