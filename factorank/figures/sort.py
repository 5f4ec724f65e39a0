"""The figure of sorting handwritten numbers: items in place and lists exact, by the length of the lists."""

from statistics import median

from factorank.errors import FactorankError
from factorank.figures.drawing import BLACK, BLUE, ORANGE, SKY, AnyPath, label_ends, of_results, panels, save
from factorank.files import read_json_lines

SERIES = {
    ("factorank", 1): ("factorank", BLUE, "o", "-"),
    ("factorank", 2): ("factorank, 2 readers", SKY, "s", "--"),
    ("score-and-sort", 1): ("score and sort", ORANGE, "P", "-"),
}
"""Label, colour, marker and line, by method and the number of models that read together."""
PUBLISHED = {"Soft-Rank Diffusion": (200, 66.1, 1.4), "SymmetricDiffusers": (200, 0.6, 0.0)}
"""What others have published: the length, items in place and lists exact in percent."""


@of_results
def sort_figure(results: AnyPath, path: AnyPath) -> None:
    """Two panels against the length of the lists: items in place, and lists exact.

    Lines are medians over the seeds, small marks the seeds.
    """
    rows = [row for row in read_json_lines(results) if row["split"] == "test"]
    if not rows:
        raise FactorankError(f"{results} holds no results on test digits")
    figure, ((*axes,),) = panels(1, 2, 11, 4.2)
    lengths = sorted({row["n"] for row in rows})
    for place, (axis, key, title) in enumerate(
        zip(axes, ("items", "exact"), ("items in place (%)", "lists exact (%)"), strict=True)
    ):
        ends: dict[str, tuple[float, float, str]] = {}
        for (method, models), (label, colour, mark, line) in SERIES.items():
            chosen = [row for row in rows if (row["method"], row["nfe"]) == (method, models)]
            if not chosen:
                continue
            at = sorted({row["n"] for row in chosen})
            middle = [100 * median(row[key] for row in chosen if row["n"] == n) for n in at]
            axis.plot(at, middle, color=colour, marker=mark, linestyle=line)
            each = {"color": colour, "marker": mark, "markersize": 4, "linestyle": "none", "alpha": 0.5}
            axis.plot([row["n"] for row in chosen], [100 * row[key] for row in chosen], **each)
            ends[label] = (at[-1], middle[-1], colour)
        for name, published in PUBLISHED.items():
            axis.plot(published[0], published[1 + place], "*", color=BLACK, markersize=9)
            ends[f"{name} (published)"] = (published[0], published[1 + place], BLACK)
        axis.set(xscale="log", xlabel="numbers in a list", title=title, ylim=(-3, 103))
        axis.set_xlim(lengths[0] * 0.9, lengths[-1] * 1.15)
        axis.set_xticks(lengths, [str(n) for n in lengths])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        label_ends(axis, ends)
    save(figure, path)
