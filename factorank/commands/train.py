"""``factorank train``: a model of rankings."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from factorank.commands._options import RankingsTable, check_least, options_for
from factorank.commands._processes import first_process, say
from factorank.commands._text import command_line, counted, table
from factorank.errors import FactorankError
from factorank.signals import exit_code

if TYPE_CHECKING:
    import torch

    from factorank.models import PermutationModel
    from factorank.training import TrainResult, TrainSettings
    from factorank.votes.networks import Networks


SINGLE = ("objective", "depth", "heads", "optimizer")
"""The options of a network of one code."""


@dataclass(kw_only=True)
class Train(RankingsTable):
    """Train networks on complete rankings: any law on them.

    By default several codes are tried, and the networks that describe held-out voters best are mixed.
    """

    code: Literal["auto", "inline", "lehmer", "left-lehmer", "fisher-yates", "insertion"] | None = None
    """What the network predicts the positions of. auto: chosen by held-out bits, with a table. By default
    auto, and lehmer if an option of a single network (objective, depth, heads, optimizer) is given."""
    objective: Literal["masked", "autoregressive"] | None = None
    """Of a single network. masked, the default: any NFE when sampling. autoregressive: one position at a
    time, with exact likelihoods."""
    width: int | None = None
    """Of the networks; by default 64, with --code auto by the number of voters."""
    depth: int | None = None
    """The blocks of a single network, by default 3."""
    heads: int | None = None
    """Its attention heads, by default 4."""
    dropout: float | None = None
    """While training; by default 0.05, with --code auto by the number of voters."""
    steps: int | None = None
    """Training steps at most; by default 2000, with --code auto 600 for each network."""
    batch_size: int = 256
    """Rankings a step, or all of them if they are fewer."""
    optimizer: Literal["adamw", "muon"] | None = None
    """Of a single network, by default adamw. muon: the matrices of the blocks by Muon, the others by
    AdamW."""
    lr: float = 2e-3
    """The highest learning rate."""
    max_seconds: float | None = None
    """Stop after this much time; with one code the same command goes on with it."""
    held_out: float = 0.1
    """The share of the voters not trained on; the weights that describe them best are kept. 0: none."""
    patience: int = 10
    """Stop after so many of the 50 held-out scores without a better one. 0: never."""
    rounds: int = 3
    """With --code auto: networks of each good code, each with other voters held out."""
    out: Path | None = None
    """The folder of the run; by default runs/train/FILE-auto or runs/train/FILE-CODE-OBJECTIVE."""

    def run(self) -> int:
        import torch

        check_least("patience", self.patience, 0)
        check_least("rounds", self.rounds)
        given = [name for name in SINGLE if getattr(self, name) is not None]
        if self.code == "auto" and given:
            fault = f"{{parameter}} is for a network of one code, which --code names; not with {self.code}"
            raise FactorankError(fault, parameter=given[0])
        generator = torch.Generator().manual_seed(self.seed)
        if self.code == "auto" or not (self.code or given or self.held_out == 0):
            return self.run_auto(generator)
        return self.run_code(self.code or "lehmer", self.objective or "masked", generator)

    def settings(self, steps: int, out: Path | None, **options: Any) -> "TrainSettings":
        """Those of a training run."""
        from factorank.training import TrainSettings

        own = options_for(self, TrainSettings) | {"out": out, "optimizer": self.optimizer or "adamw"}
        own["steps"] = steps if self.steps is None else self.steps
        own["patience"] = self.patience if self.patience and self.held_out else None
        return TrainSettings(**own | options)

    def run_auto(self, generator: "torch.Generator") -> int:
        """Try several codes and save the mixture."""
        from factorank.votes import networks, training_orders

        out = self.out or Path("runs") / "train" / f"{self.file.stem}-auto"
        if out.exists() and not (out / networks.NETWORKS).exists():
            fault = f"{out} is there already and holds no networks; choose another {{parameter}}"
            raise FactorankError(fault, parameter="out")
        settings = self.settings(600, None, ema=0.98)
        rankings = self.read(generator)
        try:
            training_orders(rankings, self.held_out, generator)  # refuses a share that leaves nothing
            orders, _ = training_orders(rankings, 0)
            networks.check_size(rankings.n, len(orders), self.width, self.dropout)
        except FactorankError as error:
            raise error.within(self.file) from None
        say(f"{self.file.name}: {counted(rankings.voters, 'ranking')} of {counted(rankings.n, 'item')}")
        say(rankings.read_as)
        trained = networks.train_networks(
            orders,
            settings,
            held_out=self.held_out,
            rounds=self.rounds,
            width=self.width,
            dropout=self.dropout,
        )
        if not first_process():
            return 0
        about = {"file": self.file.name, "command": command_line()}
        networks.save_networks(trained, out, about, rankings.items)
        print("\n" + advice(trained) + "\n")
        held = round(self.held_out * len(orders))
        mixture = f"the mixture of {counted(len(trained.members), 'network')}"
        print(f"{mixture}: {trained.bits:.3f} bits a ranking, each on the {held:,} it was not trained on")
        print(f"the uniform law: {math.lgamma(rankings.n + 1) / math.log(2):.3f}")
        print(f"saved in {out}; factorank sample {out} draws from it, factorank score {out} FILE scores")
        return 0

    def run_code(self, code: str, objective: Any, generator: "torch.Generator") -> int:
        """Train a network of one code."""
        import torch

        from factorank.models import PermutationModel
        from factorank.training import train
        from factorank.votes import training_orders, write_items

        out = self.out or Path("runs") / "train" / f"{self.file.stem}-{code}-{objective}"
        settings = self.settings(2000, out)
        rankings = self.read(generator)
        try:
            orders, held = training_orders(rankings, self.held_out, generator)
        except FactorankError as error:
            raise error.within(self.file) from None
        torch.manual_seed(self.seed)
        size = self.width or 64, self.depth or 3, self.heads or 4
        dropout = 0.05 if self.dropout is None else self.dropout
        model = PermutationModel(rankings.n, code, objective, *size, dropout)
        voters = f"{self.file.name}: {counted(rankings.voters, 'ranking')} of {counted(rankings.n, 'item')}"
        say(voters + (f", {len(held)} of them held out" if held is not None else ""))
        say(rankings.read_as)
        result = train(model, orders, settings, held_out=held, batch_size=min(self.batch_size, len(orders)))
        if not first_process():
            return 0
        write_items(out, list(rankings.items))
        print(report(model, result))
        if result.stopped in ("interrupted", "max_seconds"):
            print(f"stopped at step {result.steps} of {settings.steps}; the same command goes on from there")
        print(f"saved in {out}; factorank sample {out} draws from it, factorank score {out} FILE scores")
        return exit_code() if result.stopped == "interrupted" else 0


def advice(networks: "Networks") -> str:
    """The codes that were tried, by their held-out bits."""
    rows = [
        [
            tried.candidate.code,
            tried.candidate.how,
            f"{tried.bits:.3f}{'*' if tried is networks.tried[0] else ' '}",
            len(tried.models),
            f"{100 * tried.weight:.0f}%" if tried.weight else "–",
            f"{tried.seconds:.1f}",
        ]
        for tried in networks.tried
    ]
    return table(["code", "predicts", "bits ", "networks", "share", "seconds"], rows, "llrrrr")


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
