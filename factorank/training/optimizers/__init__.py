"""What changes the weights, and which of it a run uses."""

import torch
from torch import nn

from factorank.kernels import dispatch
from factorank.training.optimizers.adamw import TorchUpdate, trained_weights
from factorank.training.optimizers.average import Average
from factorank.training.optimizers.fused import FusedUpdate
from factorank.training.optimizers.muon import Muon, hidden_matrices
from factorank.training.optimizers.own import OwnUpdate
from factorank.training.settings import TrainSettings

Update = TorchUpdate | FusedUpdate


def make_update(
    model: nn.Module,
    device: torch.device,
    settings: TrainSettings,
    average: Average | None,
    *,
    captured: bool,
    alone: bool,
) -> Update:
    """The user's, Muon, AdamW as one kernel where that runs, or torch's; ``captured`` for a CUDA graph."""
    named = trained_weights(model)
    if not isinstance(settings.optimizer, str):
        return OwnUpdate(named, settings, average, model)
    if settings.optimizer == "muon":
        return Muon(named, hidden_matrices(model), device, settings, average, capturable=captured)
    if dispatch.fuses_update([weight for _, weight in named], captured=captured, alone=alone):
        return FusedUpdate(named, device, settings, average)
    return TorchUpdate(named, device, settings, average, capturable=captured)
