"""On a GPU: the same numbers as on the CPU, and a loss that can be captured and compiled."""

import pytest
import torch

import factorank as fr
from factorank.kernels import dispatch
from factorank.kernels.gpu.graphs import replayed
from tests.kernels.gpu.captured import captured
from tests.models.naive import all_orders, assert_drawn_from, small_model

pytestmark = pytest.mark.gpu


def same(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


CASES = [(code, objective) for code in ("lehmer", "insertion") for objective in ("masked", "autoregressive")]


@pytest.mark.parametrize(("code", "objective"), CASES)
def test_same_law_as_on_the_cpu(code, objective):
    model, orders = small_model(4, code, objective, context=fr.ItemContext(9, 16)), all_orders(4)
    items = torch.tensor([[5, 2, 8, 0], [1, 2, 3, 4]])
    options = {} if objective == "autoregressive" else {"unmask": "confident", "nfe": 2}
    here = model.distribution(items, **options).log_prob(orders[:, None]).detach()
    model.cuda()
    law = model.distribution(items.cuda(), **options)
    torch.testing.assert_close(law.log_prob(orders[:, None].cuda()).cpu(), here, atol=1e-3, rtol=1e-3)
    samples = law.sample((3000,), generator=torch.Generator("cuda").manual_seed(0)).cpu()
    for row in range(2):
        assert_drawn_from(samples[:, row], orders, here[:, row].exp())
    assert law.mode.is_cuda
    if code == "insertion":
        observed = model.distribution(items.cuda(), observed=torch.tensor([3, 0]).cuda(), **options).sample(
            (50,)
        )
        assert ((observed == 3).int().argmax(-1) < (observed == 0).int().argmax(-1)).all()


@pytest.mark.parametrize(("code", "objective"), CASES)
def test_loss_can_be_captured(code, objective):
    """A captured training step waits for nothing, and replays on new data."""
    model = small_model(4, code, objective).cuda()
    orders = fr.random_permutations(4, (64,), device="cuda")
    noise = model.noise(orders.shape[:-1], device="cuda")

    def step():
        model.zero_grad(set_to_none=False)
        loss = model.loss(orders, noise=noise).mean()
        loss.backward()
        return loss

    graph, loss = captured(step)
    orders.copy_(fr.random_permutations(4, (64,), device="cuda"))
    graph.replay()
    torch.testing.assert_close(loss, model.loss(orders, noise=noise).mean())


def test_loss_compiles_and_runs_in_bfloat16():
    model = small_model(4, "insertion").cuda()
    orders = fr.random_permutations(4, (64,), device="cuda")
    noise = model.noise(orders.shape[:-1], device="cuda")
    compiled = torch.compile(model.loss, fullgraph=True)
    torch.testing.assert_close(
        compiled(orders, noise=noise), model.loss(orders, noise=noise), atol=1e-3, rtol=1e-3
    )
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model.loss(orders, noise=noise)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, model.loss(orders, noise=noise), atol=0.2, rtol=0.1)


def test_faulty_orders_are_not_a_number():
    model = small_model(4, "lehmer").cuda()
    losses = model.loss(torch.tensor([[0, 1, 2, 3], [0, 1, 2, -1]], device="cuda"))
    assert losses.isnan().tolist() == [False, True]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(
    "options", [{"nfe": 1}, {"nfe": 3}, {"nfe": 2, "unmask": "confident"}, {"objective": "autoregressive"}]
)
def test_recorded_draws_are_those_of_the_generator(options, narrow):
    """Called, recorded and replayed, a draw takes the same numbers; a changed weight counts at once."""
    objective = options.get("objective", "masked")
    model = small_model(5, "lehmer", objective, width=64, heads=2).cuda()
    law = model.distribution(**{name: value for name, value in options.items() if name != "objective"})
    generator = torch.Generator("cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=narrow):
        drawn = [law.sample((500,), generator=generator.manual_seed(7)).clone() for _ in range(4)]
        assert all(torch.equal(orders, drawn[0]) for orders in drawn)
        assert not torch.equal(law.sample((500,), generator=generator), drawn[0])
        for _ in range(2):
            assert fr.is_permutation(law.sample((500,))).all()
        with torch.no_grad():
            model.network.head.bias.zero_()[:, 0] = 100
        assert (law.sample((500,), generator=generator) == torch.arange(5, device="cuda")).all()


@pytest.mark.parametrize(
    "options", [{"nfe": 1}, {"nfe": 3}, {"nfe": 2, "unmask": "confident"}, {"objective": "autoregressive"}]
)
def test_recorded_draws_for_new_contexts_are_those_of_the_generator(options):
    """Laws made one after the other share a recording, each with its own context."""
    objective = options.pop("objective", "masked")
    model = small_model(5, "lehmer", objective, width=64, heads=2, context=fr.ItemContext(9, 64)).cuda()
    contexts = [torch.randint(9, (6, 5), device="cuda") for _ in range(5)]
    generator = torch.Generator("cuda")

    def drawn():
        return [
            model.distribution(items, **options).sample((50,), generator=generator.manual_seed(i))
            for i, items in enumerate(contexts)
        ]

    bias = model.network.head.bias
    before, recorded = bias.detach().clone(), drawn()
    with torch.no_grad():
        bias[:, 0] += 1
    changed = drawn()
    with dispatch.plain("recording"):
        assert same(changed, drawn())
    with torch.no_grad():
        bias.copy_(before)
    assert same(recorded, drawn())


@pytest.mark.parametrize("options", [{"nfe": 1}, {"nfe": 3}, {"objective": "autoregressive"}])
def test_recorded_draws_outlive_the_autocast_they_were_recorded_in(options):
    """The narrow weights that autocast keeps end with it; a recording must not read where they were."""
    objective = options.pop("objective", "masked")
    model = small_model(40, "lehmer", objective, width=64, heads=2).cuda()
    law, generator = model.distribution(**options), torch.Generator("cuda")
    drawn = []
    for _ in range(4):
        with torch.autocast("cuda", torch.bfloat16):
            drawn.append(law.sample((100,), generator=generator.manual_seed(7)))
        torch.full((2**24,), torch.nan, device="cuda")
        for size in (64, 256, 64 * 64, 64 * 256):
            [torch.full((size,), torch.nan, device="cuda", dtype=torch.bfloat16) for _ in range(100)]
    assert all(torch.equal(orders, drawn[0]) for orders in drawn)


def test_what_cannot_be_recorded_is_called_with_a_warning():
    model = torch.nn.Linear(4, 4).cuda()
    inputs = torch.randn(8, 4, device="cuda")

    def waiting(tensor):
        return model(tensor) * float(tensor.sum())

    with torch.no_grad():
        expected = waiting(inputs)
        assert torch.equal(replayed(model, "waits", waiting, inputs, 8), expected)
        with pytest.warns(UserWarning, match="kernel by kernel"):
            assert torch.equal(replayed(model, "waits", waiting, inputs, 8), expected)
        assert torch.equal(replayed(model, "waits", waiting, inputs, 8), expected)
        for _ in range(3):
            assert torch.equal(replayed(model, "forward", model, inputs, 8), model(inputs))
    torch.rand(3, device="cuda")  # the generator draws again
