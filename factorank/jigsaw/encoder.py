"""Context encoders for jigsaw pieces: one token a piece.

Pixels are bytes. ``(byte - 127.5) / 64`` brings them to about unit variance, and bfloat16 holds it without
rounding: pieces of a clear sky differ by single grey levels. The pixels at an edge decide which piece goes
beside it, so the encoder of the default model, :class:`PieceEncoder`, is a plain perceptron that reads every
pixel at its place. :class:`PieceConvolution` is the convolutional one of earlier work, whose pooling loses
most of the edge.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from factorank.codes import code as find_code
from factorank.errors import ModelError
from factorank.jigsaw.edges import EdgeAttention
from factorank.jigsaw.puzzles import Direction
from factorank.models.transformer import waves as places_as_waves
from factorank.permutations import inverse

FEATURES = ("edges", "contrast", "means", "neighbours")
SINKHORN = 5
"""Rounds of Sinkhorn's algorithm before slots are read off the guesses."""
WAVES = 6
"""How many wavelengths encode a mean: 256, 128, … 8 grey levels."""


class Pieces(nn.Module):
    """The base of the encoders: the shape of the puzzle, the places of the tokens, the guess of the slots.

    Args:
        grid: pieces in a row; n is its square.
        piece: pixels in a row of a piece.
        width: of the tokens.
        channels: of a pixel.
        aligned: one token serves piece i and position i of the code. Otherwise the pieces stand before the
            code as tokens of their own, each with an embedding of its place.
        direction: how the order that the model learns is read; see :mod:`factorank.jigsaw.puzzles`. It
            changes nothing here; it is stored with the weights.
        slots: the name of the model's code, or None. With a name, the encoder guesses the slot of each piece
            from its token and adds two embeddings to the token: that of the guess, and that of the piece's
            value in a draft, the code of the order that all guesses make. Training with the true slots
            (:class:`factorank.jigsaw.HintedModel`) teaches the encoder where pieces belong; the network
            then corrects the draft.
        waves: the places of tokens before the code are sines and cosines, from -n on, and not learnt.
    """

    places: Tensor | None

    def __init__(
        self,
        grid: int,
        piece: int,
        width: int,
        channels: int = 3,
        *,
        aligned: bool = True,
        direction: Direction = "slot-of-piece",
        slots: str | None = None,
        waves: bool = False,
    ) -> None:
        super().__init__()
        self.grid, self.piece, self.width, self.channels = grid, piece, width, channels
        self.aligned, self.direction, self.waves = aligned, direction, waves
        if waves and not aligned:
            self.register_buffer("places", places_as_waves(torch.arange(-(grid**2), 0), width), False)
        else:
            self.places = None if aligned else nn.Parameter(0.5 * torch.randn(grid**2, width))
        self.slots = None if slots is None else SlotGuess(grid**2, width, slots)

    def forward(self, pieces: "Tensor | Encoded") -> Tensor:
        """Bytes ``(*batch, n, piece, piece, channels)`` to tokens ``(*batch, n, width)``."""
        return pieces.tokens if isinstance(pieces, Encoded) else self.read(pieces)[0]

    def read(self, pieces: Tensor) -> tuple[Tensor, Tensor | None]:
        """The tokens, and the logits of the slot of each piece ``(*batch, n, n)`` if they are guessed."""
        shape = (self.grid**2, self.piece, self.piece, self.channels)
        if not isinstance(pieces, Tensor) or pieces.dtype != torch.uint8 or pieces.shape[-4:] != shape:
            got = f"{pieces.dtype} {tuple(pieces.shape)}" if isinstance(pieces, Tensor) else type(pieces)
            raise ModelError(
                f"the pieces of a puzzle are bytes (*batch, {', '.join(map(str, shape))}), not {got}"
            )
        tokens, logits = self.tokens((pieces.float() - 127.5) / 64), None
        if self.slots is not None:
            logits = self.slots(tokens)
            tokens = tokens + self.slots.embedded(logits, self.direction).to(tokens.dtype)
        return (tokens if self.places is None else tokens + self.places), logits

    def tokens(self, pixels: Tensor) -> Tensor:
        raise NotImplementedError

    def example(self, n: int) -> Tensor:
        """Two puzzles of black pieces."""
        return torch.zeros((2, n, self.piece, self.piece, self.channels), dtype=torch.uint8)

    def config(self) -> dict[str, Any]:
        names = ("grid", "piece", "width", "channels", "aligned", "direction", "waves")
        return {name: getattr(self, name) for name in names} | {
            "slots": None if self.slots is None else self.slots.code.name
        }


class Encoded(NamedTuple):
    """The tokens of pieces: an encoder that gets them returns them as they are."""

    tokens: Tensor


