"""Drafts: whatever proposes the values, what is drawn is the law of the target; exactly, and by counting."""

import itertools
import math

import pytest
import torch

import factorank as fr
from factorank.errors import ModelError
from factorank.models.drafting import CausalDrafting, MaskedDrafting
from factorank.sampling import speculative
from factorank.sampling.speculative import DraftReport, residual, speculate
from tests.models.naive import all_orders, assert_drawn_from, small_model


class Choices:
    """All ways that a random computation can go: the choices of one run, and the next to be tried."""

    def __init__(self):
        self.script, self.at, self.weight = [], 0, 1.0

    def choose(self, probs):
        possible = [i for i, p in enumerate(probs) if p > 0]
        if self.at == len(self.script):
            self.script.append([0, len(possible)])
        chosen = possible[self.script[self.at][0]]
        self.at += 1
        self.weight *= probs[chosen]
        return chosen

    def runs(self, run):
        """What every run returns, with its probability."""
        while True:
            self.at, self.weight = 0, 1.0
            yield run(), self.weight
            while self.script and self.script[-1][0] + 1 == self.script[-1][1]:
                self.script.pop()
            if not self.script:
                return
            self.script[-1][0] += 1


class Tables:
    """A target and a draft that depend on everything known in an arbitrary way."""

    def __init__(self, sizes, seed):
        self.sizes, self.generator = sizes, torch.Generator().manual_seed(seed)
        self.made = {}

    def logits(self, key, position):
        if (key, position) not in self.made:
            logits = 2 * torch.randn(max(self.sizes), generator=self.generator, dtype=torch.float64)
            logits[self.sizes[position] :] = -torch.inf
            self.made[key, position] = logits
        return self.made[key, position]

    def draft(self, code, done, rows, positions):
        known = tuple(code[0, : int(done)].tolist())
        return torch.stack([self.logits(("draft", known), i) for i in positions[0].tolist()])[None]

    def verify(self, code, rows, positions):
        values = code[0].tolist()
        return torch.stack([self.logits(tuple(values[:i]), i) for i in positions[0].tolist()])[None]

    def settle(self, rows, accepted):
        pass

    def log_prob(self, code):
        each = [self.logits(tuple(code[:i]), i).log_softmax(-1)[v] for i, v in enumerate(code)]
        return float(sum(each))


@pytest.mark.parametrize(("sizes", "ahead"), [((3, 2, 1), 1), ((3, 2, 1), 3), ((2, 3, 2), 1), ((2, 2, 2), 2)])
def test_every_way_a_draw_can_go_sums_to_the_target(sizes, ahead, monkeypatch):
    """The arithmetic of acceptance, by going through all drafts, acceptances and replacements."""
    tables, choices = Tables(sizes, seed=sum(sizes)), Choices()

    def drawn(logits, *, generator):
        probs = logits.softmax(-1)
        values = [choices.choose(line.tolist()) for line in probs.reshape(-1, probs.shape[-1])]
        return torch.tensor(values).view(probs.shape[:-1])

    def happened(chance, generator):
        each = [choices.choose([1 - min(1.0, p), min(1.0, p)]) for p in chance.flatten().tolist()]
        return torch.tensor(each).bool().view(chance.shape)

    monkeypatch.setattr(speculative, "draw", drawn)
    monkeypatch.setattr(speculative, "happens", happened)
    start, free = torch.full((1, 3), 9), torch.ones(1, 3, dtype=torch.bool)

    def run():
        report = DraftReport()
        code, rounds = speculate(start, free, tables, ahead, None, report)
        assert report.accepted + int(rounds) >= report.drafted >= 3
        assert 3 / ahead <= int(rounds) <= 3
        return tuple(code[0].tolist())

    totals = {}
    for code, weight in choices.runs(run):
        totals[code] = totals.get(code, 0.0) + weight
    assert len(totals) == sizes[0] * sizes[1] * sizes[2]
    for code, total in totals.items():
        assert total == pytest.approx(math.exp(tables.log_prob(code)), abs=1e-12)


def test_what_is_drawn_after_a_refusal(generator):
    p, q = (torch.randn(40, 6, generator=generator, dtype=torch.float64).softmax(-1) for _ in range(2))
    accepted = torch.minimum(p, q)
    torch.testing.assert_close(accepted + (1 - accepted.sum(-1, keepdim=True)) * residual(p, q), p)
    torch.testing.assert_close(residual(p, p), p)


def laws(code, objective):
    model, other = small_model(4, code, objective), small_model(4, code, seed=5)
    for draft, ahead in itertools.product(("self", other), (None, 1, 2)):
        yield model.distribution(unmask="left-to-right", draft=draft, ahead=ahead)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("code", ["lehmer", "insertion", "inline"])
