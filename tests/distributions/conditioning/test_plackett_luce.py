import math

import torch

import factorank as fr


def test_plackett_luce_at_any_size():
    n, g = 300, torch.Generator().manual_seed(0)
    law = fr.PlackettLuce(3 * torch.randn(n, generator=g, dtype=torch.float64))
    observed = fr.random_permutations(n, generator=g)[:40]
    conditioned = law.condition(observed)
    draws = conditioned.sample((4000,), generator=g)
    assert conditioned.agrees(draws).all()
    torch.testing.assert_close(
        fr.inverse(draws).double().mean(0),
        conditioned.mean_ranks(),
        atol=4.5 * n / math.sqrt(4000) / 3,
        rtol=0,
    )
    torch.testing.assert_close(
        conditioned.log_evidence, fr.PlackettLuce(law.logits[observed]).log_prob(torch.arange(40))
    )
    assert (conditioned.log_prob(conditioned.mode) >= conditioned.log_prob(draws)).all()
