"""How a law reveals its positions: what may be asked for, checked."""

import dataclasses
import itertools
import numbers
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from factorank.errors import ModelError
from factorank.permutations import cannot_check, whole_number
from factorank.sampling.categorical import tempered
from factorank.sampling.partitions import Blocks

if TYPE_CHECKING:
    from factorank.models.conditions import Conditions
    from factorank.models.model import PermutationModel

SCHEDULES = ("equal", "growing")
TEMPERATURES = (1e-30, 1e30)
"""What logits are divided by: float32 has room for it on either side."""
UNMASK = ("random", "left-to-right", "right-to-left", "confident")
"""The orders in which a masked model can reveal its positions."""
LEARNT = {"suffix": "left-to-right", "prefix": "right-to-left"}
"""The only one that models with some masks have learnt."""


@dataclasses.dataclass
class Step:
    """The state of a walk that reveals codes ``(samples, rows, n)``; hidden positions hold ``mask_value``."""

    code: Tensor
    log_prob: Tensor
    """Of what has been revealed so far, where it was asked for."""
    nfe: Tensor
    """How many network evaluations each code took so far."""


def last(steps: Iterator[Step]) -> Step:
    """The end of a walk; what came before is not kept."""
    for step in steps:  # noqa: B007
        pass
    return step


@dataclasses.dataclass(frozen=True)
class Unmasking:
    """How a law reveals its positions, and what is done with the predictions first."""

    unmask: str
    blocks: Blocks | None = None
    """None: as many blocks as the entropy bound allows."""
    entropy_bound: float | None = None
    order: tuple[int, ...] | None = None
    """The positions in the order of revealing, where a partition was given."""
    temperature: float = 1.0
    top_p: float = 1.0
    remask: int = 0
    """How many times the values that were drawn with the least probability are drawn anew."""

    @property
    def shown(self) -> dict[str, Any]:
        """What a law shows of it: the NFE and the order of revealing, and what is not as usual."""
        blocks = self.blocks
        shown: dict[str, Any] = {"nfe": self.nfe, "unmask": self.unmask}
        if blocks is not None and blocks.sizes is not None:
            shown["nfe"] = list(blocks.sizes)
            if self.order is not None:
                ends = list(itertools.accumulate(blocks.sizes))
                cut = zip([0, *ends], ends, strict=False)
                shown = {"partition": [list(self.order[start:end]) for start, end in cut]}
        elif blocks is not None and blocks.schedule != "equal":
            shown["schedule"] = blocks.schedule
        usual = {"entropy_bound": None, "temperature": 1, "top_p": 1, "remask": 0}
        return shown | {name: getattr(self, name) for name in usual if getattr(self, name) != usual[name]}

    @property
    def no_log_prob(self) -> str:
        """Why the law has no log_prob."""
        if self.remask:
            return "with remask an order's probability is a sum over all that was drawn before: no log_prob"
        return (
            f"unmask='random' at nfe={self.nfe} is a mixture over all partitions, whose log_prob has no"
            " feasible exact value; use log_prob_bound or log_prob_estimate, or another way of unmasking"
        )

    @property
    def nfe(self) -> int | None:
        return None if self.blocks is None else self.blocks.nfe

    def temper(self, logits: Tensor) -> Tensor:
        """The logits of the law's conditionals, from those of the network; on the CPU NaN is refused."""
        if logits.device.type == "cpu" and not cannot_check(logits) and bool(logits.isnan().any()):
            raise ModelError(
                "the network predicts NaN, of which nothing can be drawn: its weights or the context hold"
                " NaN or infinite numbers, or training has diverged"
            )
        return tempered(logits, self.temperature, self.top_p)


