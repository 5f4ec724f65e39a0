"""The folders and sealed files that the library reads: how one is made, and all that is read of it."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import factorank as fr
from benchmarks.campaign import facts
from benchmarks.campaign import ingredients as made
from benchmarks.campaign.damage import Kind
from factorank.data import picture_sets
from factorank.data.ratings import Ratings
from factorank.jigsaw import PhotographModel
from factorank.training import checkpoints

Make = Callable[[Path], Any]
HERE = Path(fr.__file__).parent / "weights"


def _weights_of(model: Any) -> Any:
    return {name: weight.tolist() for name, weight in model.state_dict().items()}


def _sums_of(model: Any) -> Any:
    """Of a large model, whose weights as lists would take long to compare."""
    return {name: (weight.dtype, weight.double().sum().item()) for name, weight in model.state_dict().items()}


def _law_facts(path: Path) -> Any:
    law: Any = fr.load_law(path)
    return repr(law), fr.law_items(path), law.log_prob(made.orders()).tolist(), repr(law.report)


def _saved(law: Callable[[], Any]) -> tuple[Make, Callable[[Path], Any]]:
    return lambda p: fr.save_law(law(), p / "law", items=list("abcd")), lambda p: _law_facts(p / "law")


def _mixture() -> Any:
    return fr.Mixture([0.3, 0.7], [fr.Mallows([0, 1, 2, 3], 0.5), fr.PlackettLuce(torch.arange(4.0))])


def _with_context() -> fr.PermutationModel:
    torch.manual_seed(0)
    return fr.PermutationModel(4, "insertion", width=8, depth=1, heads=1, context=fr.ItemContext(5, 8))


def _model_facts(path: Path) -> Any:
    model = fr.PermutationModel.from_pretrained(path)
    return model.config(), _weights_of(model)


def _checkpoint(path: Path) -> None:
    tensors = {"weights": {"w": torch.arange(3.0)}, "optimizer": {"m": torch.ones(3)}}
    checkpoints.write(path, checkpoints.Checkpoint(4, tensors, {"seconds": 1.5}))


def _checkpoint_facts(path: Path) -> Any:
    held = checkpoints.read(path / "4")
    return held.step, held.state, {name: str(tensors) for name, tensors in held.tensors.items()}


def _trained(path: Path) -> Any:
    """Training goes on with the newest whole checkpoint, and comes to the same weights."""
    model = made.model()
    result = fr.train(
        model, made.orders(), steps=4, checkpoint_every=2, batch_size=8, device="cpu", out=path / "run"
    )
    return result.steps, _weights_of(model)


def _card(path: Path) -> str:
    from factorank.hub import model_card

    return model_card("me/mine", made.model().config(), 10, path / "run")


@cache
def _ranker() -> fr.Ranker:
    return made.ranker()


def _run_of_ranker(path: Path) -> None:
    from factorank.rerank.users import save_users

    _ranker().save(path)
    save_users(path, {"train": made.ratings(12), "test": made.ratings(10, 1)})


def _networks(path: Path) -> None:
    from factorank.votes import networks

    settings = fr.TrainSettings(steps=2, lr=3e-3, batch_size=8, device="cpu")
    options = {"rounds": 1, "width": 8, "candidates": networks.CANDIDATES[1:3]}
    trained = networks.train_networks(made.orders(), settings, held_out=0.2, **options)  # type: ignore[arg-type]
    networks.save_networks(trained, path / "run", {"file": "votes.soc"})
    fr.votes.write_items(path / "run", ["ann", "bob", "cat", "dan"])


def _opened(path: Path) -> Any:
    law, items = fr.votes.open_law(path)
    return items, law.log_prob(made.orders()).tolist()


def _named_model(path: Path) -> None:
    torch.manual_seed(0)
    fr.PermutationModel(4, "lehmer", "autoregressive", width=8, depth=1, heads=1).save_pretrained(path)
    fr.votes.write_items(path, ["ann", "bob", "cat", "dan"])


def _copied(name: str) -> Make:
    return lambda p: [shutil.copy(file, p) for file in (HERE / name).iterdir() if file.suffix != ".onnx"]


def _sorter(path: Path) -> Any:
    from factorank.experiments.number_sorter import NumberSorter

    model = NumberSorter.from_pretrained(path / "sorter")
    return model.method, _sums_of(model)


def _baseline(path: Path) -> None:
    from factorank.baselines import GumbelSinkhorn

    torch.manual_seed(0)
    GumbelSinkhorn(4, fr.ItemContext(5, 8), width=8, depth=1, heads=1).save_pretrained(path)


def _baseline_facts(path: Path) -> Any:
    from factorank.baselines.ordering import OrderingModel

    model = OrderingModel.from_pretrained(path)
    return model.config(), _weights_of(model)


def _digit_facts(path: Path) -> Any:
    from factorank.data.digits import mnist

    with made.known_digits():
        return [(part.pixels.tolist(), part.labels.tolist()) for part in mnist(path)]


def _cifar() -> dict[str, bytes]:
    chance = np.random.default_rng(0)
    return {
        name: chance.integers(0, 256, 4 * 3073, dtype=np.uint8).tobytes()
        for name in picture_sets.CIFAR10.files
    }


def _write_cifar(path: Path) -> None:
    (path / "cifar-10-batches-bin").mkdir()
    for name, data in _cifar().items():
        (path / "cifar-10-batches-bin" / name).write_bytes(data)


def _cifar_facts(path: Path) -> Any:
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in _cifar().items()}
    known = replace(picture_sets.CIFAR10, files=sums, url=(path / "nothing").as_uri())
    with mock.patch.object(picture_sets, "CIFAR10", known):
        return picture_sets.cifar10(path, held_out=5).fingerprint


def _download_facts(path: Path) -> Any:
    from factorank.data.downloads import find

    place = find(made.published(path), path / "data")
    return {name: (place / name).read_bytes() for name in made.THINGS}


def _puzzle_run(path: Path) -> None:
    from factorank.jigsaw import setting
    from factorank.jigsaw.training import begin_run

    made.INGREDIENTS["puzzles"](path)
    begin_run(
        path / "puzzles",
        setting("default", grid=2, width=16, depth=1, heads=2, steps=3),
        None,
        made.pictures(),
    )
    (path / "puzzles" / "metrics.jsonl").write_text('{"step": 1, "seconds": 0.5, "solved": 0.1}\n' * 2)


def _puzzle_facts(path: Path) -> Any:
    from factorank.jigsaw import load, setting_of
    from factorank.jigsaw.training import history

    model = load(None, path / "puzzles")
    return str(setting_of(model, path / "puzzles")), history(path / "puzzles"), _sums_of(model)


def _cached_facts(path: Path) -> Any:
    return facts.users(fr.load_ratings(path / "table.csv", cache=path / "cache"))


def _answers(path: Path) -> Any:
    from factorank.rerank.streaming import predict_table

    return list(predict_table(_ranker(), path / "users.parquet", path / "out", k=2, rows=6))


def _made_answers(path: Path) -> None:
    made.INGREDIENTS["users.parquet"](path)
    _answers(path)
    for part in (path / "out").glob("*.parquet"):
        part.write_bytes(b"")  # a part that is there is not read


def _answered(path: Path) -> Any:
    with tempfile.TemporaryDirectory() as out:
        (path / "out").symlink_to(out)
        _answers(path)
        return facts.answers(Path(out))


def _rows_of(path: Path) -> Any:
    from factorank.experiments.record import measured_already
    from factorank.files import read_json_lines

    return measured_already(path, {"lists": 5, "setting": {"n": 3}}), read_json_lines(path / "rows.jsonl")


def _write_rows(path: Path) -> None:
    (path / "rows.json").write_text(json.dumps({"lists": 5, "setting": {"n": 3}}))
    (path / "rows.jsonl").write_text('{"n": 3, "seconds": 1.5}\n{"n": 4, "kl": null}\n')


def _saved_ratings(path: Path) -> None:
    made.ratings(6).save(path / "r.safetensors")


def _kept(path: Path) -> None:
    made.INGREDIENTS["table.csv"](path)
    _cached_facts(path)


SEALED = [
    Kind("law", *_saved(lambda: fr.Mallows.fit(made.orders())), True),
    Kind("law mixture", *_saved(_mixture), True),
    Kind("law RIM", *_saved(lambda: fr.RIM.fit(made.orders())), True),
    Kind("model", lambda p: _with_context().save_pretrained(p), _model_facts, True),
    Kind("model with items", _named_model, _opened, True),
    Kind("networks", _networks, lambda p: _opened(p / "run"), True),
    Kind("checkpoint", _checkpoint, _checkpoint_facts, True),
    Kind("run", _trained, _trained, True),
    Kind("ranker", _run_of_ranker, facts.ranker_of, True),
    Kind("ratings", _saved_ratings, lambda p: facts.users(Ratings.load(p / "r.safetensors")), True),
    Kind(
        "model for photographs",
        _copied("photographs"),
        lambda p: _sums_of(PhotographModel.load(p).network),
        True,
    ),
    Kind("model for letters", _copied("unscramble"), lambda p: _sums_of(fr.unscramble.load(p)), True),
    Kind("model for puzzles", _copied("jigsaw/2x2"), lambda p: _sums_of(fr.jigsaw.load(2, p)), True),
    Kind("model for numbers", made.INGREDIENTS["sorter"], _sorter, True),
    Kind("baseline", _baseline, _baseline_facts, True),
    Kind("digits", made.write_digits, _digit_facts, True),
    Kind("CIFAR-10", _write_cifar, _cifar_facts, True),
    Kind("download", made.write_archive, _download_facts, True),
]
OTHERS = [
    Kind("ratings in a cache", _kept, _cached_facts, False),
    Kind("run of puzzles", _puzzle_run, _puzzle_facts, False),
    Kind("card of a run", _trained, _card, False),
    Kind("answers for users", _made_answers, _answers, False),
    Kind("table of users", made.INGREDIENTS["users.parquet"], _answered, False),
    Kind("rows of results", _write_rows, _rows_of, False),
]
FOLDERS = [*SEALED, *OTHERS]
