"""Training: one call, :func:`train`, and the parts it is made of.

``train`` assembles a run and ``loop`` runs its steps, logs, scores and checkpoints. ``step`` is one optimizer
step, eager or captured; ``optimizers`` change the weights. ``settings`` is one object for all options.
``data`` checks what is trained on and ``batches`` draws from it. ``run_folder`` and ``checkpoints`` keep the
run on disk; ``processes`` are one or several.
"""

from factorank.training.settings import TrainSettings
from factorank.training.train import TrainResult, train

__all__ = ["TrainResult", "TrainSettings", "train"]
