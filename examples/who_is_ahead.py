"""Who is really ahead: a leaderboard from battles, with the ranks that each item can have.

    python examples/who_is_ahead.py

The battles are drawn here, from known strengths; a table with the columns model_a, model_b and winner is all
that is needed: a dict, a pandas or a polars frame.
"""

import torch

import factorank as fr

STRENGTHS = {"ash": 1.2, "beech": 1.1, "cedar": 0.5, "date": 0.0, "elm": -0.1, "fir": -1.0}


def drawn_battles(count: int, generator: torch.Generator) -> dict[str, list[str]]:
    """Battles of two items drawn at random, a tenth of them ties."""
    names, columns = list(STRENGTHS), {"model_a": [], "model_b": [], "winner": []}
    for _ in range(count):
        a, b = torch.randperm(len(names), generator=generator)[:2].tolist()
        lead = STRENGTHS[names[a]] - STRENGTHS[names[b]]
        tie, win = torch.rand(2, generator=generator).tolist()
        first_wins = win < 1 / (1 + torch.tensor(-lead).exp().item())
        columns["model_a"].append(names[a])
        columns["model_b"].append(names[b])
        columns["winner"].append("tie" if tie < 0.1 else "model_a" if first_wins else "model_b")
    return columns


def main(battles: int = 1500, seed: int = 0) -> dict[str, tuple[int, int]]:
    """Print the leaderboard; the ranks that each item can have, all together at 95%."""
    board = fr.Leaderboard.fit(drawn_battles(battles, torch.Generator().manual_seed(seed)))
    table = board.table
    print(f"{'item':8}{'score':>7}  {'95% interval':16}{'rank':>6}{'together':>10}{'P(best)':>9}{'tier':>6}")
    sets = {}
    for i, item in enumerate(table["item"]):
        rank = f"{table['rank_low'][i]}-{table['rank_high'][i]}"
        sets[item] = (table["rank_low_simultaneous"][i], table["rank_high_simultaneous"][i])
        interval = f"{table['low'][i]:6.2f} to {table['high'][i]:.2f}"
        shown = (
            f"{item:8}{table['score'][i]:7.2f}  {interval:16}{rank:>6}{'-'.join(map(str, sets[item])):>10}"
        )
        print(f"{shown}{table['p_best'][i]:9.0%}{table['tier'][i]:6}")
    first, second = table["item"][:2]
    print(f"\ncertain: {', '.join(f'{a} > {b}' for a, b in board.certain())}")
    print(f"battles that would separate {first} and {second}: {board.battles_to_separate(first, second):,}")
    return sets


if __name__ == "__main__":
    main()
