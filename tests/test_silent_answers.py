"""What once was answered wrongly and in silence, each case a test: arguments, dtypes, options of fits."""

from functools import partial

import numpy as np
import pytest
import torch

import factorank as fr

UNSIGNED = [torch.uint8, torch.uint16, torch.uint32, torch.uint64]
MASKED = np.ma.masked_array([0.0, 1.0], mask=[False, True])
COUNTS = np.ma.masked_array([1, 1], mask=[False, True])
BATTLES = {"model_a": ["a", "b"], "model_b": ["b", "a"], "winner": ["model_a", "model_a"]}
ADVANTAGE = fr.BradleyTerry([0.0, 1.0], effects=[1.0])
ORDERS = fr.random_permutations(4, (30,), generator=torch.Generator().manual_seed(0))


def rows(users=(1, 1), ratings=(1.0, 2.0), times=None):
    return fr.Ratings.from_rows(users, ["x", "y"], ratings, times)


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_integers_are_integers(dtype):
    votes = ORDERS.to(dtype)
    for family in (fr.Mallows, fr.PlackettLuce, fr.RIM, fr.GeneralizedMallows):
        log_probs = [family.fit(orders).log_prob(ORDERS) for orders in (votes, ORDERS)]
        torch.testing.assert_close(*log_probs)
    assert torch.equal(fr.consensus(votes).order, fr.consensus(ORDERS).order)
    partial_orders = fr.PartialOrders.from_ranks(votes)
    assert torch.equal(partial_orders.above, fr.PartialOrders.from_ranks(ORDERS).above)
    assert partial_orders.agrees(fr.inverse(votes)).all()
    tied = fr.DavidsonLuce([0.0, 1.0, 2.0, 3.0], [0.5])
    assert torch.equal(tied.log_prob(votes), tied.log_prob(ORDERS))
    torch.manual_seed(0)
    model = fr.PermutationModel(4, "lehmer", width=8, depth=1, heads=1)
    law = model.distribution(nfe=1)
    assert torch.equal(law.log_prob(votes), law.log_prob(ORDERS))
    assert fr.train(model, votes, steps=1, batch_size=4, device="cpu", progress=False).steps == 1


