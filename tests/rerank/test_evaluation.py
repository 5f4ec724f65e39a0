"""Evaluation: the same lists for all methods, NDCG by r, bits, calibration, leads."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import sem

import factorank as fr
from factorank.errors import FactorankError
from factorank.models import PermutationLaw
from factorank.permutations import inverse
from factorank.rerank import Query, reranking
from factorank.rerank.evaluation import (
    Evaluation,
    bits,
    calibration,
    draw_lists,
    evaluate,
    leads,
)
from factorank.rerank.evaluation.protocol import default_rs
from factorank.rerank.evaluation.scores import over_users, ranked, score_order, training_precision
from factorank.rerank.keys import seeds_of
from factorank.rerank.lists import list_reference
from factorank.rerank.place_probabilities import list_law
from factorank.training.random_streams import stream_seed
from tests.rerank.small import SMALL, ranker, ratings


@pytest.fixture(scope="module")
def data():
    return ratings(120)


def test_lists_are_the_same_for_all_methods_and_orders_agree_with_relevance(data):
    first, again = (draw_lists(data, 6, seed=3, lists=200) for _ in range(2))
    assert torch.equal(first.items, again.items)
    assert torch.equal(first.order, again.order)
    assert len(first.items) >= 200
    sorted_relevance = first.relevance.gather(-1, first.order)
    assert bool((sorted_relevance.diff() <= 0).all())
    for r in (0, 1, 3, 6):
        observed = first.observed(r)
        assert observed.shape == (len(first.items), r)
        assert torch.equal(observed.sort(-1).values, torch.arange(r).expand_as(observed))
        assert bool((first.relevance.gather(-1, observed).diff() <= 0).all())


def test_ndcg_of_the_unobserved_items_alone(data):
    from sklearn.metrics import ndcg_score

    lists = draw_lists(data, 6, lists=50)
    order = torch.stack([torch.randperm(6) for _ in lists.items])
    (row,) = score_order(lists, order, r=2, ks=[3])
    score = -order.argsort(-1)
    gains = torch.exp2(lists.relevance) - 1
    values = torch.tensor(
        [ndcg_score(g[None], s[None], k=3) for g, s in zip(gains[:, 2:], score[:, 2:], strict=True)]
    )
    mean, error = over_users(values, lists.users)
    assert row["ndcg_unobserved"] == pytest.approx(mean, abs=1e-5)
    assert row["ndcg_unobserved_se"] == pytest.approx(error, abs=1e-5)
    whole = torch.tensor([ndcg_score(g[None], s[None], k=3) for g, s in zip(gains, score, strict=True)])
    assert row["ndcg"] == pytest.approx(over_users(whole, lists.users)[0], abs=1e-5)


def test_users_count_once():
    mean, error = over_users(torch.tensor([1.0, 0.0, 0.5, 0.5, 0.5]), torch.tensor([7, 7, 9, 9, 9]))
    assert (mean, error) == (0.5, 0.0)


def test_leads_are_paired_over_users_and_the_seeds_that_both_have():
    ours = {f"{seed}/6/2/5": torch.rand(40) for seed in range(3)} | {"0/6/3/5": torch.rand(40)}
    theirs = {f"{seed}/6/2/5": torch.rand(40) for seed in range(2)} | {"0/6/3/5": torch.rand(39)}
    (row,) = leads(ours, theirs)
    each = [(ours[f"{s}/6/2/5"] - theirs[f"{s}/6/2/5"]).double().numpy() for s in range(2)]
    each = sum(each) / 2
    assert (row["n"], row["r"], row["k"], row["seeds"], row["users"]) == (6, 2, 5, 2, 40)
    assert row["lead"] == pytest.approx(each.mean(), abs=1e-6)
    assert row["lead_se"] == pytest.approx(sem(each), abs=1e-6)


def test_usual_lengths_are_10_20_and_50_as_far_as_users_have_ratings():
    for longest, sizes in ((60, [10, 20, 50]), (49, [10, 20]), (20, [10, 20]), (10, [10])):
        assert Evaluation().sizes(ratings(2, items=longest, least=longest)) == sizes


def test_ranges_of_r():
    assert default_rs(10) == list(range(9))
    assert default_rs(3) == [0, 1]
    assert default_rs(2) == default_rs(1) == [0]
    for n in (20, 50, 100):
        assert default_rs(n)[0] == 0
        assert default_rs(n)[-1] == n - 2


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_none_and_one_observed_are_the_same(objective, data, masked):
    chosen = masked if objective == "masked" else ranker(objective)
    lists = draw_lists(data, 6, lists=60)
    none, one = (ranked(chosen, lists, r, Query(references=2, samples=16)) for r in (0, 1))
    assert torch.equal(none[0], one[0])
    assert torch.equal(none[1], one[1])
    assert bits(chosen, lists, 0) == bits(chosen, lists, 1)


def test_bits_of_an_untrained_law_and_of_observed_items(masked, data):
    lists = draw_lists(data, 6, lists=60)
    values = [bits(masked, lists, r) for r in (0, 2, 4, 6)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0
    assert values[0] == pytest.approx(math.log2(720), rel=0.4)


def test_bits_of_a_law_that_knows_nothing(masked, data):
    """Every order of the items has the same length, less that of the observed ones."""
    flat = copy.deepcopy(masked)
    with torch.no_grad():
        flat.model.network.head.weight.zero_()
        flat.model.network.head.bias.zero_()
    lists = draw_lists(data, 6, lists=20)
    for r in range(7):
        assert bits(flat, lists, r) == pytest.approx(math.log2(720 / math.factorial(r)), abs=1e-5)


def test_the_seed_of_bits_is_0_unless_given(data):
    chosen, lists = ranker("autoregressive"), draw_lists(data, 6, lists=20)
    assert bits(chosen, lists, 2) == bits(chosen, lists, 2, seed=0) != bits(chosen, lists, 2, seed=1)


def test_where_ndcg_is_cut_unless_told():
    assert Evaluation().ks == (1, 3, 5, 10)


def test_calibration_of_a_law_that_is_true(masked, data):
    """Lists whose true order is drawn from the law itself: what is stated must hold."""
    lists = draw_lists(data, 6, lists=6000)
    generator = torch.Generator().manual_seed(stream_seed(0, "references"))
    whole = lists.for_ranker(masked, 0)
    seeds_of(generator, 1)  # of ties
    reference = list_reference(whole, whole.keys(seeds_of(generator, 1))[:, 0])
    law = list_law(masked.model, whole, reference)
    drawn = law.sample(generator=torch.Generator().manual_seed(0))[:, :6]
    lists.order = reference.gather(-1, drawn)
    _, places = ranked(masked, lists, 0, Query(samples=None, references=1))
    bins = list(calibration(places, lists, 0, [2]))
    assert sum(row["count"] for row in bins) == lists.items.numel()
    for row in bins:
        error = math.sqrt(max(row["stated"] * (1 - row["stated"]), 1e-4) / row["count"])
        assert abs(row["hit"] - row["stated"]) < 5 * error


def test_how_far_the_law_depends_on_the_reference(masked, data):
    """The keys of the observed items change nothing where these stand sorted; other keys do."""
    lists = draw_lists(data, 6, lists=60)
    first = torch.rand(8, generator=torch.Generator().manual_seed(0))
    mixed = torch.cat([1 - first[:3], first[3:]])  # the observed items are the first 3 of the list
    for chosen, kind in ((masked, "sorted"), (ranker(reference="random"), "random")):
        part, tops = lists.for_ranker(chosen, 3), []
        for keys in (first, mixed, 1 - first):
            reference = list_reference(part, keys, kind=kind)
            with torch.no_grad():
                places = list_law(chosen.model, part, reference, 1).marginals()
            place_of = inverse(reference)[..., None].expand_as(places)
            tops.append(places.gather(-2, place_of)[:, 3:6, :2].sum(-1))
        by_observed, by_all = (float((top - tops[0]).abs().mean()) for top in tops[1:])
        assert (by_observed == 0) == (kind == "sorted")
        assert by_observed < by_all < 1


@pytest.mark.parametrize("code", ["inline", "lehmer", "left-lehmer", "fisher-yates"])
def test_other_codes_without_observations(code, data):
    changes = SMALL | {"code": code, "n": 6, "shortest": 6, "masks": "all"}
    without = fr.Ranker.fit(data, 0.2, setting=fr.rerank.preset("small", **changes), device="cpu")
    evaluation = Evaluation(ns=(6,), ks=(5,), lists=20, query=Query(references=2, samples=8))
    rows = evaluate(without, data, evaluation).rows
    assert [row["r"] for row in rows] == [0, 1]
    with pytest.raises(fr.errors.ModelError, match="insertion"):
        ranked(without, draw_lists(data, 6, lists=20), 3, Query())
    if code != "left-lehmer":
        with pytest.raises(fr.errors.ModelError, match="exactly 6 items"):
            without.rerank([100, 101])


def test_the_papers_layout_ranks_lists_of_n(data):
    changes = SMALL | {"n": 6, "width": 16, "depth": 1, "heads": 2}
    setting = fr.rerank.preset("paper", **changes | {"shortest": None})
    chosen = fr.Ranker.fit(data, 0.2, setting=setting, device="cpu")
    assert not chosen.model.context.aligned
    query = Query(references=2, samples=None)
    rows = evaluate(chosen, data, Evaluation(ns=(6,), rs=(0, 3), ks=(5,), lists=20, query=query)).rows
    assert len(rows) == 2
    with pytest.raises(fr.FactorankError, match="set shortest=None"):
        fr.Ranker.fit(data, 0.2, setting=fr.rerank.preset("paper", **changes), device="cpu")


def test_lists_are_whole_for_encoders_that_do_not_say_how_they_are_laid_out(masked):
    own = copy.copy(masked)
    own.model = copy.deepcopy(masked.model)
    own.model.context = torch.nn.Identity()
    with pytest.raises(fr.errors.ModelError, match="takes lists of exactly 8 items"):
        own.rerank([100, 101])


def test_what_cannot_be_measured_is_said(masked, data):
    with pytest.raises(fr.FactorankError, match=r"n = \(50,\) can be measured: users have up to 12"):
        evaluate(masked, data, Evaluation(ns=(50,)))


def test_numbers_observed_that_no_list_can_have(masked):
    with pytest.raises(FactorankError, match=r"of n = 8 items 0 to 6 can be observed, not r = \(7, 9\)"):
        evaluate(masked, ratings(), Evaluation(ns=(8,), rs=(7, 9), lists=5))


def test_more_is_drawn_where_less_is_left(monkeypatch):
    causal, drawn = ranker("autoregressive"), []
    marginals = PermutationLaw.marginals

    def few(law, samples, generator):
        drawn.append(samples)
        return marginals(law, samples=2, generator=generator)

    monkeypatch.setattr(PermutationLaw, "marginals", few)
    monkeypatch.setattr(reranking, "ITEMS_DRAWN", 24)
    lists = draw_lists(ratings(), 8, lists=4)
    for r in (0, 4, 6):
        ranked(causal, lists, r, Query(samples=None, references=1))
    assert drawn == [3, 6, 12]


def test_what_an_answer_and_an_evaluation_state_by_default():
    assert Query() == Query(k=10, by="gain", nfe=None, level=0.8, most=1)
    assert Evaluation().calibrate


def test_the_number_of_draws_is_stated_where_there_are_some(masked, causal, data):
    once, drawn = Query(references=2, nfe=1, samples=4), Query(references=2, samples=4)
    for chosen, query, stated in (
        (masked, Query(references=2), (None, 1)),
        (masked, once, (None, 1)),
        (causal, drawn, (4, 6)),
    ):
        rows = evaluate(chosen, data, Evaluation(ns=(6,), rs=(2,), ks=(5,), lists=10, query=query)).rows
        ours = [row for row in rows if row["method"] == "factorank"]
        assert {(row["samples"], row["nfe"]) for row in ours} == {stated}


def test_the_first_k_are_fewer_than_all(data):
    lists = draw_lists(data, 6, lists=400)
    places = torch.full((len(lists.items), 6, 6), 1 / 6)
    places[:, :, 0] = torch.linspace(0, 1, lists.items.numel()).view(-1, 6)
    rows = list(calibration(places, lists, 0, [1, 6, 7]))
    assert {row["k"] for row in rows} == {1}
    assert [row["bin"] for row in rows] == list(range(10))


@pytest.mark.parametrize(("precision", "enabled"), [(None, False), ("float32", False), ("bf16", True)])
def test_a_ranker_is_measured_in_the_precision_of_its_training(precision, enabled):
    setting = None if precision is None else SimpleNamespace(precision=precision)
    context = training_precision(SimpleNamespace(setting=setting, device=torch.device("cpu")))
    assert context._enabled == enabled


def test_the_setting_of_the_paper():
    setting = fr.rerank.preset("paper")
    assert (setting.width, setting.depth, setting.heads, setting.dropout) == (256, 10, 8, 0.05)
    assert (setting.lr, setting.weight_decay, setting.embedding_std) == (3e-4, 0.01, 0.5)
