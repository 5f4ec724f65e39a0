"""Random ratings of users who have one of two tastes."""

import torch

from factorank.data.ratings import Ratings


def tastes(users: int = 60, items: int = 12, seed: int = 0) -> Ratings:
    """Half the users like even items, half odd ones; item i is also a little better than item i - 1.

    Every user rated most of the items. Relevances are 1..5 with a little noise.
    """
    generator = torch.Generator().manual_seed(seed)
    user, item = torch.meshgrid(torch.arange(users), torch.arange(items), indexing="ij")
    likes = (user + item) % 2 == 0
    noise = 0.3 * torch.randn((users, items), generator=generator)
    value = (2.0 + 1.5 * likes + item / items + noise).clamp(1, 5)
    rated = torch.rand((users, items), generator=generator) < 0.9
    return Ratings.from_rows(user[rated].tolist(), item[rated].tolist(), value[rated].tolist())
