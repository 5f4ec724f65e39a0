"""The jigsaw experiment: settings run and scored at a tiny size, and what their rows say."""

import dataclasses
import json
import math
from functools import partial

import pytest
import torch

import factorank as fr
from factorank.experiments import jigsaw
from factorank.experiments.jigsaw import Scoring, call_of
from factorank.jigsaw import (
    PRESETS,
    Search,
    history,
    learn,
    new_model,
    puzzles_per_second,
    scrambled,
    setting,
    setting_of,
    solve_puzzles,
)
from tests.jigsaw.small import PICTURES, TINY


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Speed is measured on one small batch."""
    monkeypatch.setattr(jigsaw, "puzzles_per_second", partial(puzzles_per_second, batch_size=8, seconds=0))


def test_ablations_can_be_built_and_have_names_of_their_own():
    settings = jigsaw.ablations(**TINY)
    assert len({chosen.name for chosen in settings}) == len(settings) == 16
    for chosen in settings:
        assert new_model(chosen, 16).n == 4
        changed = {name for name, value in vars(chosen).items() if value != getattr(setting(**TINY), name)}
        assert len(changed - {"label"}) <= 2 or "convolution" in chosen.label or "no-hints" in chosen.label


@pytest.mark.parametrize("code", fr.code_names())
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_every_code_objective_and_preset_can_be_run(preset, objective, code, tmp_path):
    chosen = setting(preset, **(TINY | {"code": code, "objective": objective, "steps": 2}))
    (row,) = jigsaw.run(
        [chosen], tmp_path, Scoring(most=10), pictures=PICTURES, device="cpu", watch_every=None
    )
    assert (row["code"], row["objective"], row["grid"], row["nfe"]) == (
        *(code, objective, 2),
        1 if objective == "masked" else 4,
    )
    needed = {"experiment", "method", "unmask", "seed", "parameters", "solved", "pieces", "solved_identical"}
    needed |= {"pieces_identical", "per_second", "command", "commit", "device", "seconds", "split"}
    assert needed <= row.keys()
    assert all(not isinstance(value, dict | list) for value in row.values())
    assert row["puzzles"] == 10


def test_several_evaluations_and_beams(tmp_path):
    chosen = setting(**(TINY | {"masks": "any", "steps": 2}))
    rows = jigsaw.run(
        [chosen], tmp_path / "m", Scoring(nfes=(1, 2, 4), most=9), pictures=PICTURES, device="cpu"
    )
    assert [(row["nfe"], row["unmask"], row["beam"]) for row in rows] == [
        (k, "confident", None) for k in (1, 2, 4)
    ]
    chosen = setting(**(TINY | {"objective": "autoregressive", "steps": 2}))
    (row,) = jigsaw.run([chosen], tmp_path / "a", Scoring(beam=3, most=9), pictures=PICTURES, device="cpu")
    assert (row["nfe"], row["unmask"], row["beam"]) == (4, "left-to-right", 3)
    model = new_model(setting(**(TINY | {"objective": "autoregressive"})), 16).eval()
    pieces = scrambled(PICTURES.test, 2)[1]
    best = model.distribution(pieces).beam(24)[0][:, 0]
    assert torch.equal(solve_puzzles(model, pieces, Search(beam=24)), best)


@pytest.mark.parametrize("method", ["gumbel-sinkhorn", "riffle-diffusion"])
def test_baselines_are_run_and_scored_like_our_models(method, tmp_path):
    chosen = setting(method, **(TINY | {"steps": 2, "encoder": "mlp"}))
    assert chosen.name == f"{method}-2x2-{method}-0"
    (row,) = jigsaw.run(
        [chosen], tmp_path, Scoring(beam=4, most=9), pictures=PICTURES, device="cpu", watch_every=1
    )
    assert (row["method"], row["code"], row["objective"], row["unmask"]) == (method, None, None, None)
    assert row["direction"] == "piece-of-slot"
    assert row["nfe"] == (1 if method == "gumbel-sinkhorn" else len(new_model(chosen, 16).schedule) - 1)
    assert row["puzzles"] == 9


def test_a_run_goes_on_where_it_was_stopped_and_is_not_done_twice(tmp_path, monkeypatch):
    chosen = [setting(**(TINY | {"seed": seed, "steps": 12})) for seed in (0, 1)]
    options = {"scoring": Scoring(most=20), "pictures": PICTURES, "device": "cpu", "watch_every": 4}
    quiet = jigsaw.run(chosen, tmp_path / "quiet", **options)

    stopped = jigsaw.run(chosen, tmp_path / "stopped", max_seconds=1e-3, **options)
    assert stopped == []
    assert (tmp_path / "stopped" / chosen[0].name / "checkpoints").is_dir()
    resumed = jigsaw.run(chosen, tmp_path / "stopped", max_seconds=600, **options)
    for row, other in zip(quiet, resumed, strict=True):
        assert row["pieces"] == other["pieces"]
        weights = [tmp_path / way / folder_of(row) / "model.safetensors" for way in ("quiet", "stopped")]
        assert weights[0].read_bytes() == weights[1].read_bytes()

    def never(*arguments, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr(jigsaw, "learn", never)
    again = jigsaw.run(chosen, tmp_path / "quiet", **options)
    assert again == quiet
    lines = (tmp_path / "quiet" / "jigsaw.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == quiet
    assert [row["seed"] for row in quiet] == [0, 1]
    assert jigsaw.run(chosen[1:], tmp_path / "quiet", **options) == quiet[1:]
    lines = (tmp_path / "quiet" / "jigsaw.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == quiet  # what other calls have found stays
    with pytest.raises(fr.FactorankError, match=r"holds rows of another most; .* remove its test.jsonl"):
        jigsaw.run(chosen, tmp_path / "quiet", **(options | {"scoring": Scoring()}))


def folder_of(row):
    return f"{row['label']}-{row['grid']}x{row['grid']}-{row['code']}-{row['objective']}-{row['seed']}"


def test_training_is_watched_and_the_time_to_90_percent_found(tmp_path, monkeypatch):
    chosen = setting(**TINY)
    (row,) = jigsaw.run([chosen], tmp_path, Scoring(most=20), pictures=PICTURES, device="cpu", watch_every=5)
    lines = history(tmp_path / chosen.name)
    watched = [line for line in lines if "solved" in line]
    assert [line["step"] for line in watched] == [5, 10, 15, 20]
    assert all(0 <= line["solved"] <= line["pieces"] <= 1 for line in watched)
    assert row["seconds_to_90"] is None
    assert row["trained_steps"] == 20
    path = tmp_path / chosen.name / "metrics.jsonl"
    path.write_text('{"step": 1, "seconds": 2.5, "solved": 0.91}\n{"step": 2, "seco')
    assert history(tmp_path / chosen.name) == [{"step": 1, "seconds": 2.5, "solved": 0.91}]


def test_a_folder_of_another_setting_is_refused(tmp_path):
    learn(setting(**(TINY | {"steps": 2})), PICTURES, tmp_path, device="cpu", watch_every=None)
    with pytest.raises(fr.FactorankError, match=r"holds a run with another lr, steps; .* lr=0.005, steps=2"):
        learn(setting(**(TINY | {"steps": 3, "lr": 1.0})), PICTURES, tmp_path, device="cpu")
    chosen = setting(**TINY)
    with pytest.raises(
        fr.FactorankError, match="two settings have the name default-2x2-lehmer-masked-0; give"
    ):
        jigsaw.run([chosen, chosen], tmp_path, pictures=PICTURES)
    with pytest.raises(fr.FactorankError, match="of the 'test' or the 'held_out' split, not 'train'"):
        Scoring(split="train")


def test_the_optimizers(tmp_path):
    """Rows, commands and the files of a run say which it was."""
    how = {"scoring": Scoring(most=9), "pictures": PICTURES, "device": "cpu", "watch_every": None}
    for name, lr, option in (("muon", 5e-3, ""), ("adamw", 2e-3, ", optimizer='adamw'")):
        chosen = setting(**(TINY | {"steps": 2, "optimizer": name, "label": name}))
        (row,) = jigsaw.run([chosen], tmp_path, **how)
        assert (row["optimizer"], row["lr"]) == (name, lr)
        assert f", batch_size=32{option}, warmup=5," in row["command"]
        place = tmp_path / chosen.name
        assert json.loads((place / "training.json").read_text()).get("optimizer", "adamw") == name
        assert setting_of(new_model(chosen, 16), place) == chosen.filled()
    old = setting(**(TINY | {"steps": 2, "optimizer": "adamw"}))
    learn(old, PICTURES, tmp_path / "old", device="cpu", watch_every=None)
    refused = r"a run with another optimizer, lr; .* optimizer='adamw', lr=0.002"
    with pytest.raises(fr.FactorankError, match=refused):
        learn(dataclasses.replace(old, optimizer="muon"), PICTURES, tmp_path / "old", device="cpu")


@pytest.mark.parametrize(
    "chosen",
    [
        setting(),
        setting("paper", grid=4, lr=1e-3),
        setting(ties=False, label="no-ties"),
        setting("riffle-diffusion", label="riffle-slow", model_options={"schedule": [0, 2, 5]}),
    ],
)
@pytest.mark.parametrize("scoring", [Scoring(), Scoring(nfes=(1, 4), most=100)])
def test_rows_say_the_call_that_makes_them(chosen, scoring):
    call = call_of(chosen, scoring, watch_every=5).removeprefix("factorank.experiments.jigsaw.")
    usual = Scoring()
    names = {"run": lambda settings, out, scoring=usual, **options: (settings, scoring, options)}
    names |= {"setting": setting, "Scoring": Scoring, "out": 0}
    assert eval(call, names) == ([chosen], scoring, {"watch_every": 5})


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("preset", PRESETS)
def test_the_whole_step_is_captured_on_a_gpu(preset, compile, tmp_path):
    """Making the puzzles is part of the graph: capture=True is an error if anything in it cannot be."""
    chosen = setting(preset, **(TINY | {"steps": 8, "augment": "crop+flip+light", "width": 32}))
    model, result = learn(
        chosen, PICTURES, tmp_path, device="cuda", capture=True, compile=compile, watch_every=4
    )
    assert result.steps == 8
    assert math.isfinite(result.loss)
    (row,) = jigsaw.score(chosen, model, PICTURES.test, Scoring(beam=2))
    assert row["puzzles"] == 80
