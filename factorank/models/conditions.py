"""What a law is conditional on, row by row, and the state of a walk that reveals codes."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from factorank.models.context import Known
from factorank.models.model import PermutationModel


@dataclasses.dataclass
class Given:
    """What a law is conditional on, for each row of its flattened batch.

    ``present (rows, n)`` is false where a list has ended, ``fixed (rows, n)`` holds known code values and -1,
    ``reference (rows, n)`` the order of the items that the code is relative to. None: nothing of the kind.
    """

    rows: int
    known: Known | None = None
    present: Tensor | None = None
    fixed: Tensor | None = None
    reference: Tensor | None = None
    first_logits: Tensor | None = None
    """What a masked model predicts before anything is revealed."""
    memory: Known | None = None
    """What an autoregressive model makes of ``known``."""

    def part(self, start: int, stop: int) -> "Given":
        """The rows from start to stop."""
        if (start, stop) == (0, self.rows):
            return self
        return self._each(stop - start, lambda tensor: tensor[start:stop])

    def expand(self, old: torch.Size, new: torch.Size) -> "Given":
        """The rows of a batch of shape ``old`` repeated to one of shape ``new``."""

        def expanded(tensor: Tensor) -> Tensor:
            own = tensor.shape[1:]
            return tensor.reshape(*old, *own).expand(*new, *own).reshape(-1, *own)

        return self._each(new.numel(), expanded)

    def _each(self, rows: int, change: Callable[[Tensor], Tensor]) -> "Given":
        known = self.known
        if known is not None:
            present = None if known.present is None else change(known.present)
            known = Known(change(known.tokens), present, known.aligned)

        def changed(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else change(tensor)

        return Given(rows, known, changed(self.present), changed(self.fixed), changed(self.reference))

    def start(self, model: PermutationModel) -> Tensor:
        """The codes ``(rows, n)`` before anything is revealed: known values, and the mask where free."""
        code = torch.full((self.rows, model.n), model.network.mask_value, device=model.network.places.device)
        if self.fixed is not None:
            code = torch.where(self.fixed >= 0, self.fixed, code)
        return code if self.present is None else torch.where(self.present, code, model.first_values)


@dataclasses.dataclass
class Step:
    """A moment on the way: codes ``(samples, rows, n)``, hidden positions at the model's ``mask_value``."""

    code: Tensor
    log_prob: Tensor
    """Of what has been revealed so far, where it was asked for."""
    nfe: Tensor
    """How many network evaluations each took so far."""


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout and the like off, for as long as the block lasts."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def last(steps: Iterator[Step]) -> Step:
    """The end of a walk; what came before is not kept."""
    for step in steps:  # noqa: B007
        pass
    return step
