"""One contract for the neural baselines: shapes, training, files, refusals, compiled and captured losses."""

import pytest
import torch
from torch import nn

import factorank as fr
from factorank.baselines import GumbelSinkhorn, RiffleDiffusion
from factorank.baselines.ordering import OrderingModel
from factorank.errors import FactorankError, ModelError, PermutationError
from factorank.sealed import read_sealed, write_sealed

CASES = {
    "gumbel-sinkhorn": (GumbelSinkhorn, {}),
    "gumbel-sinkhorn-half": (GumbelSinkhorn, {"gumbel": 0.5}),
    "riffle": (RiffleDiffusion, {}),
    "riffle-schedule": (RiffleDiffusion, {"schedule": [0, 3, 6]}),
}
every_case = pytest.mark.parametrize("case", CASES)


class Numbers(nn.Linear):
    """An encoder of single numbers that files can rebuild."""

    def __init__(self, width):
        super().__init__(1, width)

    def config(self):
        return {"width": self.out_features}


fr.register_context("test-numbers", Numbers)


def build(case, n=4, width=16, **options):
    cls, own = CASES[case]
    torch.manual_seed(0)
    return cls(n, Numbers(width), **{"width": width, "depth": 1, "heads": 2, **own, **options})


def numbers(rows, n, generator):
    """Numbers to sort, and the order that sorts them: ``numbers[order]`` rises."""
    x = torch.rand((rows, n, 1), generator=generator, device=generator.device)
    return x.squeeze(-1).argsort(-1), x


@every_case
@pytest.mark.parametrize("n", [1, 2, 5])
def test_shapes_of_any_batch(case, n, generator):
    model = build(case, n)
    for batch in ((), (0,), (3,), (2, 3)):
        context = torch.rand((*batch, n, 1), generator=generator)
        order = fr.random_permutations(n, batch, generator=generator)
        loss = model.loss(order.to(torch.int32), context, generator=generator)
        assert loss.shape == batch
        assert loss.isfinite().all()
        samples, mode = model.sample(context, (4,), generator=generator), model.mode(context)
        assert samples.shape == (4, *batch, n)
        assert mode.shape == (*batch, n)
        assert samples.dtype == mode.dtype == torch.int64
        assert fr.is_permutation(samples).all()
        assert fr.is_permutation(mode).all()


@every_case
def test_training_learns_to_sort(case, generator):
    model = build(case, width=32, depth=2)
    test_order, test = numbers(300, 4, torch.Generator().manual_seed(5))
    before = (model.mode(test) == test_order).all(-1).float().mean()
    fr.train(
        model,
        lambda rows, generator: numbers(rows, 4, generator),
        steps=150,
        batch_size=64,
        lr=1e-2,
        ema=0.97,
        device="cpu",
    )
    after = (model.mode(test) == test_order).all(-1).float().mean()
    assert before < 0.25
    assert after > 0.85
    solved = test.gather(1, model.mode(test)[..., None]).squeeze(-1)
    assert (solved.diff(dim=-1) > 0).all(-1).float().mean() == after


@every_case
def test_the_same_generator_gives_the_same(case):
    model = build(case)
    order, x = numbers(6, 4, torch.Generator().manual_seed(2))
    first, second = ([torch.Generator().manual_seed(7) for _ in range(2)] for _ in range(2))
    assert model.loss(order, x, generator=first[0]).equal(model.loss(order, x, generator=second[0]))
    assert model.sample(x, (9,), generator=first[1]).equal(model.sample(x, (9,), generator=second[1]))
    noise = model.noise(torch.Size([6]), device="cpu", generator=torch.Generator().manual_seed(7))
    assert model.loss(order, x, noise=noise).equal(
        model.loss(order, x, generator=torch.Generator().manual_seed(7))
    )
    assert all(part.shape[0] == 6 for part in noise)


@every_case
def test_modes_are_found_without_dropout(case, generator):
    model = build(case, dropout=0.5).train()
    _, x = numbers(20, 4, generator)
    assert model.mode(x).equal(model.eval().mode(x))
    model.train()
    model.mode(x)
    assert model.training
    assert model.network.training


@every_case
def test_solve_gives_the_modes_of_a_batch(case, generator):
    """Dropout is off, as for modes, and the number of evaluations is that of the schedule."""
    model = build(case, dropout=0.5).train()
    _, x = numbers(20, 4, generator)
    assert torch.equal(model.solve(x), model.mode(x))
    assert model.training
    if isinstance(model, RiffleDiffusion):
        assert torch.equal(model.solve(x, beam=3), model.mode(x, beam=3, paths=3))
        assert (model.nfe, model.default_beam) == (len(model.schedule) - 1, 200)
    else:
        assert (model.nfe, model.default_beam) == (1, None)


@every_case
def test_files(case, generator, tmp_path):
    model = build(case)
    _, x = numbers(20, 4, generator)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert not loaded.training
    assert loaded.config() == model.config()
    assert loaded.mode(x).equal(model.mode(x))
    assert type(OrderingModel.from_pretrained(tmp_path)) is type(model)
    passed_in = Numbers(16)
    assert type(model).from_pretrained(tmp_path, encoder=passed_in).encoder is passed_in


