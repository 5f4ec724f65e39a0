"""The figures of the cyclic experiment: results against the NFE, and the curves of runs."""

from typing import Any

from factorank.errors import FactorankError
from factorank.figures.drawing import CODE_STYLES, AnyPath, legend_below, means, of_results, panels, save
from factorank.files import read_json_lines

FROM_THE_END = ("left-lehmer", "insertion")
"""The codes whose last values say something by themselves; see :mod:`factorank.experiments.cyclic`."""
COLUMNS = {
    "unique_valid": "unique and valid (%)",
    "unique_cyclic": "unique, valid and cyclic (%)",
    "kl": "KL to uniform (bits)",
}


@of_results
def cyclic_figure(results: AnyPath, path: AnyPath) -> None:
    """Against the NFE: different samples that are valid, that are cyclic, and the divergence from uniform.

    Lines are masked models, each code revealed from its own end, white marks at the right autoregressive
    ones; means over the seeds.
    """
    rows = from_own_ends(read_json_lines(results))
    if not rows:
        raise FactorankError(f"{results} holds no results of unmasking each code from its end")
    n, expected = rows[0]["n"], 100 * rows[0]["unique_expected"]
    alone = not any(row["objective"] == "autoregressive" for row in rows)
    beside = "" if alone else f"\nright of {n}, white: autoregressive, NFE {n}"
    figure, ((*axes,),) = panels(1, len(COLUMNS), 15, 4.6)
    for axis, (key, title) in zip(axes, COLUMNS.items(), strict=True):
        for place, (code, (colour, mark, line)) in enumerate(CODE_STYLES.items()):
            for objective in ("masked", "autoregressive"):
                chosen = [row for row in rows if (row["code"], row["objective"]) == (code, objective)]
                points = means(chosen, "nfe", key, 1 if key == "kl" else 100)
                if not points:
                    continue
                masked = objective == "masked"
                # Codes that agree would hide each other: each is drawn a little beside the NFE.
                aside = 0.05 * (place - 2) if masked else 0.45 + 0.13 * place
                style = {"color": colour, "marker": mark, "markersize": 5.5, "linewidth": 1.4}
                style |= {"linestyle": line} if masked else {"linestyle": "none", "markerfacecolor": "white"}
                x, y = zip(*((nfe + aside, value) for nfe, value in points), strict=True)
                axis.plot(x, y, label=f"{code}, {objective}", **style)
        if key == "kl":
            axis.set_yscale("symlog", linthresh=0.01)
            axis.set_ylim(bottom=0)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        else:
            axis.axhline(expected, color="black", linestyle=":", linewidth=1.2, label="a perfect model")
            axis.set_ylim(-4, 104)
        if key == "unique_cyclic":
            dashes = {"color": "0.5", "linestyle": (0, (6, 3)), "linewidth": 1.2}
            axis.axhline(100 / n, label="random permutations", **dashes)
        axis.set(title=title, xlabel="network evaluations (NFE)" + beside, xticks=range(1, n + 1))
        axis.grid(alpha=0.3)
    legend_below(figure, 6, *axes[1].get_legend_handles_labels(), fontsize=9)
    save(figure, path)


def from_own_ends(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that reveal the positions of a code from the code's own end.

    Autoregressive models that were trained from the other end alone are kept.

    >>> masked = {"objective": "masked", "code": "insertion"}
    >>> rows = [masked | {"unmask": unmask} for unmask in ("random", "left-to-right", "right-to-left")]
    >>> from_own_ends(rows)
    [{'objective': 'masked', 'code': 'insertion', 'unmask': 'right-to-left'}]
    """

    def is_own(row: dict[str, Any]) -> bool:
        end = "right-to-left" if row["code"] in FROM_THE_END else "left-to-right"
        return bool(row["unmask"] == end)

    own = {row["code"] for row in rows if row["objective"] == "autoregressive" and is_own(row)}
    return [
        row
        for row in rows
        if is_own(row) or (row["objective"] == "autoregressive" and row["code"] not in own)
    ]


@of_results
def curve_figure(results: AnyPath, path: AnyPath) -> None:
    """During training: cyclic samples against the share of them that was trained on, a panel an objective.

    A law that is learnt rises at the left, at the share that was trained on; a law that is memorised moves to
    the right. The large mark is where held-out likelihood is best, or the end. One more panel compares laws
    that were trained with several dropouts or weight decays.
    """
    runs: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    listed = read_json_lines(results)
    kept = [row for row in listed if row["objective"] != "autoregressive"]
    others = [row for row in listed if row["objective"] == "autoregressive"]
    kept += from_own_ends([row | {"unmask": row["reveal"]} for row in others])
    for row in sorted(kept, key=lambda row: row["step"]):
        setting = f"dropout {row['dropout']:g}, decay {row['weight_decay']:g}"
        runs.setdefault((row["objective"], row["code"], setting, row["seed"]), []).append(row)
    settings = [key[2] for key in runs]
    usual = max(dict.fromkeys(settings), key=settings.count)
    compared = {(key[0], key[1]) for key in runs if key[2] != usual}
    shown = {
        objective: {key: run for key, run in runs.items() if (key[0], key[2]) == (objective, usual)}
        for objective in ("masked", "autoregressive")
    }
    shown["regularised"] = {key: run for key, run in runs.items() if key[:2] in compared and not key[3]}
    shown = {title: some for title, some in shown.items() if some}
    figure, axes = panels(1, len(shown), 1 + 4.6 * len(shown), 4.6)
    for axis, (title, some) in zip(axes[0], shown.items(), strict=True):
        labels = set()
        for (_, code, setting, _), run in some.items():
            (colour, mark, line), label, marked = CODE_STYLES[code], code, "none"
            if title == "regularised":
                line = marked = ("-", "--", "-.", ":")[list(dict.fromkeys(settings)).index(setting) % 4]
                label = f"{code}, {setting}"
            points = [(100 * row["in_train"], 100 * row["cyclic"]) for row in run]
            axis.plot(*zip(*points, strict=True), color=colour, linestyle=line, linewidth=1.2)
            scored = [row for row in run if row["held_out_bits"] is not None]
            best = min(scored, key=lambda row: row["held_out_bits"]) if scored else run[-1]
            style = {"color": colour, "marker": mark, "markersize": 9, "markeredgecolor": "black"}
            style |= {"linestyle": marked, "linewidth": 1.2, "label": None if label in labels else label}
            axis.plot(100 * best["in_train"], 100 * best["cyclic"], **style)
            labels.add(label)
        axis.set(title=title, xlabel="of the cyclic samples, trained on (%)", ylabel="cyclic samples (%)")
        near = title == "regularised"  # where the runs end is what is compared
        axis.set(xlim=(10, 50) if near else (0, 102), ylim=(75, 101) if near else (0, 102))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=9, loc="lower right")
    save(figure, path)
