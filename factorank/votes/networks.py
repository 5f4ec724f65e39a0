"""Networks trained on votes: several codes tried on the same voters, and the mixture that predicts best.

:func:`train_networks` trains a small network for each of the :data:`CANDIDATES` and stops it when voters that
are held out are no longer described better. The good codes are trained again with other voters held out, and
their networks mixed with the weights that describe best the voters each has not seen. The mixture is a law
like every other: it samples, scores, and is conditioned. :func:`save_networks` and :func:`open_networks` keep
it in a folder.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from factorank.distributions import Mixture, PermutationDistribution
from factorank.errors import FactorankError, RankingsError
from factorank.files import folder_made_whole, restored
from factorank.models import PermutationModel
from factorank.models.saving import CONFIG
from factorank.reading import LARGEST_JSON, expect, read_bytes
from factorank.sealed import is_sealed, read_head, write_sealed
from factorank.training import TrainSettings, train
from factorank.votes.names import write_items
from factorank.votes.selection import KIND, SelectionModel

NETWORKS, FORMAT = "networks.json", "factorank-networks"
"""The file of a folder that holds several networks: their folders and weights; and its format."""
MUCH_WORSE = 0.25
"""Codes that need so many bits more than the best are tried in the first round only."""
LEAST_WEIGHT = 0.01
"""Networks with less than this share of the mixture are left out."""


class Candidate(NamedTuple):
    """A kind of network that is tried."""

    code: str
    how: str
    """The order in which it predicts, for people."""

    @property
    def name(self) -> str:
        """Both, as the name of a folder."""
        return f"{self.code}-{self.how.replace(' ', '-')}"

    def model(self, n: int, width: int, dropout: float) -> SelectionModel | PermutationModel:
        """The network, its weights drawn from torch's own generator."""
        if self.code == "inline":
            return SelectionModel(n, 4 * width, dropout, from_end=self.how == "worst first")
        return PermutationModel(n, self.code, "autoregressive", width, 2, 4, dropout)


CANDIDATES = (
    Candidate("inline", "best first"),
    Candidate("inline", "worst first"),
    Candidate("insertion", "item by item"),
    Candidate("lehmer", "place by place"),
)
"""Inline holds the items themselves: see :mod:`factorank.votes.selection`. The others are autoregressive."""


@dataclass
class TriedCode:
    """A candidate after its training, with a network for each round."""

    candidate: Candidate
    models: list[Any] = field(default_factory=list)
    scores: list[Tensor] = field(default_factory=list)
    """For each network the log-probabilities of the voters that its round held out."""
    steps: list[int] = field(default_factory=list)
    """At which the held-out bits of each network were lowest."""
    seconds: float = 0.0
    weight: float = 0.0
    """Its share of the mixture."""

    @property
    def bits(self) -> float:
        """Mean over all voters that were held out."""
        return float(-torch.cat(self.scores).mean()) / math.log(2)


@dataclass
class Networks:
    """The codes that were tried, best first, and the mixture of their networks."""

    tried: list[TriedCode]
    bits: float
    """Of the mixture, each network on voters that it was not trained on."""

    @property
    def members(self) -> list[tuple[str, float, Any]]:
        """The name, the weight and the model of each network in the mixture."""
        return [
            (f"{tried.candidate.name}-{number}", tried.weight / len(tried.models), model)
            for tried in self.tried
            if tried.weight > 0
            for number, model in enumerate(tried.models)
        ]

    @property
    def law(self) -> Mixture:
        """The mixture."""
        return Mixture(
            [weight for _, weight, _ in self.members], [model.distribution() for *_, model in self.members]
        )


def default_size(voters: int) -> tuple[int, float]:
    """The width and the dropout of a network for so many voters: the fewer, the smaller and the more.

    >>> default_size(4000), default_size(200_000)
    ((32, 0.3), (64, 0.1))
    """
    return (32, 0.3) if voters < 20_000 else (64, 0.1)