class SlotGuess(nn.Module):
    """Logits of the slot of each piece, in float32 also under autocast, and embeddings of the guess."""

    def __init__(self, n: int, width: int, code: str) -> None:
        super().__init__()
        self.code = find_code(code)
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, n)
        self.meaning = nn.Parameter(0.5 * torch.randn(n, width))
        self.values = nn.Parameter(0.5 * torch.randn(n, width))
        nn.init.normal_(self.linear.weight, std=0.1 * width**-0.5)
        nn.init.zeros_(self.linear.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens ``(*batch, n, width)`` to logits ``(*batch, n, n)``."""
        with torch.autocast(tokens.device.type, enabled=False):
            return F.linear(self.norm(tokens.float()), self.linear.weight, self.linear.bias)

    def embedded(self, logits: Tensor, direction: str) -> Tensor:
        """What is added to the tokens: the mean embedding of the guessed slots, and that of the draft."""
        return logits.softmax(-1) @ self.meaning + F.embedding(self.draft(logits, direction), self.values)

    def draft(self, logits: Tensor, direction: str) -> Tensor:
        """The code of the order that the best guesses make, ``(*batch, n)``.

        A few rounds of Sinkhorn's algorithm separate guesses of the same slot. Remaining ties are broken by
        the order of the pieces, so that there always is an order.
        """
        scores = logits.detach()
        for _ in range(SINKHORN):
            scores = scores.log_softmax(-1).log_softmax(-2)
        slots = scores.log_softmax(-1).argmax(-1)
        places = torch.arange(slots.shape[-1], device=slots.device)
        one, other = slots[..., :, None], slots[..., None, :]
        first = (other < one) | ((other == one) & (places < places[:, None]))
        order = first.sum(-1)  # by counting: a sort that keeps the order of ties is not in every runtime
        if direction != "slot-of-piece":
            order = inverse(order, check=False)
        return self.code.encode(order, check=False)


class PieceEncoder(Pieces):
    """A perceptron with one hidden layer of twice the width over the pixels of a piece.

    ``features`` adds to its input. "edges": the four border strips through a linear map that opposite sides
    share, so that matching edges have similar features. "contrast": the pixels again with the piece's mean
    taken out and its deviation scaled to one, which shows the structure of faint pieces. "means": the mean
    colours of the piece and of its four edges as sines and cosines of falling wavelength, which distinguishes
    single grey levels. "neighbours" adds ``rounds`` of attention between pieces whose edges match; see
    :class:`factorank.jigsaw.edges.EdgeAttention`.

    >>> encoder = PieceEncoder(grid=3, piece=10, width=16, features=("edges", "means"))
    >>> encoder(torch.zeros(2, 9, 10, 10, 3, dtype=torch.uint8)).shape
    torch.Size([2, 9, 16])
    """

    def __init__(
        self,
        grid: int,
        piece: int,
        width: int,
        channels: int = 3,
        *,
        features: tuple[str, ...] = (),
        rounds: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(grid, piece, width, channels, **options)
        self.features, self.rounds = tuple(features), rounds
        if unknown := [name for name in self.features if name not in FEATURES]:
            raise ModelError(f"the features of a piece are {', '.join(FEATURES)}, not {unknown[0]!r}")
        edge, half, contrast = piece * channels, width // 2, "contrast" in self.features
        size = piece * edge * (1 + contrast)
        if "edges" in self.features:
            # Rows and columns have maps of their own, each for both of its sides.
            self.edges = nn.Parameter(torch.randn(2, edge, half) * edge**-0.5)
            size += 4 * half
        if "means" in self.features:
            size += 5 * channels * 2 * WAVES
        neighbours = "neighbours" in self.features
        self.edge_attention = EdgeAttention(piece, channels, width, rounds=rounds) if neighbours else None
        self.up, self.down = nn.Linear(size, 2 * width), nn.Linear(2 * width, width)
        for linear in (self.up, self.down):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)

    def tokens(self, pixels: Tensor) -> Tensor:
        inputs = [pixels.flatten(-3)]
        if "edges" in self.features:
            rows, columns = self.edges
            maps = (rows, rows, columns, columns)
            inputs += [strip.flatten(-2) @ each for strip, each in zip(_strips(pixels), maps, strict=True)]
        if "contrast" in self.features:
            centred = inputs[0] - inputs[0].mean(-1, keepdim=True)
            inputs.append(centred * (centred.square().mean(-1, keepdim=True) + 64.0**-2).rsqrt())
        if "means" in self.features:
            means = [pixels.mean((-3, -2)), *(strip.mean(-2) for strip in _strips(pixels))]
            # Of a mean of 4, which is 256 levels, the first wave runs through once.
            frequencies = torch.exp2(torch.arange(WAVES, device=pixels.device)) * (math.pi / 2)
            angles = (torch.stack(means, -1)[..., None] * frequencies).flatten(-3)
            inputs += [angles.sin(), angles.cos()]
        tokens = self.down(F.gelu(self.up(torch.cat(inputs, -1))))
        return tokens if self.edge_attention is None else self.edge_attention(tokens, pixels)

    def config(self) -> dict[str, Any]:
        return super().config() | {"features": list(self.features), "rounds": self.rounds}


def _strips(pixels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The pixels at the top, bottom, left and right edge of pieces, ``(*batch, piece, channels)`` each."""
    return pixels[..., 0, :, :], pixels[..., -1, :, :], pixels[..., :, 0, :], pixels[..., :, -1, :]


class PieceConvolution(Pieces):
    """A convolution with pooling and two linear layers, as in the code of Symmetric Diffusers.

    A group norm replaces its batch norm, so that a puzzle does not depend on the others in its batch, unless
    ``batch_norm`` keeps it.
    Zhang et al., "Symmetric Diffusers: Learning Discrete Diffusion on Finite Symmetric Groups", 2025.
    """

    def __init__(
        self,
        grid: int,
        piece: int,
        width: int,
        channels: int = 3,
        *,
        batch_norm: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(grid, piece, width, channels, **options)
        self.batch_norm = batch_norm
        pooled = 32 * ((piece + 1) // 2) ** 2  # the side is halved, rounded up
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.BatchNorm2d(32) if batch_norm else nn.GroupNorm(8, 32),
            nn.ReLU(),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.Flatten(),
            nn.Linear(pooled, (pooled + width) // 2),
            nn.ReLU(),
            nn.Linear((pooled + width) // 2, width),
        )

    def tokens(self, pixels: Tensor) -> Tensor:
        rows = pixels.flatten(0, -4).movedim(-1, 1)
        return self.layers(rows).view(*pixels.shape[:-3], self.width)

    def config(self) -> dict[str, Any]:
        return super().config() | {"batch_norm": self.batch_norm}
