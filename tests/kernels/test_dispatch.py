"""The table of conditions, line by line, and the switch: what runs inside of ``plain``."""

import threading

import pytest
import torch

from factorank.kernels import dispatch
from factorank.kernels.attention import BlockCache
from factorank.kernels.dispatch import BF16, F32, TRITON, Facts, block_facts

GPU = Facts(cuda=True, triton=True, generations=(9,), width=128, head=16, rows=32, tokens=10)
NARROW = GPU._replace(autocast=BF16)


def takes(path, facts, **changes):
    return dispatch.runs_fast(path, facts._replace(**changes))


@pytest.mark.parametrize(
    ("path", "facts"),
    [
        ("attention", GPU),
        ("blocks", NARROW),
        ("cache", NARROW._replace(tokens=1, single=True)),
        ("edges", NARROW._replace(message=16)),
        ("update", GPU._replace(step_captured=True)),
        ("sums", GPU._replace(width=64)),
        ("capture", GPU),
        ("recording", GPU),
    ],
)
def test_each_path_runs_on_a_gpu_and_nowhere_else(path, facts):
    assert takes(path, facts)
    assert not takes(path, facts, cuda=False)
    assert takes(path, facts, triton=False) == (path in ("sums", "capture", "recording"))
    with dispatch.plain(path):
        assert not takes(path, facts)
    with dispatch.plain():
        assert not takes(path, facts)


def test_attention():
    for dtype in (F32, BF16):
        assert takes("attention", GPU, dtype=dtype, autocast=None)
    assert takes("attention", GPU, tokens=64, head=64, grad=True, compiling=True, rows=10**6)
    assert not takes("attention", GPU, tokens=65)
    assert not takes("attention", GPU, head=8)
    assert not takes("attention", GPU, head=128)
    assert not takes("attention", GPU, keys_only=False)


