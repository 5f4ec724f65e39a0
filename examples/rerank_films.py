"""Re-rank a list for one user from what the user has said of a few items.

    python examples/rerank_films.py

The ratings are drawn here: users like either the first or the second half of the films. With real ones:
``fr.load_ratings("ratings.csv")``, a pandas or a polars frame with the columns user, item and rating.
"""

import torch

import factorank as fr

FILMS = 12


def drawn_ratings(users: int, generator: torch.Generator) -> fr.Ratings:
    """Ratings 1 to 5 by users of two tastes."""
    rows = []
    for user in range(users):
        likes_first = user % 2 == 0
        for film in range(FILMS):
            liked = (film < FILMS // 2) == likes_first
            noise = torch.rand((), generator=generator).item()
            rows.append((user, film, (4 if liked else 2) + (noise > 0.6) - (noise < 0.2)))
    return fr.Ratings.from_rows(*zip(*rows, strict=True))


def main(users: int = 400, steps: int = 300, seed: int = 0) -> tuple[list[int], list[int]]:
    """Print the lists of two users; their first five films."""
    ratings = drawn_ratings(users, torch.Generator().manual_seed(seed))
    setting = fr.rerank.preset("small", n=FILMS, steps=steps)
    ranker = fr.Ranker.fit(ratings, setting=setting, device="cpu")
    lists = []
    for observed in ([1, 9, 10], [9, 1, 2]):  # best first: what the user has said
        answer = ranker.rerank(items=list(range(FILMS)), observed=observed, k=5)
        lists.append(list(answer.items[:5]))
        print(f"prefers {observed[0]} to {observed[1]} to {observed[2]}: {answer.items[:5]}")
    return lists[0], lists[1]


if __name__ == "__main__":
    main()
