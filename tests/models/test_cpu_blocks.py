"""On CPUs a whole stack of blocks is one operator: the same numbers as the plain blocks, there and back."""

import pytest
import torch

from factorank.models import attention, cpu_blocks, cpu_kernels, cpu_layers
from factorank.models.transformer import Transformer


@pytest.fixture
def plainly(monkeypatch):
    """Turns our own kernels off, or on again."""
    return lambda off: monkeypatch.setattr(attention, "FAST", not off)


def stack(width, depth, heads, dropout=0.0, dtype=torch.float32):
    torch.manual_seed(width + depth)
    made = Transformer(width, depth, heads, dropout).to(dtype).train()
    for weight in made.parameters():
        if weight.ndim == 1:  # gains of one and shifts of zero would hide what is done with them
            torch.nn.init.normal_(weight, std=0.3)
    return made


def keys(rows, tokens, kind):
    if kind != "masked":
        return None
    mask = torch.rand(rows, 1, 1, tokens) < 0.6
    mask[..., 0] = True
    return mask


def there_and_back(blocks, x, mask, causal):
    """The output and all gradients, for a fixed random direction."""
    torch.manual_seed(5)
    blocks.zero_grad()
    leaf = x.clone().requires_grad_()
    out = blocks(leaf, mask, causal)
    direction = torch.randn(out.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    (out * direction).sum().backward()
    return [out.detach(), leaf.grad, *(weight.grad.clone() for weight in blocks.parameters())]


@pytest.mark.parametrize("kind", ["all", "causal", "masked"])
@pytest.mark.parametrize(("tokens", "width", "heads", "dropout"), [
    (1, 16, 1, 0.0), (2, 24, 3, 0.1), (8, 32, 2, 0.0), (10, 64, 8, 0.3), (17, 20, 2, 0.0), (64, 16, 2, 0.1),
])  # fmt: skip
def test_equals_the_plain_blocks(kind, tokens, width, heads, dropout, plainly):
    blocks = stack(width, 2, heads, dropout)
    for rows in (8, 16, 41):
        torch.manual_seed(rows)
        x, mask = torch.randn(rows, tokens, width), keys(rows, tokens, kind)
        assert cpu_blocks.fits(x, list(blocks.parameters()))
        plainly(False)
        got = there_and_back(blocks, x, mask, kind == "causal")
        plainly(True)
        wanted = there_and_back(blocks, x, mask, kind == "causal")
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6 * float(other.abs().max()) + 1e-6)


@pytest.mark.parametrize(("kind", "dropout"), [("all", 0.0), ("causal", 0.0), ("masked", 0.4)])
def test_gradients_are_those_of_the_function(kind, dropout):
    blocks = stack(4, 2, 2, dropout, torch.float64)
    x = torch.randn(9, 3, 4, dtype=torch.float64, requires_grad=True)
    mask, weights = keys(9, 3, kind), list(blocks.parameters())

    def call(x, *weights):
        torch.manual_seed(2)
        present = None if mask is None else mask[:, 0, 0]
        return cpu_blocks.apply(x, weights, present, heads=2, causal=kind == "causal", dropout=dropout)

    assert torch.autograd.gradcheck(call, (x, *weights))


def test_exponential_and_tail_are_exact_to_rounding():
    u = torch.cat([torch.linspace(-14, 14, 200_001), torch.tensor([0.0, -0.0, 1e-30, -100.0, 100.0])])
    out, slope = torch.empty_like(u), u.clone()
    cpu_layers.gelu(slope.numpy(), out.numpy(), True)
    x = u.double()
    below, density = 0.5 * torch.erfc(-x * 0.5**0.5), torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5
    # The square of a float32 is rounded: exp(-x²/2) is off by x²/2 parts in 2^24.
    torch.testing.assert_close(out.double(), x * below, rtol=2e-5, atol=1e-36)
    torch.testing.assert_close(slope.double(), below + x * density, rtol=2e-5, atol=2e-7)
    small = x.abs() < 2
    torch.testing.assert_close(out.double()[small], (x * below)[small], rtol=1e-6, atol=1e-7)


