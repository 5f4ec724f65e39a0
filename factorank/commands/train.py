"""``factorank train``: a model of rankings."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from factorank.commands._options import RankingsTable, options_for
from factorank.commands._processes import first_process, say
from factorank.commands._text import counted
from factorank.errors import FactorankError

if TYPE_CHECKING:
    from factorank.models import PermutationModel
    from factorank.training import TrainResult


@dataclass(kw_only=True)
class Train(RankingsTable):
    """Train a model on complete rankings: any law on them, sampled at any number of evaluations."""

    code: Literal["inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"] = "lehmer"
    """What the model predicts the positions of."""
    objective: Literal["masked", "autoregressive"] = "masked"
    """masked: any NFE when sampling. autoregressive: one position at a time, with exact likelihoods."""
    width: int = 64
    """Of the transformer."""
    depth: int = 3
    """Its blocks."""
    heads: int = 4
    """Its attention heads."""
    dropout: float = 0.05
    """While training."""
    steps: int = 2000
    """Training steps."""
    batch_size: int = 256
    """Rankings a step, or all of them if they are fewer."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon: the matrices of the blocks by Muon, the other weights by AdamW."""
    lr: float = 2e-3
    """The highest learning rate."""
    max_seconds: float | None = None
    """Stop after this much time; the same command goes on with it."""
    held_out: float = 0.1
    """The share of the voters not trained on; the weights that describe them best are kept. 0: none."""
    patience: int | None = None
    """Stop after so many of the 50 held-out scores without a better one."""
    out: Path | None = None
    """The folder of the run; by default runs/train/FILE-CODE-OBJECTIVE."""

    def run(self) -> int:
        import torch

        from factorank.models import PermutationModel
        from factorank.training import TrainSettings, train
        from factorank.votes import training_orders, write_items

        out = self.out or Path("runs") / "train" / f"{self.file.stem}-{self.code}-{self.objective}"
        settings = TrainSettings(**options_for(self, TrainSettings) | {"out": out})
        generator = torch.Generator().manual_seed(self.seed)
        rankings = self.read(generator)
        try:
            orders, held = training_orders(rankings, self.held_out, generator)
        except FactorankError as error:
            raise error.within(self.file) from None
        torch.manual_seed(self.seed)
        model = PermutationModel(
            rankings.n, self.code, self.objective, self.width, self.depth, self.heads, self.dropout
        )
        voters = f"{self.file.name}: {counted(rankings.voters, 'ranking')} of {counted(rankings.n, 'item')}"
        say(voters + (f", {len(held)} of them held out" if held is not None else ""))
        say(rankings.read_as)
        result = train(model, orders, settings, held_out=held, batch_size=min(self.batch_size, len(orders)))
        if not first_process():
            return 0
        write_items(out, list(rankings.items))
        print(report(model, result))
        if result.stopped in ("interrupted", "max_seconds"):
            print(f"stopped at step {result.steps} of {self.steps}; the same command goes on from there")
        print(f"saved in {out}; factorank sample {out} draws from it, factorank score {out} FILE scores")
        return 130 if result.stopped == "interrupted" else 0


def report(model: "PermutationModel", result: "TrainResult") -> str:
    """The model that was trained, and the bits it needs for a ranking."""
    weights = sum(weight.numel() for weight in model.parameters())
    steps = f"{counted(result.steps, 'step')} in {result.seconds:.1f} s"
    at_most = "" if model.causal else "at most "  # the masked loss is a bound
    nats, which = result.loss, "ranking of those trained on"
    if result.held_out is not None:
        nats, which = result.held_out, f"held-out ranking, at step {result.held_out_step}"
    return (
        f"{model.code.name} code, {model.objective}, {weights:,} weights: {steps}\n"
        f"{at_most}{nats / math.log(2):.3f} bits a {which};"
        f" the uniform law: {math.lgamma(model.n + 1) / math.log(2):.3f}"
    )