def checked_unmasking(
    model: "PermutationModel",
    nfe: int | Sequence[int] | None,
    unmask: str | None = None,
    entropy_bound: float | None = None,
    schedule: str | None = None,
    partition: Sequence[Sequence[int]] | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    remask: int = 0,
) -> Unmasking:
    """What was asked for, with the defaults filled in; what the model has not learnt is refused."""
    nfe, partition = _plain_numbers(nfe), _plain_numbers(partition)
    _check_within("temperature", temperature, *TEMPERATURES, "above 0, from 1e-30 to 1e30")
    _check_within("top_p", top_p, 0.0, 1.0, "above 0 and at most 1")
    rounds = whole_number(remask)
    tempered: dict[str, Any] = {"temperature": float(temperature), "top_p": float(top_p), "remask": rounds}
    if rounds < 0:
        raise ModelError(f"{{parameter}} is a whole number of rounds, not {remask!r}", parameter="remask")
    listed = nfe if partition is None else partition
    one_block = len(listed) == 1 if isinstance(listed, list | tuple) else nfe == 1
    if rounds and (model.causal or model.masks != "any" or one_block or entropy_bound is not None):
        raise ModelError(
            "{parameter} is for masked models with masks='any', and blocks of at least 2 evaluations",
            parameter="remask",
        )
    if unmask is not None and unmask not in UNMASK:
        raise ModelError(f"{{parameter}} is one of {', '.join(UNMASK)}, not {unmask!r}", parameter="unmask")
    if schedule is not None and schedule not in SCHEDULES:
        raise ModelError(
            f"{{parameter}} is one of {', '.join(SCHEDULES)}, not {schedule!r}", parameter="schedule"
        )
    if model.causal:
        options: dict[str, Any] = {"nfe": nfe, "unmask": unmask, "entropy_bound": entropy_bound}
        options |= {"schedule": schedule, "partition": partition}
        allowed: dict[str, Any] = {"nfe": model.n, "unmask": "left-to-right"}
        for name, value in options.items():
            if value is not None and value != allowed.get(name):
                raise ModelError(
                    f"an autoregressive model reveals its positions left to right, one at a time:"
                    f" nfe={model.n}, unmask='left-to-right' and no entropy_bound;"
                    f" {{parameter={value!r}}} needs a masked model",
                    parameter=name,
                )
        return Unmasking("left-to-right", Blocks(model.n), **tempered)
    order = None
    if partition is not None:
        if not (nfe is None and unmask is None and entropy_bound is None and schedule is None):
            raise ModelError(
                "{parameter} says which positions are revealed together and when: it stands alone",
                parameter="partition",
            )
        partition = _checked_partition(partition, model.n)
        order = tuple(position for positions in partition for position in positions)
        nfe, unmask = [len(positions) for positions in partition], "left-to-right"
    nfe, sizes = _checked_nfe(nfe, model.n)
    if sizes is not None and schedule is not None:
        raise ModelError(
            "{parameter} makes the sizes of the blocks, but these were given", parameter="schedule"
        )
    if model.masks == "all":
        if nfe not in (None, 1) or entropy_bound is not None:
            raise ModelError(
                "a model with masks='all' has learnt 1 NFE only; masks='any' learns every other",
                parameter="nfe",
            )
        return Unmasking(unmask or "random", Blocks(1), **tempered)
    if model.masks in LEARNT and nfe != 1:
        only, backward = LEARNT[model.masks], model.masks == "prefix"
        listed = [at for positions in partition or () for at in sorted(positions, reverse=backward)]
        ordered = listed == sorted(order or (), reverse=backward)
        if not ordered or (order is None and unmask not in (None, only)):
            asked = f"{{parameter={unmask!r}}}" if order is None else f"the {{parameter}} {partition!r}"
            raise ModelError(
                f"a model with masks={model.masks!r} has learnt to reveal {only.replace('-', ' ')}; {asked}"
                " needs masks='any'",
                parameter="unmask" if order is None else "partition",
            )
        unmask = only if order is None else unmask
    if entropy_bound is None:
        blocks = Blocks(model.n if nfe is None else nfe, schedule or "equal", sizes)
        return Unmasking(unmask or "random", blocks, None, order, **tempered)
    for name, value in {"nfe": nfe, "schedule": schedule}.items():
        if value is not None:
            raise ModelError(
                f"with an entropy_bound the NFE is what it takes, but {{parameter={value!r}}} was given too",
                parameter=name,
            )
    real = isinstance(entropy_bound, numbers.Real) and not isinstance(entropy_bound, bool)
    if unmask == "random" or not real or not entropy_bound >= 0:  # which NaN is not either
        raise ModelError(
            "an entropy_bound is 0 or more nats and goes with unmask='confident' (the default with it),"
            f" 'left-to-right' or 'right-to-left', but {entropy_bound=} and {unmask=} were given"
        )
    return Unmasking(unmask or "confident", None, float(entropy_bound), **tempered)


