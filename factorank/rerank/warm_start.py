"""A ranker that goes on from an earlier one: new ratings, new users and new items.

What was learnt of an item stays with its id. A new item begins as one whose embedding was left out in
training: by its features. Factors are known up to a rotation, which is chosen to turn those of the items of
both tables into the earlier ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from factorank.errors import FactorankError
from factorank.models import PermutationModel
from factorank.rerank.item_features import ItemFeatures
from factorank.rerank.settings import Setting

if TYPE_CHECKING:
    from factorank.rerank.ranker import Ranker

SHARE = 0.25
"""Of the steps of the earlier training, unless a setting is given."""


def continued_setting(start: "Ranker", setting: Setting | None) -> Setting:
    """The setting of a training that goes on from a ranker."""
    if setting is not None:
        return setting
    if start.setting is None:
        raise FactorankError("the ranker to start from says nothing of its setting; give one")
    # A small table may have had fewer items than the setting's factors.
    rank = sum(name.startswith("factor ") for name in start.catalogue.features)
    steps = max(1, round(SHARE * start.setting.steps))
    return replace(start.setting, steps=steps, rank=rank or start.setting.rank)


def take_over(model: PermutationModel, features: ItemFeatures, ids: Sequence[Any], start: "Ranker") -> None:
    """Give a new model the weights of an earlier ranker's, and its features the earlier units."""
    old, context, before = start.model, model.context, start.model.context
    number = {name: index for index, name in enumerate(start.catalogue.ids)}
    source = torch.tensor([number.get(name, -1) for name in ids])
    shared, weights = source >= 0, dict(old.state_dict())
    if list(features.names) != list(start.catalogue.features):
        raise FactorankError(
            f"the ranker to start from reads the features {', '.join(start.catalogue.features) or 'none'};"
            f" these ratings have {', '.join(features.names) or 'none'}"
        )
    if (old.n, old.width) != (model.n, model.width):
        raise _another_network(old, model)
    for name, value in model.state_dict().items():
        if name == "context.embedding.weight":
            value.zero_()
            value[shared] = weights[name].to(value)[source[shared]]
        elif name == "context.table" or name.startswith("context.taste"):
            continue  # of the new ratings
        elif name not in weights or weights[name].shape != value.shape:
            raise _another_network(old, model)
        else:
            value.copy_(weights[name])
    if features.table is not None:
        table = features.table.cpu().float()
        factors = [place for place, name in enumerate(features.names) if name.startswith("factor ")]
        if factors:
            earlier = before.table.cpu() * before.scale.cpu() + before.mean.cpu()  # type: ignore[union-attr,operator]
            table[:, factors] = turned(table[:, factors], earlier[:, factors], source)
        context.set_features(table, units=(before.mean, before.scale))  # type: ignore[union-attr,operator]


def _another_network(old: PermutationModel, model: PermutationModel) -> FactorankError:
    was, now = (
        f"n = {each.n}, width {each.width}, {len(each.state_dict())} weights" for each in (old, model)
    )
    return FactorankError(f"the ranker to start from has another network: {was}; this setting has {now}")


def turned(factors: Tensor, earlier: Tensor, source: Tensor) -> Tensor:
    """Factors ``(items, k)`` rotated to be nearest to earlier ones; ``source (items,)`` is the number that an
    item had then, -1 for a new one.

    >>> rotation = torch.linalg.qr(torch.randn(3, 3))[0]
    >>> earlier = torch.randn(10, 3)
    >>> again = turned(earlier @ rotation, earlier, torch.arange(10))
    >>> torch.allclose(again, earlier, atol=1e-5)
    True
    """
    shared = source >= 0
    if not bool(shared.any()):
        return factors
    left, _, right = torch.linalg.svd(factors[shared].double().T @ earlier[source[shared]].double())
    return (factors.double() @ (left @ right)).to(factors.dtype)
