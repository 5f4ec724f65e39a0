"""Out of memory says what to lower; long lists are sampled in parts, so that they do not get there."""

import pytest
import torch

import factorank as fr
from factorank.errors import short_of_memory
from factorank.models import chunks
from factorank.models.network import Network


def test_too_many_samples():
    model = fr.PermutationModel(4, "lehmer", width=8, depth=1, heads=1)
    with pytest.raises(RuntimeError, match="allocate") as caught:
        model.distribution(nfe=1).sample((10**13,))
    assert caught.value.__notes__ == [
        "the result alone takes 320,000,000,000,000 bytes: draw fewer samples at once; what the network takes"
        f" follows factorank.models.chunks.CHUNK, now {chunks.CHUNK}"
    ]


def test_too_large_a_batch(monkeypatch):
    model = fr.PermutationModel(4, "lehmer", width=8, depth=1, heads=1)
    loss = model.loss

    def hungry(order, context=None, **random):
        if len(order) > 2:
            torch.empty(10**15)
        return loss(order, context, **random)

    monkeypatch.setattr(model, "loss", hungry)
    with pytest.raises(RuntimeError, match="allocate") as caught:
        fr.train(model, fr.random_permutations(4, (32,)), steps=1, batch_size=16, device="cpu")
    assert caught.value.__notes__ == ["lower batch_size (now 16); accumulate makes up for it"]


def test_other_errors_get_no_advice():
    with pytest.raises(RuntimeError) as caught, short_of_memory("lower it"):
        raise RuntimeError("something else")
    assert not hasattr(caught.value, "__notes__")


def test_parts_of_a_long_list_hold_as_many_numbers_as_stated(monkeypatch):
    """n = 1000: no evaluation holds more than CHUNK numbers in its widest tensor, unless for one sample."""
    model = fr.PermutationModel(1000, "lehmer", width=8, depth=1, heads=1)
    seen, hidden = [], Network.hidden

    def watched(self, code, *rest):
        seen.append(code.numel() * 2 * self.n)
        return hidden(self, code, *rest)

    monkeypatch.setattr(Network, "hidden", watched)
    order = model.distribution(nfe=2).sample((5,))
    assert fr.is_permutation(order).all()
    assert len(seen) == 1 + 3  # the first evaluation is shared; then two samples at a time
    assert max(seen) <= chunks.CHUNK["cpu"]