def test_samples_follow_the_law(code, objective):
    outcomes = all_orders(4)
    if code == "inline":
        outcomes = torch.tensor(list(itertools.product(range(4), repeat=4)))
    for law in laws(code, objective):
        probs = law.log_prob(outcomes).exp().detach()
        drawn, report = law.sample_with_report((1500,), generator=torch.Generator().manual_seed(0))
        assert_drawn_from(drawn, outcomes, probs)
        assert 0 < report.accepted <= report.drafted
        again, nfe = law.sample_with_nfe((1500,), generator=torch.Generator().manual_seed(0))
        assert torch.equal(again, drawn)
        assert int(nfe.max()) == report.passes
        assert (report.draft_rows > 0) == (law.draft.model is not None)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("code", ["lehmer", "insertion", "fisher-yates"])
@torch.no_grad()
def test_what_verifies_is_the_law_itself(code, objective):
    """The target's conditionals of all codes, all positions at once, sum to the log-probability."""
    orders = all_orders(4)
    model = small_model(4, code, objective)
    law = model.distribution(unmask="left-to-right", draft="self", temperature=0.7)
    kind = CausalDrafting if model.causal else MaskedDrafting
    drafting = kind(law, law.conditions, len(orders), None, DraftReport())
    codes, positions = model.code.encode(orders), torch.arange(4).expand(len(orders), 4)
    free = law.conditions.free(model)
    first = int(free[0].long().argmax())
    positions = positions[:, first:4]
    logits = drafting.verify(codes, torch.arange(len(orders)), positions)
    chosen = logits.log_softmax(-1).gather(-1, codes.gather(-1, positions)[..., None]).squeeze(-1)
    torch.testing.assert_close(chosen.sum(-1), law.log_prob(orders), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_contexts_lists_of_several_lengths_and_observed_items(objective):
    """Each row has its own context, length and observed items; drafts of a model that reads them too."""
    from factorank.rerank.encoder import FeatureContext

    torch.manual_seed(0)
    models = []
    for kind in (objective, "masked"):
        model = fr.PermutationModel(4, "insertion", kind, 16, 2, 2, context=FeatureContext(9, 16))
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.4)
        models.append(model.eval())
    model, other = models
    items = torch.tensor([[3, 1, 8, 0], [5, 2, 7, 4], [1, 6, 2, -1]])
    observed = torch.tensor([[-1, -1], [2, 0], [1, 2]])
    orders = all_orders(4)
    short = torch.tensor([[*order, -1] for order in itertools.permutations(range(3))])
    for draft in ("self", other):
        law = model.distribution(items, observed=observed, unmask="left-to-right", draft=draft)
        drawn = law.sample((3000,), generator=torch.Generator().manual_seed(1))
        for row, outcomes in enumerate((orders, orders, short)):
            alone = model.distribution(items[row], observed=observed[row], unmask="left-to-right")
            assert_drawn_from(drawn[:, row], outcomes, alone.log_prob(outcomes).exp().detach())
        assert law.expand((2, 3)).sample((5,)).shape == (5, 2, 3, 4)


def test_chunks_of_rows_find_their_own_drafts(monkeypatch):
    from factorank.models import chunks

    model, other = (small_model(4, "insertion", kind, context=fr.ItemContext(9, 16)) for kind in
                    ("autoregressive", "masked"))  # fmt: skip
    items = torch.tensor([[3, 1, 8, 0], [5, 2, 7, 4]])
    monkeypatch.setitem(chunks.CHUNK, "cpu", 100 * 4 * 4 * 16)
    law = model.distribution(items, draft=other)
    drawn = law.sample((800,), generator=torch.Generator().manual_seed(1))
    for row in range(2):
        alone = model.distribution(items[row])
        assert_drawn_from(drawn[:, row], all_orders(4), alone.log_prob(all_orders(4)).exp().detach())


def test_refusals():
    masked, causal = small_model(4, "lehmer"), small_model(4, "lehmer", "autoregressive")
    for options in (
        {"nfe": 2, "unmask": "left-to-right"},
        {},
        {"unmask": "confident"},
        {"entropy_bound": 0.1},
    ):
        with pytest.raises(ModelError, match="reveal one position after the other"):
            masked.distribution(draft="self", **options)
    certain = masked.distribution(draft="self", unmask="left-to-right", entropy_bound=0.1, fixed=[0, 0, 0, 0])
    assert certain.sample().tolist() == [0, 1, 2, 3]
    with pytest.raises(ModelError, match="reveal one position after the other"):
        masked.distribution(draft="self", unmask="left-to-right", entropy_bound=0.1, fixed=[-1, 0, 0, 0])
    for draft in ("mine", causal, 3):
        with pytest.raises(ModelError, match="'self' or a masked PermutationModel"):
            causal.distribution(draft=draft)
    with pytest.raises(ModelError, match="not an autoregressive one"):
        causal.distribution(draft=causal)
    for other in (small_model(4, "insertion"), small_model(5, "lehmer")):
        with pytest.raises(ModelError, match="the same code, target, n and reference"):
            causal.distribution(draft=other)
    for ahead in (0, 5, 2.0, True):
        with pytest.raises(ModelError, match="ahead positions are drafted at a time, 1 to 4"):
            causal.distribution(draft="self", ahead=ahead)
    with pytest.raises(ModelError, match="has no draft"):
        causal.distribution().sample_with_report()