def check_size(n: int, voters: int, width: int | None, dropout: float | None) -> None:
    """Refuse a width or a dropout that a candidate cannot have."""
    for candidate in CANDIDATES:
        candidate.model(n, *_size(voters, width, dropout))


def train_networks(
    orders: Tensor,
    settings: TrainSettings,
    *,
    held_out: float = 0.1,
    rounds: int = 3,
    width: int | None = None,
    dropout: float | None = None,
    candidates: Sequence[Candidate] = CANDIDATES,
    watch: Callable[[TriedCode], None] | None = None,
) -> Networks:
    """Train networks of several codes on orders ``(voters, n)`` and mix them by the voters they did not see.

    Args:
        settings: of each training; ``max_seconds`` is shared out among them, ``out`` is not used.
        held_out: the share of the voters that a round holds out: a network stops when it describes them no
            better. Each round holds out other voters.
        rounds: networks of a code. All codes are tried in the first round; those that are worse than the
            best by more than a quarter bit are left out of the others, and of the mixture.
        width, dropout: of the networks; by default :func:`default_size` of the voters.
        watch: called with a code whenever a network of it has been trained.

    >>> from factorank import Mallows
    >>> votes = Mallows(torch.arange(4), 0.5).sample((300,), generator=torch.Generator().manual_seed(0))
    >>> settings = TrainSettings(steps=20, lr=3e-3, batch_size=64, device="cpu")
    >>> networks = train_networks(votes, settings, rounds=1, candidates=CANDIDATES[:2])
    >>> [tried.candidate.name for tried in networks.tried], networks.law.n
    (['inline-worst-first', 'inline-best-first'], 4)
    """
    size = _size(len(orders), width, dropout)
    parts = _folds(orders, held_out, rounds, settings.seed)
    tried = [TriedCode(candidate) for candidate in candidates]
    ends = None if settings.max_seconds is None else time.perf_counter() + settings.max_seconds
    going = list(tried)
    for number, (seen, held) in enumerate(parts):
        for at, code in enumerate(going):
            left = len(going) - at + (len(parts) - number - 1) * len(going)
            seconds = None if ends is None else max(ends - time.perf_counter(), 1.0) / left
            own = replace(settings, seed=settings.seed + number, max_seconds=seconds, out=None)
            stopped = _train_one(code, seen, held, own, size)
            if watch is not None:
                watch(code)
            if stopped == "interrupted":
                raise KeyboardInterrupt  # nothing is saved of a mixture that is not whole
        best = min(code.bits for code in going)
        going = [code for code in going if code.bits < best + MUCH_WORSE]
    scores = torch.stack([torch.cat(code.scores) for code in going], -1)
    weights = mixture_weights(scores)
    for code, weight in zip(going, weights.tolist(), strict=True):
        code.weight = weight
    mixed = (scores + weights.log()).logsumexp(-1)
    return Networks(sorted(tried, key=lambda code: code.bits), float(-mixed.mean()) / math.log(2))


def _size(voters: int, width: int | None, dropout: float | None) -> tuple[int, float]:
    usual = default_size(voters)
    return usual[0] if width is None else width, usual[1] if dropout is None else dropout