def test_blocks():
    assert takes("blocks", NARROW, tokens=64, width=64, head=32, grad=True)
    assert not takes("blocks", NARROW, autocast=None)
    assert not takes("blocks", NARROW, autocast=torch.float16)
    assert not takes("blocks", NARROW, dtype=BF16)
    assert not takes("blocks", NARROW, weights=BF16)
    assert not takes("blocks", NARROW, weights=None)
    assert not takes("blocks", NARROW, keys_only=False)
    for tokens in (0, 65):
        assert not takes("blocks", NARROW, tokens=tokens)
    for width, head in ((256, 32), (32, 16), (128, 64), (64, 8)):
        assert not takes("blocks", NARROW, width=width, head=head)
    assert takes("blocks", NARROW, rows=10**6)
    assert takes("blocks", NARROW, rows=24, tokens=1024 // 16, compiling=True)
    assert takes("blocks", NARROW, rows=24_576 // 64, tokens=64, compiling=True)
    assert not takes("blocks", NARROW, rows=24_576 // 64 + 1, tokens=64, compiling=True)


def test_cache():
    facts = NARROW._replace(tokens=1, single=True)
    assert not takes("cache", facts, single=False)
    assert not takes("cache", facts, grad=True)
    assert not takes("cache", facts, width=256)
    assert not takes("cache", facts, autocast=None)


def test_edges():
    facts = NARROW._replace(message=16)
    assert takes("edges", facts, tokens=64, width=64, generations=(10, 9), compiling=True, rows=10**6)
    assert not takes("edges", facts, generations=(9, 8))
    assert not takes("edges", facts, message=8)
    assert not takes("edges", facts, autocast=None)
    assert not takes("edges", facts, weights=None)
    for tokens, width in ((0, 64), (65, 64), (9, 32), (9, 256)):
        assert not takes("edges", facts, tokens=tokens, width=width)


def test_sums(generator, monkeypatch):
    assert not takes("sums", GPU, width=65)
    x = torch.rand((2, 3, 7), generator=generator, dtype=torch.float64)
    plain = dispatch.cumulative_sums(x)
    assert torch.equal(plain, x.cumsum(-1))
    monkeypatch.setitem(dispatch.CONDITIONS, "sums", lambda facts: True)
    torch.testing.assert_close(dispatch.cumulative_sums(x), plain)


def test_update():
    facts = GPU._replace(step_captured=True)
    assert not takes("update", facts, step_captured=False)
    assert not takes("update", facts, alone=False)
    assert not takes("update", facts, weights=BF16)
    weights = [torch.zeros(4, 3), torch.zeros(2)]
    assert not dispatch.fuses_update(weights, captured=True, alone=True)  # they are on the CPU


def test_capture():
    assert not takes("capture", GPU, processes=2)
    assert dispatch.captures_step(torch.device("cuda"), 1)
    assert not dispatch.captures_step(torch.device("cuda"), 2)
    assert not dispatch.captures_step(torch.device("cpu"), 1)


def test_recording():
    assert takes("recording", GPU, rows=1, tokens=2**17)
    assert not takes("recording", GPU, rows=1, tokens=2**17 + 1)
    assert not takes("recording", GPU, capturing=True)
    assert not dispatch.records(torch.device("cpu"), 10)


def test_recording_asks_whether_the_stream_is_being_captured(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert dispatch.records(gpu, 1000)
    assert not dispatch.records(gpu, 2**17 + 1)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert not dispatch.records(gpu, 1000)


def test_the_facts_of_a_stack():
    """Seen through tensors that claim to lie on a GPU."""
    with torch._subclasses.FakeTensorMode():
        x = torch.empty((7, 10, 128), device="cuda")
        mask = torch.ones((7, 1, 1, 10), dtype=torch.bool, device="cuda")
        expected = Facts(cuda=True, triton=TRITON, rows=7, tokens=10, width=128, head=16)
        assert block_facts(x, 8, mask) == block_facts(x, 8) == expected
        assert not block_facts(x, 8, mask.expand(-1, -1, 10, -1)).keys_only
        assert not block_facts(x, 8, torch.ones((10, 10), device="cuda")).keys_only
        assert block_facts(x.bfloat16(), 8).dtype == BF16


def test_weights_are_looked_at_last(monkeypatch):
    """They must all be in float32, and are not even listed where the rest does not fit."""
    x, plain, listed = torch.zeros(2, 3, 64), (lambda x, mask, causal: x + 1), []

    def stack(*weights):
        def parameters():
            listed.append(len(weights))
            return weights

        return dispatch.blocks(x, parameters, None, heads=2, causal=False, dropout=0.0, plain=plain)

    assert torch.equal(stack(torch.zeros(2)), x + 1)
    assert not listed
    monkeypatch.setitem(dispatch.CONDITIONS, "blocks", lambda facts: facts.weights == F32)
    assert torch.equal(stack(torch.zeros(2), torch.zeros(2, dtype=BF16)), x + 1)
    assert torch.equal(stack(), x + 1)
    assert listed == [2, 0]


def test_plain_nests_and_ends():
    with dispatch.plain():
        with dispatch.plain("blocks"):
            assert dispatch.is_plain("blocks")
        assert dispatch.is_plain("blocks")
        assert dispatch.switched_off() == tuple(sorted(dispatch.get_args(dispatch.Path)))
    assert dispatch.switched_off() == ()
    with dispatch.plain("edges"), pytest.raises(ValueError, match="no"), dispatch.plain("edges", "blocks"):
        raise ValueError("no")
    assert not dispatch.is_plain("edges")


def test_plain_holds_for_its_own_thread():
    switched = []
    with dispatch.plain():
        thread = threading.Thread(target=lambda: switched.append(dispatch.is_plain("attention")))
        thread.start()
        thread.join()
        assert dispatch.is_plain("attention")
    assert switched == [False]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_compiled_code_follows_the_switch():
    def choose(x):
        facts = NARROW._replace(cuda=not x.is_cuda, rows=x.shape[0], compiling=torch.compiler.is_compiling())
        return x + 1 if dispatch.runs_fast("blocks", facts) else x - 1

    compiled = torch.compile(choose, fullgraph=True, backend="eager")
    x = torch.zeros(3)
    for _ in range(2):
        assert compiled(x)[0] == 1
        with dispatch.plain("blocks"):
            assert compiled(x)[0] == -1
        with dispatch.plain("edges"):
            assert compiled(x)[0] == 1
    assert compiled(torch.zeros(3000))[0] == -1  # too many tokens


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_on_the_cpu_the_twins_run_compiled_or_not():
    qkv = torch.randn(3, 5, 3, 2, 16)
    expected = torch.nn.functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4))
    expected = expected.transpose(1, 2).reshape(3, 5, 32)
    compiled = torch.compile(dispatch.attention, fullgraph=True, backend="eager")
    for attend in (dispatch.attention, compiled):
        torch.testing.assert_close(attend(qkv), expected)
    cache = dispatch.cache(torch.zeros(2, 1, 64), list, [], heads=4, capacity=3, single=True)
    assert isinstance(cache, BlockCache)
