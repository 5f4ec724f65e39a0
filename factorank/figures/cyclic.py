"""The figure of the cyclic experiment."""

import os
from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import CODE_STYLES, pyplot_module, read_results, save


def cyclic_figure(
    results: str | os.PathLike[str], path: str | os.PathLike[str], unmask: str | None = None
) -> None:
    """Against the NFE: different samples, valid ones, cyclic ones, and the divergence from the uniform law.

    Lines are masked models, white marks at the right autoregressive ones; means over the seeds. Positions are
    revealed by ``unmask``, unless given each code's from the end that suits it.
    """
    from factorank.experiments.cyclic import own_way

    pyplot = pyplot_module()
    rows = [
        row for row in read_results(results) if (own_way(row) if unmask is None else row["unmask"] == unmask)
    ]
    if not rows:
        raise FactorankError(f"{results} holds no results of unmasking {unmask or 'each code its own way'}")
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
                points = _by_nfe(chosen, key, 1 if key == "kl" else 100)
                if not points:
                    continue
                masked = objective == "masked"
                # Codes that agree would hide each other: each stands a little beside the NFE.
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


def curve_figure(results: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """While laws are learnt: cyclic samples against those of them that were trained on, a panel an objective.

    A law that is learnt rises at the left, at the share that was trained on; one that is learnt by heart
    wanders to the right. The large mark is where held-out likelihood is best, or the end. Laws that were
    learnt with several dropouts or weight decays have one more panel, where these are compared.
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
    panels = [(title, found) for title, found in panels if found]
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(1 + 4.6 * len(panels), 4.6), layout="constrained", squeeze=False
    )
    for axis, (title, found) in zip(axes[0], panels, strict=True):
        labels = set()
        for (_, code, setting, _), run in found.items():
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


def _by_nfe(rows: list[dict[str, Any]], key: str, scale: float) -> list[tuple[int, float]]:
    """The mean of a value over the rows of each NFE, where it is known."""
    found: dict[int, list[float]] = {}
    for row in rows:
        if row[key] is not None:
            found.setdefault(row["nfe"], []).append(scale * row[key])
    return sorted((nfe, sum(values) / len(values)) for nfe, values in found.items())