def _folds(orders: Tensor, held_out: float, rounds: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """For each round the orders to train on and those held out."""
    held = round(held_out * len(orders)) if 0 < held_out < 1 else 0
    if not 0 < held < len(orders):
        raise RankingsError(
            f"a fraction of {held_out} of {len(orders)} voters cannot be held out, but the code is chosen by"
            " voters that were; name a code, or change {parameter}",
            parameter="held_out",
        )
    order = torch.randperm(len(orders), generator=torch.Generator().manual_seed(seed))
    parts = []
    for start in range(0, min(rounds * held, len(orders) - held + 1), held):
        here = torch.zeros(len(orders), dtype=torch.bool)
        here[order[start : start + held]] = True
        parts.append((orders[~here], orders[here]))
    return parts


def _train_one(
    code: TriedCode, orders: Tensor, held: Tensor, settings: TrainSettings, size: tuple[int, float]
) -> str:
    """Add a network to those of a code; why its training ended."""
    start = time.perf_counter()
    with torch.random.fork_rng([]):
        torch.manual_seed(settings.seed)
        model = code.candidate.model(orders.shape[-1], *size)
    batch_size = min(settings.batch_size or len(orders), len(orders))
    result = train(model, orders, settings, held_out=held, batch_size=batch_size)
    model.to("cpu")
    with torch.no_grad():
        code.scores.append(model.distribution().log_prob(held).double())
    code.models.append(model)
    code.steps.append(result.held_out_step or result.steps)
    code.seconds += time.perf_counter() - start
    return result.stopped


def mixture_weights(log_probs: Tensor) -> Tensor:
    """The weights ``(laws,)`` of a mixture with the highest likelihood, by EM.

    ``log_probs (rows, laws)`` are those of the same orders under each law. Laws whose weight falls below
    :data:`LEAST_WEIGHT` are left out.

    >>> mixture_weights(torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]).log())
    tensor([0.7083, 0.2917], dtype=torch.float64)
    """
    log_probs = log_probs.double()
    weights = torch.full((log_probs.shape[-1],), 1 / log_probs.shape[-1], dtype=torch.float64)
    for _ in range(1000):
        weights = (log_probs + weights.log()).softmax(-1).mean(0)
    weights = torch.where(weights < min(LEAST_WEIGHT, float(weights.max())), 0, weights)
    return weights / weights.sum()


def save_networks(
    networks: Networks,
    folder: str | os.PathLike[str],
    facts: dict[str, Any],
    items: Sequence[str] | None = None,
) -> None:
    """Write the networks of the mixture, ``networks.json`` with ``facts``, and the names of the items; whole
    or not at all.

    ``networks.json`` vouches for itself and for what describes each network, which vouches for its weights.
    """
    with folder_made_whole(Path(folder)) as place:
        members = []
        for name, weight, model in networks.members:
            model.save_pretrained(place / name)
            members.append({"folder": name, "weight": weight, "sha256": _digest(place / name)})
        table = [
            {"code": code.candidate.name, "bits": code.bits, "weight": code.weight, "steps": code.steps}
            for code in networks.tried
        ]
        about = {"format": FORMAT, "networks": members, "bits": networks.bits, "tried": table}
        write_sealed(place, NETWORKS, about | facts, {})
        if items is not None:
            write_items(place, list(items))


def open_networks(folder: str | os.PathLike[str]) -> Mixture:
    """The mixture in a folder of :func:`save_networks`."""
    path = restored(folder)
    head = path / NETWORKS
    if not head.is_file():
        raise FactorankError(f"{path} does not hold the networks of a run: {NETWORKS} is missing")
    listed = read_head(head, FactorankError, "the networks of a run", format=FORMAT)[0].get("networks")
    expect(list[dict[str, str | float]], listed, head)
    if not listed or any(member.keys() != {"folder", "weight", "sha256"} for member in listed):
        raise FactorankError(f"{head}: a network has a folder, a weight and a checksum")
    places = [path / str(member["folder"]) for member in listed]
    for member, place in zip(listed, places, strict=True):
        if place.parent != path or not (place / CONFIG).is_file() or _digest(place) != member["sha256"]:
            raise FactorankError(f"{place}: not the network that {NETWORKS} names, or damaged")
    return Mixture([float(member["weight"]) for member in listed], list(_laws(places)))


def _digest(place: Path) -> str:
    """A checksum of what describes a model, which vouches for its weights."""
    return hashlib.sha256(read_bytes(place / CONFIG, most=LARGEST_JSON)).hexdigest()


def _laws(places: Sequence[Path]) -> Iterator[PermutationDistribution]:
    for place in places:
        own = is_sealed(place, CONFIG, format=KIND)
        yield (SelectionModel if own else PermutationModel).from_pretrained(place).distribution()
