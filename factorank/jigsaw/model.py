"""The untrained model of a setting, with hints or without, and the setting of a trained model."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from factorank.baselines import GumbelSinkhorn, RiffleDiffusion
from factorank.baselines.ordering import OrderingModel
from factorank.data.picture_sets import SIDE
from factorank.errors import FactorankError
from factorank.jigsaw.encoder import Encoded, PieceConvolution, PieceEncoder, Pieces
from factorank.jigsaw.puzzles import check_grid
from factorank.jigsaw.settings import JigsawSetting
from factorank.models import PermutationModel
from factorank.reading import fields_of, read_object

JigsawModel = PermutationModel | OrderingModel
"""A model of ours, or a baseline."""


class HintedModel(PermutationModel):
    r"""A jigsaw model whose loss also trains the encoder to predict the slot s of each piece:

    .. math:: -\log p(X) - h \sum_i \log q(s_i \mid \text{pieces}).

    A value of a Lehmer code counts the later pieces with smaller slots. No token can predict it before the
    slots are known, so without hints both have to be learnt at once. With hints the slots are learnt first.
    The model is saved, loaded and sampled as any other.
    """

    hints: float = 1.0
    """The weight h."""

    def loss(self, order: Tensor, context: Any = None, **randomness: Any) -> Tensor:
        assert isinstance(self.context, Pieces)
        tokens, logits = self.context.read(context)
        losses = super().loss(order, Encoded(tokens), **randomness)
        if logits is None or not self.training:
            return losses
        slot = order if self.context.direction == "slot-of-piece" else order.argsort(-1)
        slot_losses = F.cross_entropy(logits.flatten(0, -2), slot.flatten().long(), reduction="none")
        return losses + self.hints * slot_losses.view(order.shape).sum(-1)


def new_model(setting: JigsawSetting, side: int = SIDE) -> JigsawModel:
    """The untrained model of a setting, for pictures of that side; the seed decides its first weights."""
    torch.manual_seed(setting.seed)
    size = (setting.width, setting.depth_used, setting.heads, setting.dropout)
    encoder = _new_encoder(setting, side)
    if setting.method != "factorank":
        baseline = GumbelSinkhorn if setting.method == "gumbel-sinkhorn" else RiffleDiffusion
        return baseline(setting.n, encoder, *size, **setting.model_options)
    model = (HintedModel if setting.hints > 0 else PermutationModel)(
        setting.n,
        setting.code_used,
        setting.objective,
        *size,
        context=encoder,
        masks=setting.masks_used,
        norm=setting.norm,
    )
    model.padded = False  # every puzzle has all its pieces
    if isinstance(model, HintedModel):
        model.hints = setting.hints
    return model


def _new_encoder(setting: JigsawSetting, side: int) -> Pieces:
    kind, *features = setting.encoder.split("+")
    if kind not in ("mlp", "convolution") or (features and kind != "mlp"):
        raise FactorankError(
            f"the encoder is 'convolution' or 'mlp' with features joined by +, not {setting.encoder!r}",
            parameter="encoder",
        )
    ours = setting.method == "factorank"
    options: dict[str, Any] = {
        "aligned": setting.aligned or not ours,
        "direction": setting.direction_used,
        "slots": setting.code_used if ours and setting.hints > 0 else None,
        "waves": setting.norm == "after",
    }
    shape = (setting.grid, check_grid(setting.grid, side), setting.width)
    if kind == "mlp":
        return PieceEncoder(*shape, features=tuple(features), rounds=setting.rounds_used, **options)
    return PieceConvolution(*shape, batch_norm=setting.norm == "after", **options)


def pieces_of(model: JigsawModel) -> Pieces:
    """The encoder of a jigsaw model, which holds the grid and the direction of its orders."""
    encoder = model.context if isinstance(model, PermutationModel) else model.encoder
    if not isinstance(encoder, Pieces):
        raise FactorankError("this model does not solve jigsaw puzzles: its context is not of pieces")
    return encoder


def setting_of(model: JigsawModel, run: str | Path | None = None) -> JigsawSetting:
    """The setting of a trained model: from its run's ``setting.json`` or, without one, from the model."""
    path = None if run is None else Path(run) / "setting.json"
    if path is not None and path.is_file():
        names = {field.name for field in fields(JigsawSetting)}
        stored = {name: value for name, value in read_object(path).items() if name in names}
        return JigsawSetting(**fields_of(JigsawSetting, stored, path))
    if not isinstance(model, PermutationModel):
        raise FactorankError(f"{run} has no setting.json, which says how its baseline was trained")
    encoder = pieces_of(model)
    features = ["mlp", *encoder.features] if isinstance(encoder, PieceEncoder) else ["convolution"]
    shared = ("objective", "masks", "width", "depth", "heads", "dropout", "norm")
    return JigsawSetting(
        label="shipped",
        grid=encoder.grid,
        code=model.code.name,
        direction=encoder.direction,
        encoder="+".join(features),
        rounds=getattr(encoder, "rounds", 1),
        hints=float(encoder.slots is not None),
        aligned=encoder.aligned,
        **{name: getattr(model, name) for name in shared},
    )
