"""Items with features: new items, what is left out in training, both layouts and what each may see."""

import math

import pytest
import torch

import factorank as fr
from factorank.rerank.encoder import FeatureContext


def model_of(layout, objective, n=5, **options):
    torch.manual_seed(0)
    context = FeatureContext(30, 16, 3, layout=layout, places=0 if layout == "aligned" else n, **options)
    context.set_features(torch.randn(30, 3))
    return fr.PermutationModel(n, "insertion", objective, 16, 2, 2, context=context).eval()


@torch.no_grad()
def logits(model, items, code, fixed):
    """The logits ``(n, n)`` of every position, with the first ``fixed`` values of the code fixed.

    Position i of a causal model sees the values before it, whatever ``fixed`` is.
    """
    if not model.causal:
        code = torch.where(torch.arange(model.n) < fixed, code, -1)
    return model.logits(code, items, check=False)


def depends_on(model, fixed):
    """Whether the prediction at i changes with item j, and with value j of the code: bool ``(n, n)`` each."""
    n = model.n
    items, code = torch.arange(n) + 3, torch.tensor([0, 1, 0, 2, 3])
    before = logits(model, items, code, fixed)
    changes = {"items": torch.zeros(n, n, dtype=torch.bool), "values": torch.zeros(n, n, dtype=torch.bool)}
    for j in range(n):
        other_items, other_code = items.clone(), code.clone()
        other_items[j] = 20
        other_code[j] = (code[j] + 1) % (n + 1)  # any other token: this is about attention, not validity
        for name, after in (
            ("items", logits(model, other_items, code, fixed)),
            ("values", logits(model, items, other_code, fixed)),
        ):
            finite = before.isfinite()
            changes[name][:, j] = ((after - before).abs().nan_to_num() * finite).amax(-1) > 1e-6
    return changes


@pytest.mark.parametrize("fixed", [0, 1, 3])
@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_both_layouts_are_conditional_on_the_same(objective, fixed):
    """One token an item, or n tokens of items before n of the code: each position sees every item, and of the
    code the fixed values (masked) or what came before (autoregressive), and nothing else."""
    aligned, prefix = (depends_on(model_of(layout, objective), fixed) for layout in ("aligned", "prefix"))
    places = torch.arange(5)
    everything = torch.ones(5, 5, dtype=torch.bool)
    values = places < places[:, None] if objective == "autoregressive" else (places < fixed).expand(5, 5)
    for depends in (aligned, prefix):
        assert torch.equal(depends["items"], everything)
        assert torch.equal(depends["values"], values)


@pytest.mark.parametrize("layout", ["aligned", "prefix"])
def test_a_new_item_is_what_its_features_are(layout):
    context = model_of(layout, "masked").context
    torch.nn.init.zeros_(context.embedding.weight)
    raw = context.table * context.scale + context.mean
    ids = torch.tensor([[3, 7, 9, 1, 0]])
    tokens, _ = context(ids)
    new = torch.tensor([[3, 30, 9, 30, 0]])
    as_new, present = context((new, raw[ids]))
    torch.testing.assert_close(as_new, tokens)
    assert bool(present.all())
    unknown, _ = context((new, torch.full((1, 5, 3), math.nan)))
    torch.testing.assert_close(unknown[:, [0, 2, 4]], tokens[:, [0, 2, 4]])
    average, _ = context((new, context.mean.expand(1, 5, 3)))
    torch.testing.assert_close(unknown, average)  # what is unknown is read as the mean


def test_features_are_brought_to_one_scale():
    context = FeatureContext(4, 8, 2)
    context.set_features(torch.tensor([[1.0, 5.0], [3.0, 5.0], [math.nan, 5.0], [5.0, 5.0]]))
    torch.testing.assert_close(context.table[:, 0], torch.tensor([-1.0, 0.0, 0.0, 1.0]) * 1.5**0.5)
    assert context.table[:, 1].tolist() == [0, 0, 0, 0]


def test_item_dropout_leaves_out_embeddings_in_training_only():
    context = FeatureContext(30, 8, 2, item_dropout=0.5)
    context.set_features(torch.randn(30, 2))
    ids = torch.arange(30)[None]
    full = context.eval()(ids)[0]
    assert torch.equal(full, context(ids)[0])
    torch.manual_seed(0)
    dropped = context.train()(ids)[0]
    by_features = context.linear(context.table)[None]
    whole, bare = ((dropped - tokens).abs().amax(-1)[0] < 1e-6 for tokens in (full, by_features))
    assert bool((whole | bare).all())
    assert 5 < int(bare.sum()) < 25


@pytest.mark.parametrize("layout", ["aligned", "prefix"])
def test_saved_with_its_features(layout, tmp_path):
    model = model_of(layout, "masked")
    model.save_pretrained(tmp_path)
    again = fr.PermutationModel.from_pretrained(tmp_path)
    items = torch.tensor([4, 2, 8, 1, 0])
    order = torch.tensor([1, 0, 3, 2, 4])
    laws = [either.distribution(items, nfe=1).log_prob(order) for either in (model, again)]
    assert torch.equal(*laws)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FeatureContext(3, 8, layout="sideways"), "layout is 'aligned' or 'prefix', not 'sideways'"),
        (lambda: FeatureContext(3, 8, item_dropout=1.0), "share from 0 to below 1, not 1.0"),
        (lambda: FeatureContext(3, 8, 2).set_features(torch.zeros(2, 2)), "3 items of 2 features"),
        (lambda: FeatureContext(3, 8)((torch.tensor([3]), torch.zeros(1, 0))), "has no features"),
        (lambda: FeatureContext(3, 8, 2)((torch.tensor([3]), torch.zeros(1, 3))), r"not \(1, 3\)"),
        (lambda: FeatureContext(3, 8, 2)(torch.tensor([3])), "item ids are 0..2"),
        (lambda: FeatureContext(3, 8, layout="prefix", places=1)(torch.tensor([0, 1])), "1 places"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(fr.errors.ModelError, match=message):
        make()


def test_ranks_are_told_of_known_items_alone():
    torch.manual_seed(0)
    context = FeatureContext(30, 8, ranks=True)
    ids = torch.tensor([[3, 7, 9, 1], [4, 2, 8, -1]])
    plain, _ = context(ids)
    ranked, present = context((ids, None, torch.tensor([3, 0])))
    changed = (ranked - plain).abs().amax(-1) > 1e-6
    assert changed.tolist() == [[True, True, True, False], [False] * 4]
    assert torch.equal(present, ids >= 0)
    wanted = context.ranks(torch.tensor([-2 / 3, 0.0, 2 / 3])[:, None] ** torch.arange(4))
    torch.testing.assert_close((ranked - plain)[0, :3], wanted)
    assert not context.exchangeable  # so that nobody reorders the items behind the ranks
    assert FeatureContext(30, 8).exchangeable


def test_ratings_beyond_any_in_training_and_past_the_end():
    context = FeatureContext(5, 8, ratings=True).eval()
    context.set_rating_scale(torch.tensor([1.0, 3.0]))  # mean 2, deviation 1
    ids = torch.tensor([[3, 0, -1]])
    plain = context(ids)[0]
    tokens = [
        context((ids, None, None, torch.tensor([[rating, torch.nan, rating]])))[0]
        for rating in (3.0, 5.0, 9.0)
    ]
    assert (tokens[0] - plain)[0, 0].abs().max() > 0.1
    assert not torch.allclose(tokens[0], tokens[1])
    torch.testing.assert_close(tokens[1], tokens[2])
    for token in tokens:
        torch.testing.assert_close(token[0, 1:], plain[0, 1:])
