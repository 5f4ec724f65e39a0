"""The report of ``factorank fit`` as text."""

import re
import textwrap
from typing import Any

from factorank.commands._text import counted, percent, shorten, table

MOST_PAIRED = 14
"""The items of the largest pairwise matrix that is shown."""


def report(facts: dict[str, Any]) -> str:
    """A summary as text of at most 80 columns."""
    from factorank.votes.families import FEWEST_VOTERS

    items, parts = facts["items"], facts["components"]
    source = facts["file"] + (f" ({facts['title']})" if facts.get("title") else "")
    size = f"{counted(facts['voters'], 'ranking')} of {counted(len(items), 'item')}"
    lines = textwrap.wrap(f"{facts['family']}, fitted to {size} from {source}", 79)
    lines += ["", _consensus(facts) if len(parts) == 1 else _components(facts), ""]
    gain = facts["uniform_bits"] - facts["bits"]
    estimated = f" ± {facts['bits_se']:.3f}, estimated" if facts["bits_se"] else ""
    rounds = f", after {counted(facts['iterations'], 'iteration')}" if facts["iterations"] else ""
    figures = {
        "bits a ranking": f"{_number(facts['bits'])}{estimated} ({_number(gain)} fewer than the uniform law)",
        "log-likelihood": f"{_number(facts['log_likelihood'])} nats",
        "free parameters": facts["parameters"],
        "AIC, BIC": f"{facts['aic']:.3f}, {facts['bic']:.3f}",
        "converged": ("yes" if facts["converged"] else "NO") + rounds,
    }
    if (exact := facts["consensus_exact"]) is not None:
        figures["reference order"] = "proven best" if exact else "the best that a search came to, not proven"
        figures["free parameters"] = f"{facts['parameters']}; AIC and BIC do not count the reference order"
        if len(parts) > 1:
            figures["reference order"] = "each the best that a search came to, not proven"
            figures["free parameters"] = f"{facts['parameters']}; AIC and BIC do not count reference orders"
    if facts.get("restarts"):
        figures["starts"] = spread(facts["starts"], facts["restarts"])
    if facts.get("likelihood_ratio"):
        figures["likelihood test"] = likelihood_ratio(facts["likelihood_ratio"])
    lines += [f"  {name:<15}  {value}" for name, value in figures.items()]
    lines += ["", *goodness_lines(facts), "", *vote_lines(facts)]
    for text in facts["warnings"]:
        lines += textwrap.wrap("warning: " + name_items(text, items), 79, subsequent_indent="  ")
    if facts["refits"]:
        refits = counted(facts["refits"], "refit")
        which = "Intervals" if len(parts) > 1 else "Intervals of places"
        lines += ["", f"{which} hold 95% of {refits} to voters drawn with replacement."]
    elif facts["voters"] >= FEWEST_VOTERS:
        lines += ["", "No intervals of places: --bootstrap 100 refits the law for them."]
    else:
        there = "there is 1 voter" if facts["voters"] == 1 else f"there are {facts['voters']} voters"
        lines += ["", f"No intervals: {there}, and fewer than {FEWEST_VOTERS} say nothing of others."]
    return "\n".join(lines)


def spread(starts: int, ends: list[float]) -> str:
    """How far the ends of the starts that were taken to the end lie apart."""
    lower = [f"{ends[0] - value:.1f}" for value in ends[1:4]]
    return f"{starts}, the best ends lower by {', '.join(lower)} nats" if lower else str(starts)


def goodness_lines(facts: dict[str, Any]) -> list[str]:
    """First places and pairs, expected against observed."""
    fit, items = facts["goodness"], facts["items"]
    lines = []
    if fit["voters"]:
        gaps = [b - a for a, b in zip(fit["first_expected"], fit["first_observed"], strict=True)]
        item = max(range(len(items)), key=lambda item: abs(gaps[item]))
        shown = f"{percent(fit['first_expected'][item])}% expected, {percent(fit['first_observed'][item])}%"
        test = f"chi-square {fit['chi_square']:.1f}, p = {fit['p_value']:.2g}"
        lines += [
            f"  first places     {test}",
            f"    worst          {shorten(items[item], 24)}: {shown} observed",
        ]
    if fit["residual_pairs"]:
        a, b, expected, observed, score = fit["residual_pairs"][0]
        shown = f"{percent(expected)}% expected, {percent(observed)}% observed"
        lines += [
            f"  worst pair       {shorten(a, 24)} above {shorten(b, 24)}:",
            f"                   {shown} ({score:+.1f} standard errors)",
        ]
    return lines


def likelihood_ratio(test: dict[str, Any]) -> str:
    """The test against the next smaller family."""
    p, simulated = test["p_value"], test["simulations"]
    shown = "no p-value: chi-square does not hold" if p is None else f"p = {p:.2g}" if p else "p < 1e-300"
    shown += f", by {simulated} simulated elections" if simulated else ""
    more = f"{counted(test['more'], 'parameter')} more"
    return f"ratio {test['statistic']:.1f} against {test['smaller']}, {more}\n{'':<19}{shown}"


