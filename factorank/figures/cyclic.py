"""The figures of the cyclic experiment: results against the NFE, and the curves of runs."""

import os
from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import CODE_STYLES, means, pyplot_module, read_results, save

FROM_THE_END = ("left-lehmer", "insertion")
"""The codes whose last values say something by themselves; see :mod:`factorank.experiments.cyclic`."""


def cyclic_figure(
    results: str | os.PathLike[str], path: str | os.PathLike[str], unmask: str | None = None
) -> None:
    """Against the NFE: different samples, valid ones, cyclic ones, and the divergence from the uniform law.

    Lines are masked models, white marks at the right autoregressive ones; means over the seeds. ``unmask`` is
    the order of revealing; each code's own end unless given.
    """
    pyplot = pyplot_module()
    rows = [
        row
        for row in read_results(results)
        if (from_own_end(row) if unmask is None else row["unmask"] == unmask)
    ]
    if not rows:
        raise FactorankError(f"{results} holds no results of unmasking {unmask or 'each code from its end'}")
    n, expected = rows[0]["n"], 100 * rows[0]["unique_expected"]
    panels = {
        "unique": "unique (%)",
        "unique_valid": "unique and valid (%)",
        "unique_cyclic": "unique, valid and cyclic (%)",
        "kl": "KL to uniform (bits)",
    }
    alone = not any(row["objective"] == "autoregressive" for row in rows)
    beside = "" if alone else f"\nright of {n}, white: autoregressive, NFE {n}"
    figure, axes = pyplot.subplots(1, len(panels), figsize=(15, 4.3), layout="constrained")
    for axis, (key, title) in zip(axes, panels.items(), strict=True):
        for place, (code, (grey, mark, line)) in enumerate(CODE_STYLES.items()):
            for objective in ("masked", "autoregressive"):
                chosen = [row for row in rows if (row["code"], row["objective"]) == (code, objective)]
                points = means(chosen, "nfe", key, 1 if key == "kl" else 100)
                if not points:
                    continue
                masked = objective == "masked"
                # Codes that agree would hide each other: each is drawn a little beside the NFE.
                aside = 0.05 * (place - 2) if masked else 0.45 + 0.13 * place
                axis.plot(
                    [nfe + aside for nfe, _ in points],
                    [value for _, value in points],
                    color=grey,
                    marker=mark,
                    markersize=5.5,
                    markerfacecolor=grey if masked else "white",
                    linestyle=line if masked else "none",
                    linewidth=1.2,
                    label=f"{code}, {objective}",
                )
        if key == "kl":
            axis.set_yscale("symlog", linthresh=0.01)
            axis.set_ylim(bottom=0)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        else:
            axis.axhline(expected, color="black", linestyle=":", linewidth=1.2, label="a perfect model")
            axis.set_ylim(-4, 104)
        if key == "unique_cyclic":
            axis.axhline(
                100 / n, color="0.5", linestyle=(0, (6, 3)), linewidth=1.2, label="random permutations"
            )
        axis.set(title=title, xlabel="network evaluations (NFE)" + beside, xticks=range(1, n + 1))
        axis.grid(alpha=0.3)
    handles, labels = axes[2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=6, fontsize=9, frameon=False)
    save(figure, path)


def from_own_end(row: dict[str, Any]) -> bool:
    """Whether a row of results reveals the positions of its code from the code's own end.

    >>> from_own_end({"objective": "masked", "code": "insertion", "unmask": "right-to-left"})
    True
    """
    backward = row["objective"] == "masked" and row["code"] in FROM_THE_END
    return bool(row["unmask"] == ("right-to-left" if backward else "left-to-right"))


def curve_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """During training: cyclic samples against the share of them that was trained on, a panel an objective.

    A law that is learnt rises at the left, at the share that was trained on; a law that is memorised moves to
    the right. The large mark is where held-out likelihood is best, or the end. One more panel compares laws
    that were trained with several dropouts or weight decays.
    """
    pyplot = pyplot_module()
    rows = read_results(results)
    if not rows:
        raise FactorankError(f"{results} holds no results")
    runs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        runs.setdefault((row["objective"], row["code"], _regularised(row), row["seed"]), []).append(row)
    settings = [key[2] for key in runs]
    usual = max(dict.fromkeys(settings), key=settings.count)
    compared = {(key[0], key[1]) for key in runs if key[2] != usual}
    panels = [
        (objective, {key: run for key, run in runs.items() if key[0] == objective and key[2] == usual})
        for objective in ("masked", "autoregressive")
    ]
    panels.append(
        ("regularised", {key: run for key, run in runs.items() if key[:2] in compared and not key[3]})
    )
    panels = [(title, shown) for title, shown in panels if shown]
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(1 + 4.6 * len(panels), 4.6), layout="constrained", squeeze=False
    )
    for axis, (title, shown) in zip(axes[0], panels, strict=True):
        labels = set()
        for (_, code, setting, _), run in shown.items():
            grey, mark, line = CODE_STYLES[code]
            label = f"{code}, {setting}" if title == "regularised" else code
            if title == "regularised":
                line = ("-", "--", "-.", ":")[list(dict.fromkeys(settings)).index(setting) % 4]
            points = [(100 * row["in_train"], 100 * row["cyclic"]) for row in run]
            axis.plot(*zip(*points, strict=True), color=grey, linestyle=line, linewidth=1.2)
            scored = [row for row in run if row["held_out_bits"] is not None]
            best = min(scored, key=lambda row: row["held_out_bits"]) if scored else run[-1]
            axis.plot(
                100 * best["in_train"],
                100 * best["cyclic"],
                color=grey,
                marker=mark,
                markersize=9,
                markeredgecolor="black",
                linestyle=line if title == "regularised" else "none",
                linewidth=1.2,
                label=None if label in labels else label,
            )
            labels.add(label)
        axis.set(title=title, xlabel="of the cyclic samples, trained on (%)", ylabel="cyclic samples (%)")
        axis.set(xlim=(0, 102), ylim=(0, 102))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9, loc="lower right")
    save(figure, path)


def _regularised(row: dict[str, Any]) -> str:
    return f"dropout {row['dropout']:g}, decay {row['weight_decay']:g}"