@every_case
def test_a_run_goes_on_from_its_checkpoint(case, tmp_path):
    data = numbers(64, 4, torch.Generator().manual_seed(5))
    options = {"batch_size": 16, "device": "cpu", "schedule": "constant", "warmup": 0}
    whole = build(case)
    fr.train(whole, data, steps=6, **options)
    part = build(case)
    fr.train(part, data, steps=3, out=tmp_path, **options)
    resumed = build(case)
    fr.train(resumed, data, steps=6, out=tmp_path, **options)
    for name, weight in whole.state_dict().items():
        assert weight.equal(resumed.state_dict()[name]), name
    loaded = type(whole).from_pretrained(tmp_path)
    assert loaded.mode(data[1]).equal(whole.mode(data[1]))


def test_damaged_files_are_refused(tmp_path):
    with pytest.raises(ModelError, match="does not hold a baseline of factorank"):
        GumbelSinkhorn.from_pretrained(tmp_path / "nowhere")
    build("gumbel-sinkhorn").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="kind 'gumbel-sinkhorn', not 'riffle-diffusion'"):
        RiffleDiffusion.from_pretrained(tmp_path)
    config, files = read_sealed(tmp_path, "config.json", ModelError, "a baseline")
    for change, message in (
        ({"version": 9}, "its version is 9"),
        ({"format": "x"}, "does not describe"),
        ({"n": 5}, "do not fit"),
        ({"colour": "red"}, "colour"),
    ):
        write_sealed(tmp_path, "config.json", config | change, files)
        with pytest.raises(FactorankError, match=message):
            GumbelSinkhorn.from_pretrained(tmp_path)
    write_sealed(tmp_path, "config.json", config | {"kind": "other"}, files)
    with pytest.raises(ModelError, match="kind 'other', not 'gumbel-sinkhorn' or 'riffle-diffusion'"):
        OrderingModel.from_pretrained(tmp_path)
    write_sealed(tmp_path, "config.json", config, files)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="7 bytes and should have"):
        GumbelSinkhorn.from_pretrained(tmp_path)


@every_case
def test_refusals(case):
    model = build(case)
    x = torch.rand(3, 4, 1)
    with pytest.raises(ModelError, match=r"batch shape \(3,\).*\(2, 4\)"):
        model.loss(fr.random_permutations(4, (2,)), x)
    with pytest.raises(ModelError, match="orders 4 pieces"):
        model.loss(fr.random_permutations(5, (3,)), x)
    with pytest.raises(PermutationError, match="twice"):
        model.loss(torch.tensor([[0, 1, 2, 2]] * 3), x)
    with pytest.raises(ModelError, match=r"gave \(3, 5, 16\), not tokens"):
        model.mode(torch.rand(3, 5, 1))
    with pytest.raises(ModelError, match="at least 1 piece"):
        build(case, n=0)
    with pytest.raises(ModelError, match="multiple of the heads"):
        build(case, heads=3)


@pytest.mark.gpu
@every_case
def test_trains_captured_on_a_gpu(case):
    model = build(case, width=32, depth=2)
    test_order, test = numbers(300, 4, torch.Generator("cuda").manual_seed(5))
    fr.train(
        model,
        lambda rows, generator: numbers(rows, 4, generator),
        steps=250,
        batch_size=128,
        lr=5e-3,
        ema=0.98,
        device="cuda",
        capture=True,
        precision="bf16",
    )
    assert (model.mode(test) == test_order).all(-1).float().mean() > 0.6
    assert fr.is_permutation(model.sample(test, generator=torch.Generator("cuda"))).all()


@every_case
def test_the_loss_is_one_graph(case, generator):
    """Nothing in it breaks the graph of the compiler; what the compiler makes of it is the same."""
    # The compiler unrolls the rounds of Sinkhorn's algorithm: a few are like many.
    model = build(case, **({"iterations": 3} if CASES[case][0] is GumbelSinkhorn else {}))
    order, x = numbers(6, 4, generator)
    noise = model.noise(torch.Size([6]), device="cpu", generator=generator)
    compiled = torch.compile(model.loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(order, x, noise=noise), model.loss(order, x, noise=noise))
    order[2, 1] = 7  # no permutation: refused where it can be looked at, and no number elsewhere
    assert compiled(order, x, noise=noise).isnan().tolist() == [False, False, True, False, False, False]


@pytest.mark.gpu
@every_case
def test_the_same_on_a_gpu(case, generator):
    model = build(case)
    order, x = numbers(50, 4, generator)
    noise = model.noise(torch.Size([50]), device="cpu", generator=generator)
    loss, mode = model.loss(order, x, noise=noise), model.mode(x)
    model.cuda()
    there = model.loss(order.cuda(), x.cuda(), noise=tuple(part.cuda() for part in noise))
    torch.testing.assert_close(there.cpu(), loss, atol=1e-3, rtol=1e-3)
    assert (model.mode(x.cuda()).cpu() == mode).all(-1).float().mean() > 0.9  # ties may fall differently
    if isinstance(model, RiffleDiffusion):
        likeliest = model.search(x.cuda(), beam=24, paths=5)[1].cpu()
        wanted = model.cpu().search(x, beam=24, paths=5)[1]
        torch.testing.assert_close(likeliest, wanted, atol=1e-3, rtol=1e-3)