def test_numbers_beyond_int64_are_refused():
    huge = torch.tensor([[0, 1, 2**64 - 1]], dtype=torch.uint64)
    for act in (fr.PlackettLuce.fit, fr.consensus, fr.Mallows.fit):
        with pytest.raises(fr.FactorankError):
            act(huge)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: fr.permutation_at(0, 300, dtype=torch.int8), "int8 cannot hold permutations of 300 items"),
        (lambda: fr.Mallows([0, 1, 2], 0.5, weights=[1.0, torch.inf, 1.0]), "finite"),
        (lambda: fr.PlackettLuce(torch.tensor([1 + 2j, 0])), "real parameters, not torch.complex64"),
        (lambda: fr.Mallows([0, 1], torch.tensor(0.5 + 0.1j)), "real parameters"),
        (lambda: fr.losses.plackett_luce(torch.rand(3), torch.tensor([0, -5, -5])), "there is -5"),
        (lambda: fr.metrics.ndcg(torch.arange(2), torch.tensor([2.0, 1e6])), "finite gains"),
        (lambda: fr.Mallows([0, 1], 0.5).condition(observed=[0, 1], samples=float("nan")), "samples"),
        (lambda: fr.Mallows([0, 1], 0.5).condition(observed=[0, 1], max_states=-1), "max_states"),
        (lambda: fr.rerank.Catalogue([1, 2], titles="ab"), "titles is a list of names, not 'ab'"),
        (lambda: fr.baselines.total_variation(10**12, 1), "n is a number of cards to 1,000"),
        (lambda: fr.baselines.total_variation(5, 10**12), "first is a number of shuffles to 1,000"),
        (lambda: fr.Leaderboard.from_scores({}), "a column of items and one a task, but there is none"),
        (lambda: fr.PlackettLuce(np.array([1 + 2j, 0])), "real parameters"),
        (lambda: fr.Davidson([0.0, 1.0], torch.tensor(1 + 2j)), "real parameters, not torch.complex64"),
        (lambda: fr.Davidson([0.0, 1.0], torch.inf), "nu that are finite"),
        (lambda: fr.RaoKupper([0.0, 1.0], torch.inf), "kappa that are finite"),
        (lambda: fr.BradleyTerry([0.0], torch.tensor([1j])), "real parameters"),
        (lambda: fr.DavidsonLuce([0.0, 1.0], np.array([1j])), "real parameters"),
        (lambda: ADVANTAGE.sample([0, 1], covariates=[[torch.nan]]), "covariates that are finite"),
        (lambda: ADVANTAGE.log_probs([0, 1], torch.tensor([[1j]])), "real parameters"),
        (lambda: fr.metrics.ndcg(torch.arange(2), torch.tensor([1.0, 2j])), "real relevances"),
        (lambda: fr.PlackettLuce(MASKED), "logits has masked entries"),
        (lambda: fr.BradleyTerry.fit([[0, 1], [1, 0]], MASKED, penalty=1.0), "outcomes has masked entries"),
        (lambda: fr.Mallows([0, 1], 0.5).tilt(lambda order: order[..., 0] * 1j), "a real number"),
        (lambda: fr.Uniform(3, dtype=torch.complex64), "of a floating dtype, not torch.complex64"),
        (lambda: fr.Uniform(3, batch_shape=(-1,)), "a shape is a tuple"),
        (lambda: fr.Leaderboard.fit({**BATTLES, "count": COUNTS}), "battles has masked entries"),
        (lambda: rows(users=np.array([2**64 - 1, 1], dtype=np.uint64)), "ids are whole numbers below 2.63"),
        (lambda: rows(times=np.array([2**63, 1], dtype=np.uint64)), "times are whole numbers below 2.63"),
        (lambda: rows(times=np.array(["NaT", "2020"], dtype="M8[s]")), "all of them given"),
        (lambda: rows(ratings=np.ones((2, 1))), "ratings are a column of numbers"),
        (lambda: fr.leaderboard.ScoreTable("ab", ("x",), np.ones((2, 1))), "items is a sequence, not 'ab'"),
    ],
)
def test_what_was_silently_wrong_is_refused(act, message):
    with pytest.raises(fr.FactorankError, match=message):
        act()


@pytest.mark.parametrize(
    "fit",
    [
        fr.Mallows.fit,
        fr.GeneralizedMallows.fit,
        fr.RIM.fit,
        fr.PlackettLuce.fit,
        partial(fr.Mixture.fit, components=1),
        lambda orders, **options: fr.BradleyTerry.fit(orders[:, :2], [0] * 30, penalty=1.0, **options),
    ],
)
def test_options_of_a_fit_are_checked_where_they_are_not_needed(fit):
    for tolerance in (torch.inf, torch.nan, -1.0):  # an infinite one ended a fit before its first step
        with pytest.raises(fr.FactorankError, match="tolerance is finite and at least 0"):
            fit(ORDERS, tolerance=tolerance)
    with pytest.raises(fr.FactorankError, match="max_iterations is a whole number of at least 1"):
        fit(ORDERS, max_iterations=-1)


def test_an_index_may_add_a_dimension_to_one_law():
    law = fr.Mallows([0, 1, 2], 0.5)
    assert law[None].batch_shape == (1,)
    assert law[...].batch_shape == ()
    assert law[None].sample().shape == (1, 3)


def test_half_precision_does_not_overflow():
    law = fr.Mallows(torch.arange(600), torch.tensor(0.5, dtype=torch.float16))
    exact = fr.Mallows(torch.arange(600), torch.tensor(0.5, dtype=torch.float64))
    order = torch.arange(600).flip(0)
    torch.testing.assert_close(law.log_prob(order).double(), exact.log_prob(order), rtol=1e-4, atol=1.0)


def test_a_covariance_keeps_the_precision_of_the_means():
    law = fr.Thurstone(torch.zeros(2, dtype=torch.float64), [[0.1, 0.0], [0.0, 0.1]])
    assert law.covariance[0, 0].item() == 0.1


def test_shares_are_of_sequences_without_negative_numbers():  # two of them could be taken for one another
    with pytest.raises(fr.FactorankError, match="values of 0 or more, not -1"):
        fr.metrics.share_among(torch.tensor([[-1, 0]]), torch.tensor([[2, 1]]))
