"""Training: one call, :func:`train`, and the parts it is made of.

``loop`` assembles a run and ``engine`` drives it; ``step`` is one optimizer step, eager or captured;
``update`` (AdamW) and ``muon`` change the weights; ``data`` draws batches; ``checkpoints`` and ``folder``
keep the run on disk; ``world`` is the processes.
"""

from factorank.training.loop import TrainResult, train

__all__ = ["TrainResult", "train"]
