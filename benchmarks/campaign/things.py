"""What the campaign calls methods of, and the arguments that are right for calls that names do not tell."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import factorank as fr

BATTLES = {"model_a": ["a", "a", "b", "b"], "model_b": ["b", "c", "c", "a"], "winner": ["a", "a", "tie", "b"]}
PAIRS = torch.tensor([[0, 1], [1, 2], [2, 0], [2, 3], [3, 1]]).repeat(6, 1)
OUTCOMES = torch.arange(30) // 3 % 2
"""Battles of four items; everybody wins and loses some."""
SKIPPED = {
    "train, measure or refit for seconds; the kills and the tests call them": [
        *("train", "jigsaw.learn", "jigsaw.evaluate", "jigsaw.puzzles_per_second", "votes.bootstrap"),
        *("votes.train_networks", "votes.compare", "votes.score_family", "rerank.evaluate", "Ranker.fit"),
        *("PermutationModel.export_onnx", "Ranker.export_onnx"),
    ],
    "reach the network": ["jigsaw.cifar10", "PermutationModel.push_to_hub"],
    "change the process for good": ["register_code", "register_context"],
    "hold what the library has computed, and compute nothing": [
        *("FitReport", "TrainResult", "jigsaw.Answer", "rerank.RankedItem", "rerank.Reranking"),
        *("rerank.Scores", "rerank.Lists", "votes.Goodness", "votes.HeldOutScore", "votes.LikelihoodRatio"),
        *("votes.MallowsPosterior", "votes.Networks", "votes.Pairwise", "votes.PlackettLucePosterior"),
        *("jigsaw.PhotographModel", "Ranker", "rerank.Ranker", "leaderboard.RankSets"),
    ],
    "are for subclasses": ["Code", "PermutationDistribution"],
    "stand for what the library has made, from what it has made": [
        *("BradleyTerry.from_fit", "Davidson.from_fit", "RaoKupper.from_fit", "masked.log_table"),
        *(
            "random unmasking.log_table",
            "random unmasking.log_prob",
            "drafted.log_table",
            "autoregressive.log_table",
        ),
        *(
            f"{law}.sample_with_report"
            for law in ("masked", "random unmasking", "one evaluation", "autoregressive")
        ),
    ],
    "train a network of its own to be saved": ["votes.save_networks", "votes.open_networks"],
}
"""Public names that the campaign does not call, by the reason."""


@cache
def orders() -> torch.Tensor:
    """Forty rankings of four items, all items beaten by all others somewhere."""
    return fr.random_permutations(4, (40,), generator=torch.Generator().manual_seed(0))


@cache
def folder() -> Path:
    """A folder for what functions read and write."""
    path = Path(tempfile.mkdtemp(prefix="factorank-campaign-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    fr.write_rankings(fr.Rankings.from_orders(orders(), items=list("abcd")), path / "votes.soc")
    fr.save_law(fr.Mallows(torch.arange(4), 0.5), path / "law", items=list("abcd"))
    (path / "ratings.csv").write_text("user,item,rating\n1,1,5\n1,2,3\n2,1,4\n")
    (path / "user.csv").write_text("item,rating\n1,3\n2,4\n")
    (path / "pictures").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path / "pictures" / f"{number}.png")
    model().save_pretrained(path / "model")
    ratings().save(path / "ratings.safetensors")
    return path


@cache
def model(objective: Any = "masked") -> Any:
    """A small model that is not trained."""
    torch.manual_seed(0)
    return fr.PermutationModel(4, "lehmer", objective, width=8, depth=1, heads=1).eval()


@cache
def laws() -> dict[str, Any]:
    """A law of every family, of four items."""
    table = torch.ones(4, 4).tril()
    mallows = fr.Mallows([2, 0, 1, 3], 0.5)
    return {
        "Uniform": fr.Uniform(4),
        "Mallows": mallows,
        "GeneralizedMallows": fr.GeneralizedMallows([2, 0, 1, 3], [0.5, 0.2, 0.7, 1.0]),
        "RIM": fr.RIM(table / table.sum(-1, keepdim=True)),
        "GRIM": fr.GRIM(uniform_insertion, [0, 1, 2, 3]),
        "PlackettLuce": fr.PlackettLuce([0.0, 1.0, -1.0, 0.5]),
        "Thurstone": fr.Thurstone([0.0, 1.0, -1.0, 0.5], torch.eye(4)),
        "Mixture": fr.Mixture([0.5, 0.5], [fr.Uniform(4), mallows]),
        "conditioned": mallows.condition(observed=[2, 0]),
        "tilted": mallows.tilt(first_place, 0.5),
        "masked": model().distribution(nfe=2, unmask="left-to-right"),
        "random unmasking": model().distribution(nfe=2),
        "one evaluation": model().distribution(nfe=1),
        "drafted": model("autoregressive").distribution(draft="self"),
        "autoregressive": model("autoregressive").distribution(),
    }


def uniform_insertion(slots: torch.Tensor) -> torch.Tensor:
    """The conditional law of a GRIM: every slot of the next item is as likely."""
    return torch.zeros(*slots.shape[:-1], slots.shape[-1] + 1)


def first_place(order: torch.Tensor) -> torch.Tensor:
    """A reward of orders: the number of the first item."""
    return order[..., 0].double()


@cache
def ratings() -> fr.Ratings:
    """Ratings of twelve items by sixty users, at random."""
    generator = torch.Generator().manual_seed(0)
    users = torch.arange(60).repeat_interleave(10)
    items = torch.stack([torch.randperm(12, generator=generator)[:10] for _ in range(60)]).flatten()
    values = torch.randint(1, 6, (600,), generator=generator).double()
    return fr.Ratings.from_rows(users.tolist(), items.tolist(), values.tolist(), times=list(range(600)))


@cache
def ranker() -> fr.Ranker:
    """A hardly trained ranker."""
    small: dict[str, Any] = {"n": 8, "shortest": 4, "width": 16, "depth": 1, "heads": 2, "rank": 2}
    setting = fr.rerank.preset("small", **small, steps=3, batch_size=32, held_out=32)
    return fr.Ranker.fit(ratings(), 0.2, setting=setting, device="cpu")


@cache
def things() -> dict[str, Any]:
    """An object of every public class that computes, laws apart."""
    board = fr.Leaderboard.fit(BATTLES | {"count": [20] * 4})
    fits: dict[str, Any] = {
        family.__name__: family.fit(PAIRS, torch.where(torch.arange(30) % 5 == 0, 2, OUTCOMES))
        for family in (fr.Davidson, fr.RaoKupper)
    }
    return {
        "PermutationModel": fr.PermutationModel(4, "insertion", width=8, depth=1, heads=1).eval(),
        "Ranker": ranker(),
        "Catalogue": ranker().catalogue,
        "Leaderboard": board,
        "Rankings": fr.read_rankings(folder() / "votes.soc"),
        "Ratings": ratings(),
        "PartialOrders": fr.PartialOrders.from_orders(orders()[:, :3], items=4),
        "BradleyTerry": fr.BradleyTerry.fit(PAIRS, OUTCOMES),
        **fits,
        **{name: fr.code(name) for name in fr.code_names()},
    }


def likelihoods() -> dict[str, Any]:
    """Two fitted laws, one a special case of the other."""
    return {"smaller": fr.Mallows.fit(orders()), "larger": fr.RIM.fit(orders())}


def jigsaw_model() -> Any:
    """A small model of puzzles of 2×2."""
    setting = fr.jigsaw.JigsawSetting(grid=2, width=8, depth=1, heads=1)
    return fr.jigsaw.new_model(setting, side=8).eval()


ARGUMENTS: dict[str, dict[str, Any]] = {
    # Of methods, whoever has them.
    "condition": {"observed": [2, 0]},
    "sample": {"sample_shape": (2,)},
    "expand": {"batch_shape": (2,)},
    "estimate": {"what": "entropy", "samples": 50},
    "tilt": {"reward": first_place},
    "stratified": {"samples": 3},
    "digit_log_probs": {"code_name": "insertion"},
    "next_slot": {"slots": torch.tensor([0, 1])},
    "estimate_log_evidence": {"generator": torch.Generator().manual_seed(0)},
    "near": {"item": "seven"},
    "index": {"item": 3},
    "names": {"items": [3, 4]},
    "feature_row": {"item": "new", "features": [3.0, 1.0, 0.0, 0.0]},
    # Of one thing.
    "PermutationModel.from_mallows": {"law": fr.Mallows([0, 1, 2], 0.5)},
    "PermutationModel.from_rim": {"law": fr.RIM(torch.ones(3, 3).tril() / torch.arange(1, 4)[:, None])},
    "PermutationModel.logits": {"code": torch.tensor([0, -1, 0, -1])},
    "PermutationModel.noise": {"batch": torch.Size([3]), "device": torch.device("cpu")},
    "PermutationModel.with_length": {"n": 3},
    "Ranker.rerank": {"items": [1, 2, 3], "observed": {4: 5, 5: 1}, "k": 2},
    "Ranker.recommend": {"observed": {4: 5, 5: 1}, "k": 2},
    "Ranker.gain_table": {"n": 8},
    "Ranker.relevance": {"ratings": torch.tensor([1.0, 5.0])},
    "Leaderboard.battles_to_separate": {"better": "a", "worse": "b"},
    "Leaderboard.fit": {"battles": BATTLES},
    "Leaderboard.from_scores": {"table": {"item": ["x", "y"], "a": [0.9, 0.7], "b": [0.8, 0.75]}},
    "Rankings.from_scores": {"scores": torch.rand(3, 4)},
    "Rankings.split": {"held_out": 0.2},
    "Rankings.with_items": {"items": list("dcba")},
    "Rankings.check_complete": {"advice": "leave them out"},
    "Ratings.of_users": {"users": torch.tensor([0, 2])},
    "Ratings.of_rows": {"kept": torch.arange(600) % 2 == 0},
    "Ratings.from_rows": {"users": [1, 1], "items": [1, 2], "ratings": [3.0, 4.0]},
    "Ratings.filter": {"min_item_ratings": 5, "min_user_ratings": 2},
    "Ratings.split_by_time": {"share": 0.5},
    "Ratings.draw": {"n": 4, "batch": 2},
    "Ratings.list_rows": {"n": 4, "users": torch.tensor([0, 2])},
    "Ratings.lists": {"n": 4, "users": torch.tensor([0, 2])},
    "Ratings.relevance": {"values": torch.tensor([1.0, 5.0])},
    "Ratings.with_items": {"ids": list(range(12))},
    "PartialOrders.from_preferences": {"preferences": torch.tensor([[0, 0, 1], [1, 2, 0]]), "n": 3},
    "PartialOrders.from_ranks": {"ranks": torch.tensor([[0, 1, 2]])},
    **{
        f"{family}.fit": {"pairs": PAIRS, "outcomes": OUTCOMES}
        for family in ("BradleyTerry", "Davidson", "RaoKupper")
    },
    **{
        f"{family}.{method}": {"pairs": PAIRS} | ({"outcomes": OUTCOMES} if method == "log_prob" else {})
        for family in ("BradleyTerry", "Davidson", "RaoKupper")
        for method in ("log_prob", "log_probs", "sample", "tie")
    },
    **{f"{code}.decode": {"code": torch.tensor([0, 1, 0, 2])} for code in ("left-lehmer", "insertion")},
    "Mixture.fit": {"orders": orders(), "components": 2},
    "Mixture.expand": {"batch_shape": ()},
    "random unmasking.log_prob_bound": {"order": torch.tensor([2, 0, 1, 3]), "samples": 20},
    # Of functions and constructors whose parameters have names that mean another thing elsewhere.
    **{
        key: {"items": ("a", "b"), "scores": torch.zeros(2), "covariance": torch.eye(2), "level": 0.9}
        for key in ("Leaderboard", "leaderboard.Leaderboard")
    },
    **{key: {"items": list("ab"), "ranks": torch.tensor([[0, 1]])} for key in ("Rankings", "votes.Rankings")},
    "RIM": {"probs": torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]},
    "RandomGrades": {"logits": torch.zeros(4, 3)},
    "baselines.GeneralizedPlackettLuce": {"logits": torch.zeros(4, 4)},
    **{
        key: {"n": 4, "encoder": fr.ItemContext(4, 8)}
        for key in ("baselines.GumbelSinkhorn", "baselines.RiffleDiffusion")
    },
    **{key: {"scores": torch.zeros(4, 4)} for key in ("baselines.best_assignment", "baselines.sinkhorn")},
    **{key: {"grid": 2} for key in ("jigsaw.load", "jigsaw.load_any")},
    "leaderboard.BattleTable": {
        "items": ("a", "b"),
        "pairs": np.array([[0, 1]]),
        "outcomes": np.zeros(1, dtype=int),
    },
    "rerank.preset": {"name": "small"},
    "unscramble.law_of_letters": {"letters": ["abc"], "nfe": 2, "unmask": "left-to-right"},
    "unscramble.word_probabilities": {"pairs": [("abc", "cab")], "nfe": 2, "unmask": "left-to-right"},
    "unscramble.spell": {"letters": "abcd", "order": [3, 0, 1, 2]},
    "votes.fit_family": {"name": "mallows"},
    "votes.likelihood_ratio": likelihoods(),
    "votes.write_items": {"folder": folder(), "items": ["a"]},
    "Ratings": {
        "starts": torch.tensor([0, 2]),
        "items": torch.tensor([0, 1]),
        "values": torch.ones(2).double(),
        "ids": [7, 8],
        "user_ids": [1],
    },
    "PartialOrders": {"above": torch.zeros(1, 3, 3, dtype=torch.bool)},
    "PermutationModel": {"n": 4, "code": "lehmer", "width": 8, "depth": 1, "heads": 1},
    "jigsaw.HintedModel": {"n": 4, "code": "lehmer", "width": 8, "depth": 1, "heads": 1},
    "TokenContext": {"vocabulary": "abcd", "width": 8},
    "GRIM": {"conditional": uniform_insertion, "reference": [0, 1, 2, 3]},
    "unscramble.LetterContext": {"vocabulary": "abcd", "width": 8, "memory": 4},
    "unscramble.check_letters": {"letters": "abc", "longest": 7},
    "baselines.total_variation": {"n": 5, "first": 3},
    "jigsaw.Pictures": {name: torch.zeros(2, 8, 8, 3).byte() for name in ("train", "held_out", "test")},
    "jigsaw.PieceConvolution": {"grid": 2, "piece": 4, "width": 8},
    "jigsaw.PieceEncoder": {"grid": 2, "piece": 4, "width": 8},
    "jigsaw.Puzzles": {"pictures": torch.zeros(2, 8, 8, 3).byte(), "grid": 2},
    "jigsaw.cut": {"pictures": torch.zeros(2, 8, 8, 3).byte(), "grid": 2},
    "jigsaw.scrambled": {"pictures": torch.zeros(2, 8, 8, 3).byte(), "grid": 2},
    "jigsaw.join": {"pieces": torch.zeros(2, 4, 4, 4, 3).byte(), "grid": 2},
    "jigsaw.solve": {"puzzle": torch.zeros(4, 8, 8, 3).byte(), "grid": 2},
    "leaderboard.ScoreTable": {"items": ("a", "b"), "tasks": ("x",), "scores": np.ones((2, 1))},
    "leaderboard.battle_table": {"table": BATTLES},
    "leaderboard.score_table": {"table": {"item": ["x", "y"], "a": [0.9, 0.7], "b": [0.8, 0.75]}},
    "leaderboard.naive_rank_sets": {"low": torch.zeros(3), "high": torch.ones(3)},
    **{
        f"leaderboard.{kind}_rank_sets": {
            "scores": torch.tensor([0.0, 1.0, 2.0]),
            "errors": torch.randn(50, 3, generator=torch.Generator().manual_seed(0)),
            "level": 0.9,
        }
        for kind in ("bonferroni", "marginal", "simultaneous")
    },
    "losses.listwise_dpo": {
        "log_probs": torch.zeros(3),
        "reference_log_probs": torch.ones(3),
        "order": torch.tensor([2, 0, 1]),
    },
    "metrics.expected_distinct": {"samples": 10, "size": 24},
    "metrics.share_among": {"sequences": orders(), "known": orders()[:3]},
    "jigsaw.solve_puzzles": {"model": jigsaw_model(), "pieces": torch.zeros(2, 4, 4, 4, 3).byte()},
    "jigsaw.setting_of": {"model": jigsaw_model()},
}
"""Arguments that are right, of a call by its whole name, or of a method by its own."""