def test_without_gradients_nothing_is_kept_and_the_result_is_the_same(plainly):
    blocks = stack(16, 3, 2).eval()
    x, mask = torch.randn(100, 5, 16), keys(100, 5, "masked")
    with torch.no_grad():
        got = [blocks(x), blocks(x, mask)]
    torch.testing.assert_close(got, [blocks(x).detach(), blocks(x, mask).detach()], rtol=0, atol=0)
    plainly(True)
    for one, other in zip(got, [blocks(x), blocks(x, mask)], strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


def test_tokens_asked_for_are_those_of_all(plainly):
    blocks = stack(16, 2, 2).eval()
    x, positions = torch.randn(50, 6, 16), torch.rand(50, 6).argsort(-1)[:, :4]
    wanted = blocks(x).detach().gather(1, positions[..., None].expand(-1, -1, 16))
    torch.testing.assert_close(blocks(x, positions=positions), wanted)
    with torch.no_grad():
        torch.testing.assert_close(blocks(x, positions=positions), wanted)
        plainly(True)
        torch.testing.assert_close(blocks(x, positions=positions), wanted, rtol=2e-5, atol=2e-5)


@pytest.fixture
def threads(monkeypatch):
    """Lets torch have that many threads, and small batches be worth them."""
    before = torch.get_num_threads()
    monkeypatch.setattr(cpu_blocks, "GRAIN", 1)
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(("kind", "dropout"), [("all", 0.0), ("causal", 0.2), ("masked", 0.1)])
def test_two_threads_equal_the_plain_blocks_and_repeat_bit_by_bit(kind, dropout, threads, plainly):
    blocks, rows = stack(24, 2, 3, dropout), 75
    torch.manual_seed(0)
    x, mask = torch.randn(rows, 6, 24), keys(rows, 6, kind)
    made = {}
    for count in (1, 2, 3):
        threads(count)
        made[count] = there_and_back(blocks, x, mask, kind == "causal")
        for _ in range(5):
            again = there_and_back(blocks, x, mask, kind == "causal")
            assert all(map(torch.equal, again, made[count]))
    plainly(True)
    wanted = there_and_back(blocks, x, mask, kind == "causal")
    for got in made.values():
        assert torch.equal(got[0], made[1][0])  # lists do not depend on the thread that has them
        assert torch.equal(got[1], made[1][1])
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6 * float(other.abs().max()) + 1e-6)


def test_an_error_in_another_thread_is_raised_here(threads, monkeypatch):
    threads(2)
    blocks, x = stack(16, 1, 2), torch.randn(64, 4, 16)

    def fail_for_the_second(*args):
        if args[-5] > 0:
            raise MemoryError("no room")

    monkeypatch.setattr(cpu_kernels, "forward", fail_for_the_second)
    with pytest.raises(MemoryError, match="no room"):
        blocks(x)


def test_what_has_no_kernel_goes_to_the_plain_blocks():
    blocks = stack(16, 1, 2)
    weights = list(blocks.parameters())
    good = torch.randn(8, 4, 16)
    assert cpu_blocks.fits(good, weights)
    for x in (good[:7], torch.randn(8, 65, 16), good.half(), good.double()):
        assert not cpu_blocks.fits(x, weights)
    for tokens, width in ((4, 132), (33, 64)):
        assert not cpu_blocks.fits(torch.randn(8, tokens, width), list(stack(width, 1, 2).parameters()))
    assert cpu_blocks.fits(torch.randn(8, 32, 64), list(stack(64, 1, 2).parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        assert not cpu_blocks.fits(good, weights)
    mask = torch.ones(8, 1, 4, 4, dtype=torch.bool).tril()  # by query: only the plain blocks can
    torch.testing.assert_close(blocks(good, mask), blocks(good, causal=True), rtol=1e-5, atol=1e-5)


def test_two_graphs_at_once_and_one_graph_twice():
    blocks = stack(16, 2, 2)
    x, y = torch.randn(20, 4, 16, requires_grad=True), torch.randn(20, 4, 16, requires_grad=True)
    first, second = blocks(x).square().sum(), blocks(y).square().sum()
    alone = [torch.autograd.grad(blocks(one).square().sum(), one)[0] for one in (x, y)]
    for loss, leaf, wanted in ((second, y, alone[1]), (first, x, alone[0])):
        for _ in range(2):
            torch.testing.assert_close(torch.autograd.grad(loss, leaf, retain_graph=True)[0], wanted)
    out = blocks(x).sum()
    with torch.no_grad():
        next(iter(blocks.parameters())).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()