def fitting(unmasking: Unmasking, free: Tensor, count: int | Tensor) -> Unmasking:
    """No more blocks than there are free positions ``(rows, n)``; sizes and a partition must cover them.

    ``count`` of them are free, in every row or in each of ``(rows,)``.
    """
    blocks = unmasking.blocks
    if blocks is None:
        return unmasking
    if blocks.sizes is None:
        most = free.shape[-1] if isinstance(count, Tensor) else count
        if isinstance(count, Tensor) and not cannot_check(count):
            most = int(count.max()) if count.numel() else 0
        blocks = dataclasses.replace(blocks, nfe=max(1, min(blocks.nfe, most)))
        remask = unmasking.remask if blocks.nfe > 1 else 0  # one block has nothing to be doubted by
        return dataclasses.replace(unmasking, blocks=blocks, remask=remask)
    if unmasking.order is None:
        blocks.check(count)
    elif len(free):
        given = torch.zeros_like(free[0])
        given[list(unmasking.order)] = True
        if not bool((free == given).all()):
            row = int((free != given).any(-1).int().argmax())
            raise ModelError(
                "{parameter} lists every free position, those that are not fixed and have more than one"
                f" possible value, which are {free[row].nonzero().flatten().tolist()}, not"
                f" {sorted(unmasking.order)}",
                parameter="partition",
            )
    return unmasking


def checked_beam(width: int | None, default: int) -> int:
    """How many codes a search keeps."""
    if width is None:
        return default
    if (number := whole_number(width)) < 1:
        raise ModelError(f"a beam keeps at least 1 order, a whole number, not {width!r}", parameter="beam")
    return number


def _check_within(name: str, value: Any, least: float, most: float, allowed: str) -> None:
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not least <= value <= most or value == 0:  # which NaN is not either
        raise ModelError(f"{{parameter}} is a number {allowed}, not {value!r}", parameter=name)


def _plain_numbers(given: Any) -> Any:
    """Whole numbers of other libraries, and arrays of them, as ints and lists of ints; all else as it is."""
    if isinstance(given, np.ndarray | Tensor) and given.ndim:
        given = given.tolist()
    if isinstance(given, list | tuple | range):
        return [_plain_numbers(each) for each in given]
    return number if (number := whole_number(given)) >= 0 else given


def _checked_nfe(nfe: Any, n: int) -> tuple[int | None, tuple[int, ...] | None]:
    """How many blocks there are, and their sizes if these are what was given."""
    if nfe is None:
        return None, None
    sizes = tuple(nfe) if isinstance(nfe, list | tuple) else None
    counts = [nfe] if sizes is None else [*sizes, len(sizes)]
    if any(isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= n for count in counts):
        raise ModelError(
            f"the model has {n} positions, so {{parameter}} is a whole number from 1 to {n}, not {nfe!r};"
            " or a list of such numbers, the sizes of the blocks",
            parameter="nfe",
        )
    return counts[-1], sizes


def _checked_partition(partition: Any, n: int) -> list[list[int]]:
    lists = isinstance(partition, list) and len(partition) > 0
    lists = lists and all(isinstance(block, list) and len(block) for block in partition)
    order = [position for block in partition for position in block] if lists else []
    inside = all(0 <= whole_number(position) < n for position in order)
    if not (lists and inside) or len(set(order)) < len(order):
        raise ModelError(
            f"{{parameter}} lists blocks of different positions 0..{n - 1}, each once, not {partition!r}",
            parameter="partition",
        )
    listed: list[list[int]] = partition
    return listed


def first_logits(model: "PermutationModel", conditions: "Conditions") -> Tensor:
    """What a masked model predicts, ``(rows, n, values)``, before anything is revealed.

    All samples of a row are alike then: one evaluation serves them, and is kept.
    """
    if conditions.first_logits is None:
        hidden = model.network.hidden(conditions.start(model), conditions.context, conditions.present)
        conditions.first_logits = model.network.head(hidden)
    return conditions.first_logits


def logits_at(
    model: "PermutationModel", conditions: "Conditions", code: Tensor, positions: Tensor | None
) -> Tensor:
    """What a masked model predicts at positions ``(samples, rows, some)`` of codes, all if None.

    Samples of one context that agree so far are evaluated once on the CPU: of a law with few likely orders
    these are most.
    """
    back = None
    alone = conditions.rows == 1 and code.device.type == "cpu" and not torch.is_grad_enabled()
    if alone and len(code) > 1 and not cannot_check(code):
        asked = code if positions is None else torch.cat([code, positions.expand(len(code), 1, -1)], -1)
        asked, back = asked.unique(dim=0, return_inverse=True)
        code, positions = asked[..., : model.n], None if positions is None else asked[..., model.n :]
    hidden = model.network.hidden(code, conditions.context, conditions.present, positions)
    logits = model.network.head(hidden, positions)
    return logits if back is None else logits[back]