def vote_lines(facts: dict[str, Any]) -> list[str]:
    """What the votes alone say: pairs, the Condorcet winner, methods of consensus."""
    items, wins = facts["items"], facts["pairs"]
    order = facts["consensus_methods"]["kemeny"]["order"]
    lines = []
    if 1 < len(items) <= MOST_PAIRED:
        rows: list[list[object]] = []
        for place, a in enumerate(order, 1):
            compared = [wins[a][b] + wins[b][a] for b in order]
            cells = [
                percent(wins[a][b] / all_, 0) if all_ else "" for b, all_ in zip(order, compared, strict=True)
            ]
            rows.append([place, shorten(items[a], 16), *cells])
        lines = ["  Voters (%) who put the row above the column, of those who compare them:", ""]
        lines += [table(["", "", *map(str, range(1, len(order) + 1))], rows, "rl"), ""]
    winner = facts["condorcet_winner"]
    lines.append(
        f"  Condorcet        {'no winner' if winner is None else f'{shorten(winner, 40)} beats all others'}"
    )
    for name, method in facts["consensus_methods"].items():
        top = ", ".join(shorten(items[item], 12) for item in method["order"][:3])
        more = ", …" if len(method["order"]) > 3 else ""
        lines.append(f"  {name:<15}  {shorten(top, 40)}{more}  distance {method['distance']:.3f}")
        if name == "kemeny" and (doubt := _doubt(method)):
            lines.append(f"{'':<19}{doubt}")
    return lines


def _doubt(method: dict[str, Any]) -> str:
    """What is uncertain in a Kemeny consensus: that no order is closer, or that no other is as close."""
    if not method["exact"]:
        return f"not proven: another order might come to {method['lower_bound']:.3f}"
    return f"{method['best_orders']:,} orders are as close" if (method["best_orders"] or 1) > 1 else ""


def name_items(text: str, items: list[str]) -> str:
    """A message with the names of items beside their numbers, and components counted from 1 as above."""
    text = re.sub(r"\bcomponent (\d+)", lambda match: f"component {int(match[1]) + 1}", text)

    def named(match: re.Match[str]) -> str:
        numbers = [int(number) for number in match[2].split(", ")]
        return f"{match[1]} {', '.join(f'{number} ({items[number]})' for number in numbers)}"

    return re.sub(r"\b(items?) (\d+(?:, \d+)*)", named, text)


def _consensus(facts: dict[str, Any]) -> str:
    part, items = facts["components"][0], facts["items"]
    order, name, values, intervals = (part[k] for k in ("consensus", "parameter", "values", "intervals"))
    columns: dict[str, Any] = {"place": range(1, len(order) + 1)}
    columns["item"] = [shorten(items[item], 30 if len(values) == 1 else 22) for item in order]
    columns["mean place"] = [f"{part['mean_places'][item]:.2f}" for item in order]
    if part["place_intervals"] is not None:
        columns["places 95%"] = ["{:.0f}–{:.0f}".format(*part["place_intervals"][item]) for item in order]
    many = len(values) > 1
    if many:
        columns[name] = [_number(values[item]) for item in order]
        if intervals is not None:
            columns["95%"] = [_range(intervals[item] if values[item] is not None else None) for item in order]
    text = table(list(columns), list(zip(*columns.values(), strict=True)), "rl")
    if many:
        note = f"\n\n  {NOTES[name]}" if name in NOTES else ""
        return text + note + (_reference(part["reference"], items) if part["reference"] else "")
    shown = f" ({_range(intervals[0])})" if intervals else ""
    return text + (f"\n\n  {name} {_number(values[0])}{shown}" if name else "")


def _reference(order: list[int], items: list[str]) -> str:
    """The order in which a RIM inserts the items."""
    listed = "reference: " + ", ".join(shorten(items[item], 24) for item in order)
    return "\n" + textwrap.fill(listed, 79, initial_indent="  ", subsequent_indent="    ")


NOTES = {
    "overtakes": "overtakes: items before it in the reference that it passes, on average.",
    "logit": "logit: a difference of d between two items means odds of e^d.",
    "phi": "phi: the factor in probability for each item passed; 0 sure, 1 uniform.",
}
"""The meaning of parameters that each item has."""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".replace("-0.000", "0.000")


def _range(interval: list[float] | None) -> str:
    return "" if interval is None else f"{interval[0]:.3f} – {interval[1]:.3f}"


def _components(facts: dict[str, Any]) -> str:
    items, parts = facts["items"], facts["components"]
    name, intervals, align = parts[0]["parameter"], parts[0]["intervals"], "r" + "l" * len(parts)
    most = max(6, 68 // len(parts) - 2)
    header = [shorten(f"component {number}", most) for number in range(1, len(parts) + 1)]

    def value_rows(title: str, i: int) -> list[list[str]]:
        """The i-th parameter of each component, and its interval."""
        rows = [[title] + [_number(part["values"][i]) for part in parts]]
        if intervals:
            ranges = [part["intervals"][i] if part["values"][i] is not None else None for part in parts]
            rows.append(["95%", *map(_range, ranges)])
        return rows

    rows = [["weight"] + [f"{part['weight']:.3f}" for part in parts]]
    if parts[0].get("weight_interval"):
        rows.append(["95%"] + [_range(part["weight_interval"]) for part in parts])
    one_value = len(parts[0]["values"]) == 1
    rows += value_rows(name, 0) if one_value else []
    for place in range(len(items)):
        rows.append([str(place + 1)] + [shorten(items[part["consensus"][place]], most) for part in parts])
    text = table(["place", *header], rows, align)
    if one_value:
        return text
    rows = [row for i, item in enumerate(items) for row in value_rows(shorten(item, most), i)]
    return f"{text}\n\n{table([name, *header], rows, align)}\n\n  {NOTES[name]}"
