"""The jigsaw experiment: scores against brute force, training and resuming at a tiny size."""

import dataclasses
import itertools
import json
import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binomtest

import factorank as fr
from factorank.experiments import jigsaw
from factorank.experiments.jigsaw_rows import command_of
from factorank.jigsaw.puzzles import Pictures, Puzzles, cut, join, scrambled
from factorank.jigsaw.scores import Scores, pieces_alike, wilson
from factorank.jigsaw.settings import build, filled, setting, setting_of
from factorank.jigsaw.solving import evaluate, puzzles_per_second, solve
from factorank.kernels import dispatch

TINY = {"grid": 2, "width": 16, "depth": 1, "heads": 2, "batch_size": 32, "warmup": 5, "steps": 20}


def fields(count, side=16, seed=0):
    """Smooth random pictures that get redder to the right and greener downwards."""
    coarse = torch.rand((count, 3, 5, 5), generator=torch.Generator().manual_seed(seed)) / 2
    ramp = torch.linspace(0, 0.5, 5)
    coarse += torch.stack([ramp.expand(5, 5), ramp[:, None].expand(5, 5), torch.zeros(5, 5)])
    smooth = F.interpolate(coarse, size=(side, side), mode="bicubic", align_corners=True)
    return (255 * smooth).round().clamp(0, 255).to(torch.uint8).movedim(1, -1).contiguous()


PICTURES = Pictures(fields(400), fields(60, seed=1), fields(80, seed=2))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Speed is measured on one small batch."""
    monkeypatch.setattr(jigsaw, "puzzles_per_second", partial(puzzles_per_second, batch_size=8, seconds=0))


# Scores.


@pytest.mark.parametrize("direction", ["slot-of-piece", "piece-of-slot"])
def test_scores_against_brute_force(direction):
    """Pieces of few colours, so that many are identical, and guesses of which some are no permutations."""
    generator = torch.Generator().manual_seed(0)
    pieces = torch.randint(2, (300, 4, 1, 1, 1), generator=generator)
    order = fr.random_permutations(4, (300,), generator=generator)
    found = order.clone()
    change = torch.randint(4, (300, 2), generator=generator)
    rows = torch.arange(300)
    found[rows, change[:, 0]] = order[rows, change[:, 1]]
    found[::2, :] = fr.random_permutations(4, (150,), generator=generator)
    scores = Scores()
    for part in (slice(0, 77), slice(77, 300)):
        scores.add(order[part], found[part], pieces[part], direction)
    summary = scores.summary()

    solved = identical = right = alike = 0
    for truth, guess, shown in zip(order.tolist(), found.tolist(), pieces.flatten(1).tolist(), strict=True):
        right += sum(a == b for a, b in zip(truth, guess, strict=True))
        solved += truth == guess
        picture = [0] * 4  # what the true picture shows in each slot
        for entry, value in enumerate(truth):
            slot, piece = (value, entry) if direction == "slot-of-piece" else (entry, value)
            picture[slot] = shown[piece]
        good = 0
        for entry, value in enumerate(guess):
            slot, piece = (value, entry) if direction == "slot-of-piece" else (entry, value)
            good += shown[piece] == picture[slot]
        alike += good
        identical += good == 4 and sorted(guess) == [0, 1, 2, 3]
    assert 0 < solved < identical < 300
    assert summary["puzzles"] == 300
    assert summary["solved"] == solved / 300
    assert summary["solved_identical"] == identical / 300
    assert summary["pieces"] == pytest.approx(right / 1200)
    assert summary["pieces_identical"] == pytest.approx(alike / 1200)
    assert summary["pieces_low"] < summary["pieces"] < summary["pieces_high"]


def test_both_directions_have_the_same_scores():
    order, pieces = scrambled(fields(50, 4), 2)
    pieces[:, 1] = pieces[:, 0]
    found = fr.random_permutations(4, (50,), generator=torch.Generator().manual_seed(3))
    one, other = Scores(), Scores()
    one.add(order, found, pieces, "slot-of-piece")
    other.add(fr.inverse(order), fr.inverse(found), pieces, "piece-of-slot")
    assert one.summary() == pytest.approx(other.summary())
    assert one.pieces_identical > one.pieces


def test_identical_means_every_pixel():
    pieces = torch.zeros(3, 4, 4, 3, dtype=torch.uint8)
    pieces[2, 3, 3, 2] = 1
    truth = torch.tensor([0, 1, 2])
    assert pieces_alike(truth, torch.tensor([1, 0, 2]), pieces, "slot-of-piece").all()
    assert pieces_alike(truth, torch.tensor([2, 1, 0]), pieces, "slot-of-piece").tolist() == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(("count", "total"), [(0, 7), (7, 7), (1, 9), (9990, 10_000), (5000, 10_000)])
def test_wilson_against_scipy(count, total):
    interval = binomtest(count, total).proportion_ci(0.95, method="wilson")
    assert wilson(count, total) == pytest.approx((interval.low, interval.high), abs=1e-6)


def test_scores_refuse():
    with pytest.raises(fr.FactorankError, match="no puzzle was scored"):
        Scores().summary()
    with pytest.raises(fr.FactorankError, match=r"\(2, 4\) truths but \(1, 4\) solutions"):
        Scores().add(torch.zeros(2, 4), torch.zeros(1, 4), torch.zeros(2, 4, 1, 1, 1), "slot-of-piece")


# Settings.


def test_the_defaults_of_a_setting_follow_from_code_and_objective():
    assert setting().direction_used == "slot-of-piece"
    assert setting(code="insertion").direction_used == "piece-of-slot"
    assert setting(code="insertion", direction="slot-of-piece").direction_used == "slot-of-piece"
    assert setting(grid=2).code_used == setting().code_used == "lehmer"
    assert setting(grid=4).code_used == setting(grid=6).code_used == "inline"
    assert setting(grid=6).name == "default-6x6-inline-masked-0"
    assert setting(grid=6, code="lehmer").name == "default-6x6-lehmer-masked-0"
    # What may leave the permutations, because nothing is assigned, has another code.
    for others in ({"objective": "autoregressive"}, {"masks": "any"}, {"preset": "paper"}):
        assert setting(**{"grid": 4} | others).code_used == "lehmer"
    assert setting().masks_used == "all"
    assert setting(objective="autoregressive").masks_used == "any"
    assert setting("paper").direction_used == "piece-of-slot"
    assert setting("paper", lr=None).lr == 3e-4


@pytest.mark.parametrize("grid", [3, 4, 5, 6, 7, 8])
def test_the_default_model_has_at_most_1_7_million_parameters(grid):
    assert sum(weight.numel() for weight in build(setting(grid=grid)).parameters()) <= 1_700_000


def test_insertion_and_left_lehmer_say_the_same_in_opposite_directions():
    """Why insertion has its direction: its code of the pieces in reading order is, position by position, the
    left-Lehmer code of their slots."""
    slot = fr.random_permutations(9, (200,))
    places = torch.arange(9)
    left = fr.Lehmer(side="left").encode(slot)
    assert torch.equal(fr.Insertion().encode(fr.inverse(slot)), places - left)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "other"}, "there is no preset 'other'; there are default, paper"),
        ({"speed": 3}, "a setting has no 'speed'; it has aligned, augment"),
        ({"grid": 40}, "a grid from 1 to 32, not 40"),
        ({"width": 30}, "width is a multiple of the 8 attention heads, not 30"),
        ({"optimizer": "sgd"}, "the optimizer is one of adamw, muon, not 'sgd'"),
        ({"augment": "blur"}, "augment is 'none' or some of"),
    ],
)
def test_settings_refuse(changes, message):
    with pytest.raises(fr.FactorankError, match=message):
        setting(**changes)


def test_lists_of_settings_can_be_built_and_have_names_of_their_own():
    settings = [*jigsaw.ablations(**TINY), *jigsaw.every_code(**TINY)]
    assert len({chosen.name for chosen in settings}) == len(settings) == 16 + 10
    for chosen in settings:
        assert build(chosen, 16).n == 4
        changed = {name for name, value in vars(chosen).items() if value != getattr(setting(**TINY), name)}
        assert len(changed - {"label"}) <= 2 or "convolution" in chosen.label or "no-hints" in chosen.label


@pytest.mark.parametrize("encoder", ["cnn", "convolution+edges", "mlp+corners"])
def test_unknown_encoders(encoder):
    with pytest.raises(
        fr.FactorankError, match=r"encoder is 'convolution' or 'mlp' with|features of a piece"
    ):
        build(setting(encoder=encoder))


# Training.


def test_it_learns_and_its_solutions_are_pictures():
    model, result = jigsaw.learn(
        setting(**(TINY | {"steps": 120, "lr": 1e-2, "ema": 0.98, "augment": "none"})),
        PICTURES,
        device="cpu",
        watch_every=None,
    )
    assert result.steps == 120
    scores = evaluate(lambda pieces: solve(model, pieces), PICTURES.test, 2, "slot-of-piece").summary()
    assert scores["solved"] > 0.5  # 1/24 by chance
    order, pieces = scrambled(PICTURES.test, 2, seed=9)
    found = solve(model, pieces)
    for picture, slots, shown, truth in zip(PICTURES.test, found, pieces, order, strict=True):
        by_slot = shown[fr.inverse(slots)]
        assert torch.equal(join(by_slot, 2), picture) == torch.equal(slots, truth)
        assert sorted(map(bytes, by_slot.flatten(1).numpy())) == sorted(
            map(bytes, cut(picture, 2).flatten(1).numpy())
        )


@pytest.mark.parametrize("code", fr.code_names())
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("preset", ["default", "paper"])
def test_every_code_objective_and_preset_can_be_run(preset, objective, code, tmp_path):
    chosen = setting(preset, **(TINY | {"code": code, "objective": objective, "steps": 2}))
    (row,) = jigsaw.run([chosen], tmp_path, pictures=PICTURES, most=10, device="cpu", watch_every=None)
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
    rows = jigsaw.run([chosen], tmp_path / "m", pictures=PICTURES, nfes=(1, 2, 4), most=9, device="cpu")
    assert [(row["nfe"], row["unmask"], row["beam"]) for row in rows] == [
        (k, "confident", None) for k in (1, 2, 4)
    ]
    chosen = setting(**(TINY | {"objective": "autoregressive", "steps": 2}))
    (row,) = jigsaw.run([chosen], tmp_path / "a", pictures=PICTURES, beam=3, most=9, device="cpu")
    assert (row["nfe"], row["unmask"], row["beam"]) == (4, "left-to-right", 3)
    model = build(setting(**(TINY | {"objective": "autoregressive"})), 16).eval()
    pieces = scrambled(PICTURES.test, 2)[1]
    best = model.distribution(pieces).beam(24)[0][:, 0]
    assert torch.equal(solve(model, pieces, beam=24), best)


@pytest.mark.parametrize("method", ["gumbel-sinkhorn", "riffle-diffusion"])
def test_baselines_are_run_and_scored_like_our_models(method, tmp_path):
    chosen = setting(method, **(TINY | {"steps": 2, "encoder": "mlp"}))
    assert chosen.name == f"{method}-2x2-{method}-0"
    (row,) = jigsaw.run([chosen], tmp_path, pictures=PICTURES, beam=4, most=9, device="cpu", watch_every=1)
    assert (row["method"], row["code"], row["objective"], row["unmask"]) == (method, None, None, None)
    assert row["direction"] == "piece-of-slot"
    assert row["nfe"] == (1 if method == "gumbel-sinkhorn" else len(build(chosen, 16).schedule) - 1)
    assert row["puzzles"] == 9


@pytest.mark.parametrize("direction", ["slot-of-piece", "piece-of-slot"])
def test_the_likeliest_of_several_tries(direction):
    """Each try sees the pieces in another order; the law of the puzzle decides, whatever the order."""
    torch.manual_seed(0)
    model = build(setting(**(TINY | {"direction": direction})), 16).eval()
    pieces = scrambled(PICTURES.test[:25], 2, direction=direction)[1]
    tried = [solve(model, pieces, tries=tries) for tries in (1, 2, 4)]
    chooser = torch.Generator().manual_seed(0)
    law = model.distribution(pieces, nfe=1)
    best, likelihood = law.mode, law.log_prob(law.mode)
    for number in range(1, 4):
        mixed = fr.random_permutations(4, (25,), generator=chooser)
        for row, some in enumerate(mixed):
            there = model.distribution(pieces[row][some], nfe=1)
            found = there.mode
            if there.log_prob(found) > likelihood[row]:
                likelihood[row] = there.log_prob(found)
                slots = found if direction == "slot-of-piece" else fr.inverse(found)
                mine = slots[fr.inverse(some)]  # of each piece in the order that we were given
                best[row] = mine if direction == "slot-of-piece" else fr.inverse(mine)
        if number == 1:
            assert torch.equal(tried[1], best)
    assert torch.equal(tried[0], law.mode)
    assert torch.equal(tried[2], best)
    assert len({tuple(one.flatten().tolist()) for one in tried}) == 3  # more tries find something likelier
    with pytest.raises(fr.FactorankError, match="tried at least once, not 0 times"):
        solve(model, pieces, tries=0)


def test_an_inline_model_can_be_made_to_give_permutations():
    torch.manual_seed(1)
    model = build(setting(**(TINY | {"code": "inline"})), 16).eval()
    with torch.no_grad():
        model.network.head.weight.mul_(20)
    pieces = scrambled(PICTURES.test, 2)[1]
    assert not fr.is_permutation(solve(model, pieces, assign=False)).all()
    found = solve(model, pieces)
    assert torch.equal(found, solve(model, pieces, assign=True))
    law = model.distribution(pieces, nfe=1)
    every = torch.tensor(list(itertools.permutations(range(4))))
    best = law.log_prob(every[:, None].expand(24, 80, 4)).max(0).values
    torch.testing.assert_close(law.log_prob(found), best)
    shaky = build(setting(**(TINY | {"code": "inline", "dropout": 0.5})), 16).train()
    assert torch.equal(solve(shaky, pieces), solve(shaky, pieces))
    assert shaky.training
    for wrong in ({"assign": True}, {"tries": 2}, {"nfe": 4}):
        with pytest.raises(fr.FactorankError, match="are for our models, not for baselines"):
            solve(build(setting("gumbel-sinkhorn", **TINY), 16), pieces, **wrong)
    with pytest.raises(fr.FactorankError, match="nfe is a whole number from 1 to 4, not 0"):
        solve(model, pieces, nfe=0)
    with pytest.raises(fr.FactorankError, match="assign is for masked inline models at one evaluation"):
        solve(build(setting(**TINY), 16), pieces, assign=True)


def test_a_run_goes_on_where_it_was_stopped_and_is_not_done_twice(tmp_path, monkeypatch):
    chosen = [setting(**(TINY | {"seed": seed, "steps": 12})) for seed in (0, 1)]
    options = {"pictures": PICTURES, "device": "cpu", "most": 20, "watch_every": 4}
    quiet = jigsaw.run(chosen, tmp_path / "quiet", **options)

    stopped = jigsaw.run(chosen, tmp_path / "stopped", call_seconds=1e-3, **options)
    assert stopped == []
    assert (tmp_path / "stopped" / chosen[0].name / "checkpoints").is_dir()
    resumed = jigsaw.run(chosen, tmp_path / "stopped", call_seconds=600, **options)
    for one, other in zip(quiet, resumed, strict=True):
        assert one["pieces"] == other["pieces"]
        weights = [
            tmp_path / way / one_name / "model.safetensors"
            for way in ("quiet", "stopped")
            for one_name in [one_of(one)]
        ]
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
    with pytest.raises(fr.FactorankError, match=r"test.jsonl was scored with most=20; remove it"):
        jigsaw.run(chosen, tmp_path / "quiet", **(options | {"most": None}))


def one_of(row):
    return f"{row['label']}-{row['grid']}x{row['grid']}-{row['code']}-{row['objective']}-{row['seed']}"


def test_training_is_watched_and_the_time_to_90_percent_found(tmp_path, monkeypatch):
    chosen = setting(**TINY)
    (row,) = jigsaw.run([chosen], tmp_path, pictures=PICTURES, most=20, device="cpu", watch_every=5)
    lines = jigsaw.history(tmp_path / chosen.name)
    watched = [line for line in lines if "solved" in line]
    assert [line["step"] for line in watched] == [5, 10, 15, 20]
    assert all(0 <= line["solved"] <= line["pieces"] <= 1 for line in watched)
    assert row["seconds_to_90"] is None
    assert row["trained_steps"] == 20
    path = tmp_path / chosen.name / "metrics.jsonl"
    path.write_text('{"step": 1, "seconds": 2.5, "solved": 0.91}\n{"step": 2, "seco')
    assert jigsaw.history(tmp_path / chosen.name) == [{"step": 1, "seconds": 2.5, "solved": 0.91}]


def test_time_ends_a_run_and_what_is_left_of_it_is_known(tmp_path):
    chosen = setting(**(TINY | {"steps": None, "seconds": 0.3}))
    _, result = jigsaw.learn(chosen, PICTURES, tmp_path / "run", device="cpu", log_every=1)
    assert result.stopped == "max_seconds"
    assert result.steps > 0
    _, again = jigsaw.learn(chosen, PICTURES, tmp_path / "run", device="cpu", log_every=1)
    assert again.steps <= result.steps + 2  # nothing was left, or next to nothing
    with pytest.raises(
        fr.FactorankError, match=r"falls over the 90 seconds .* cannot stop after 10; give steps"
    ):
        jigsaw.learn(
            setting(**(TINY | {"steps": None, "seconds": 90.0})), PICTURES, call_seconds=10, device="cpu"
        )


def test_training_can_begin_from_a_trained_model(tmp_path):
    first, _ = jigsaw.learn(setting(**TINY), PICTURES, tmp_path / "one", device="cpu", watch_every=None)
    gentle = setting(**(TINY | {"lr": 1e-12, "weight_decay": 0.0, "steps": 1, "label": "more", "seed": 5}))
    more, _ = jigsaw.learn(
        gentle, PICTURES, tmp_path / "two", start=tmp_path / "one", device="cpu", watch_every=None
    )
    for one, other in zip(first.parameters(), more.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_folder_of_another_setting_is_refused(tmp_path):
    jigsaw.learn(setting(**(TINY | {"steps": 2})), PICTURES, tmp_path, device="cpu", watch_every=None)
    with pytest.raises(fr.FactorankError, match=r"holds a run with another lr, steps; .* lr=0.005, steps=2"):
        jigsaw.learn(setting(**(TINY | {"steps": 3, "lr": 1.0})), PICTURES, tmp_path, device="cpu")
    chosen = setting(**TINY)
    with pytest.raises(
        fr.FactorankError, match="two settings have the name default-2x2-lehmer-masked-0; give"
    ):
        jigsaw.run([chosen, chosen], tmp_path, pictures=PICTURES)
    with pytest.raises(fr.FactorankError, match="from the 'test' or the 'held_out' split, not 'train'"):
        jigsaw.run([chosen], tmp_path, pictures=PICTURES, split="train")


def test_the_optimizers(tmp_path):
    """Rows and commands tell which it was; runs from before there was a choice go on by AdamW."""
    how = {"pictures": PICTURES, "most": 9, "device": "cpu", "watch_every": None}
    for name, lr, told in (("muon", 5e-3, ""), ("adamw", 2e-3, ", optimizer='adamw'")):
        chosen = setting(**(TINY | {"steps": 2, "optimizer": name, "label": name}))
        (row,) = jigsaw.run([chosen], tmp_path, **how)
        assert (row["optimizer"], row["lr"]) == (name, lr)
        assert f", batch_size=32{told}, warmup=5," in row["command"]
        place = tmp_path / chosen.name
        assert json.loads((place / "training.json").read_text()).get("optimizer", "adamw") == name
        assert setting_of(build(chosen, 16), place) == filled(chosen)
    old = setting(**(TINY | {"steps": 2, "optimizer": "adamw"}))
    jigsaw.learn(old, PICTURES, tmp_path / "old", device="cpu", watch_every=None)
    path = tmp_path / "old/setting.json"
    told = json.loads(path.read_text())
    assert told.pop("optimizer") == "adamw"
    path.write_text(json.dumps(told))
    model, result = jigsaw.learn(old, PICTURES, tmp_path / "old", device="cpu", watch_every=None)
    assert result.steps == 2
    assert setting_of(model, tmp_path / "old").optimizer == "adamw"
    refused = r"a run with another optimizer, lr; .* optimizer='adamw', lr=0.002"
    with pytest.raises(fr.FactorankError, match=refused):
        jigsaw.learn(dataclasses.replace(old, optimizer="muon"), PICTURES, tmp_path / "old", device="cpu")


def test_speed_is_counted_in_puzzles():
    calls = []

    def solver(pieces):
        calls.append(len(pieces))
        return torch.zeros(len(pieces), 4, dtype=torch.int64)

    rate = puzzles_per_second(solver, PICTURES.test, 2, batch_size=100, seconds=0.05)
    assert set(calls) == {100}
    assert len(calls) >= 3
    assert math.isfinite(rate)
    assert rate > 0


def test_the_command_of_a_setting():
    assert command_of(setting()) == "factorank jigsaw train"
    assert (
        command_of(setting("paper", grid=4, lr=1e-3))
        == "factorank jigsaw train --preset paper --grid 4 --lr 0.001"
    )
    assert command_of(setting(label="no-ema", ema=0.5)) == "factorank jigsaw train --label no-ema --ema 0.5"
    assert command_of(setting(optimizer="adamw")) == "factorank jigsaw train --optimizer adamw"
    riffle = setting("riffle-diffusion", label="riffle-slow", lr=1e-4)
    expected = "factorank jigsaw train --preset riffle-diffusion --label riffle-slow --lr 0.0001"
    assert command_of(riffle) == expected
    asked = command_of(setting(), {"nfe": (1, 4), "most": 100})
    assert asked == "factorank jigsaw train --nfe 1 4 --most 100"
    assert command_of(setting(), {"tries": 2}).endswith("run([setting('default')], out, tries=2)")


def test_settings_without_options_are_told_as_calls():
    for chosen in (
        setting(ties=False, label="no-ties"),
        setting("riffle-diffusion", model_options={"layout": "pieces"}),
    ):
        command = command_of(chosen)
        assert command.startswith("factorank.experiments.jigsaw.run([setting(")
        told = command.removeprefix("factorank.experiments.jigsaw.run([").removesuffix("], out)")
        assert eval(told, {"setting": setting}) == chosen


def test_the_command_line_has_the_options_that_commands_name():
    from factorank.commands.jigsaw import Train
    from factorank.experiments.jigsaw_rows import OPTIONS

    names = ({one.name for one in dataclasses.fields(kind)} for kind in (Train, jigsaw.Setting))
    assert set(OPTIONS) == set.intersection(*names)


@pytest.mark.gpu
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("preset", jigsaw.PRESETS)
def test_the_whole_step_is_captured_on_a_gpu(preset, compile, tmp_path):
    """Making the puzzles is part of the graph: capture=True is an error if anything in it cannot be."""
    chosen = setting(preset, **(TINY | {"steps": 8, "augment": "crop+flip+light", "width": 32}))
    model, result = jigsaw.learn(
        chosen, PICTURES, tmp_path, device="cuda", capture=True, compile=compile, watch_every=4
    )
    assert result.steps == 8
    assert math.isfinite(result.loss)
    (row,) = jigsaw.score(chosen, model, PICTURES.test, beam=2)
    assert row["puzzles"] == 80


@pytest.mark.gpu
def test_puzzles_on_a_gpu_are_solved_by_their_orders():
    maker = Puzzles(PICTURES.train, 2, augment="none")
    order, pieces = maker(50, torch.Generator("cuda").manual_seed(0))
    known = {join(by_slot, 2).numpy().tobytes() for by_slot in cut(PICTURES.train, 2)}
    for slots, some in zip(order.cpu(), pieces.cpu(), strict=True):
        assert join(some[fr.inverse(slots)], 2).numpy().tobytes() in known


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("preset", "changes", "how"),
    [
        ("default", {}, {}),
        ("default", {"code": "inline"}, {}),
        ("default", {"code": "inline", "masks": "any"}, {"nfe": 3}),
        ("default", {"masks": "any"}, {"tries": 2}),
        ("paper", {}, {}),
        ("gumbel-sinkhorn", {}, {}),
        ("riffle-diffusion", {}, {"beam": 20}),
    ],
)
def test_solving_again_on_a_gpu_replays_it(preset, changes, how):
    """Called, recorded and replayed, each in an autocast of its own, for puzzles that differ."""
    torch.manual_seed(0)
    chosen = setting(preset, **(TINY | {"grid": 3, "width": 32} | changes))
    model = build(chosen, side=16).cuda().eval()
    puzzles = scrambled(PICTURES.train.cuda(), 3)[1].split(100)

    def solved():
        found = []
        for pieces in puzzles:
            found.append(solve(model, pieces, **how))
            torch.full((2**24,), torch.nan, device="cuda")  # over what has been freed
        return torch.cat(found)

    weight = max(model.parameters(), key=torch.numel)
    before, recorded = weight.detach().clone(), solved()
    with torch.no_grad():
        weight.mul_(-1)
    changed = solved()
    with dispatch.plain("recording"):
        assert torch.equal(changed, solved())
    with torch.no_grad():
        weight.copy_(before)
    with dispatch.plain("recording"):
        assert torch.equal(recorded, solved())
    assert not torch.equal(recorded, changed)
