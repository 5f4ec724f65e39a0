"""The page in a real browser: every tab works, and its numbers are the library's."""

import base64
import io
import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import factorank as fr
from factorank.leaderboard.page import page as leaderboard_page
from factorank.playground.packages import Package, files_of
from factorank.unscramble import word_probabilities
from tests.playground.browser import PHONE, visiting

AXE = Package(
    "axe-core",
    "4.14.0",
    "9WTZxEjsZ7b13TH8JPmbV2z8CHbl80/2hm3XPEG4JgNdQLK81IBRXmSxHfMAOkSqQeRxT/0dwNDz2GOm3zzpcQ==",
    ("axe.min.js",),
)
TABS = ("puzzle", "codes", "words", "ranking")


def call(page, module, body, argument=None):
    """Run ``body``, which sees the names of a module as ``m`` and the argument as ``x``."""
    program = f"async (x) => {{ const m = await import('/js/{module}.js'); {body} }}"
    return page.evaluate(program, argument)


def give(panel, field, name, kind, content):
    """Choose a file."""
    panel.locator(field).set_input_files({"name": name, "mimeType": kind, "buffer": content})


def status(panel):
    return panel.locator(".status").first


def solve(visit, panel):
    """Press Solve; the pieces as the library takes them, and the answer of the page."""
    panel.get_by_text("Scrambled. Drag").wait_for()
    panel.get_by_role("button", name="Solve").click()
    panel.page.wait_for_selector("[data-solved]")
    answer = json.loads(panel.get_attribute("data-solved"))
    text = panel.evaluate(
        "(panel) => btoa(Array.from(panel.puzzle.pixels, (byte) => String.fromCharCode(byte)).join(''))"
    )
    rows, columns = panel.evaluate("(panel) => panel.puzzle.grid")
    side = panel.evaluate("(panel) => panel.puzzle.side")
    pieces = np.frombuffer(base64.b64decode(text), np.uint8).reshape(rows * columns, side, side, 3)
    return pieces, (rows, columns), answer


# Codes


def test_codes_are_those_of_the_library(visit):
    visit.open("codes")
    orders = [list(order) for n in (1, 2, 3, 4, 5) for order in itertools.permutations(range(n))]
    answers = call(
        visit.page,
        "codes",
        "return x.map((o) => m.CODES.map((c) =>"
        " [c.name, c.encode(o), c.decode(c.encode(o)), c.sizes(o.length)]));",
        orders,
    )
    for order, codes in zip(orders, answers, strict=True):
        assert {name for name, *_ in codes} == {"lehmer", "left-lehmer", "fisher-yates", "insertion"}
        for name, code, again, sizes in codes:
            assert code == fr.code(name).encode(torch.tensor(order)).tolist()
            assert again == order
            assert sizes == fr.code(name).sizes(len(order)).tolist()


def test_the_order_and_its_codes_move_together(visit):
    panel = visit.open("codes")
    assert panel.locator(".written").all_inner_texts() == ["2 3 2 0 0", "0 0 1 3 3", "0 1 0 1 1", "2 3 1 0 0"]
    first = panel.get_by_role("slider", name="Lehmer code, position 0", exact=True)
    first.focus()
    visit.page.keyboard.press("End")
    assert panel.locator(".written").first.inner_text() == "4 3 2 0 0"
    assert "E, D, C, A, B" in status(panel).inner_text()
    tile = panel.locator(".tile[data-item='0']")
    tile.focus()
    visit.page.keyboard.press("ArrowLeft")
    assert "at place 2" in status(panel).inner_text()
    # A drag of the first tile to the last place.
    box, end = (panel.locator(f".tile[data-item='{item}']").bounding_box() for item in (4, 1))
    visit.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    visit.page.mouse.down()
    visit.page.mouse.move(end["x"] + end["width"] / 2, end["y"] + 20, steps=8)
    visit.page.mouse.up()
    assert panel.locator(".written").first.inner_text().split() == ["3", "0", "1", "0", "0"]
    panel.get_by_role("button", name="One cycle").click()
    draws = [int(value) for value in panel.locator(".written").last.inner_text().split()]
    assert all(draw > 0 for draw in draws[:-1])
    assert "One cycle" in panel.get_by_role("img").get_attribute("aria-label")
    assert panel.locator(".column.lit").count() == 4


# Puzzles


def test_assignments_are_the_best(visit):
    visit.open("codes")
    tables = [np.random.default_rng(n).normal(size=(n, n)).round(2) for n in (1, 2, 5, 9, 20)]
    answers = call(
        visit.page,
        "assignment",
        "return x.map((t) => m.bestAssignment(t.length, (i, j) => t[i][j]));",
        [table.tolist() for table in tables],
    )
    for table, columns in zip(tables, answers, strict=True):
        assert sorted(columns) == list(range(len(table)))
        best = table[linear_sum_assignment(table, maximize=True)].sum()
        assert math.isclose(table[np.arange(len(table)), columns].sum(), best, abs_tol=1e-9)


@pytest.mark.parametrize(("picture", "grid"), [("Lake", "5 × 5"), ("Circles", "4 × 6")])
def test_a_puzzle_is_solved_as_by_the_library(visit, picture, grid):
    panel = visit.open("puzzle")
    panel.get_by_label(picture).check(force=True)
    panel.get_by_text(grid, exact=True).click()
    pieces, shape, answer = solve(visit, panel)
    expected = fr.jigsaw.solve(pieces, grid=shape)
    assert answer["slots"] == expected.slots.tolist()
    assert math.isclose(answer["probability"], expected.probability, abs_tol=2e-3)
    assert np.allclose(answer["each"], expected.piece_probability, atol=5e-3)
    assert "every piece in its place" in status(panel).inner_text()
    # Without the search: the assignment of one evaluation, and what the library says of it.
    plain = call(
        visit.page,
        "photographs",
        "const { pixels, side, grid } = document.getElementById('panel-puzzle').puzzle;"
        "return (await m.settle(await m.read(pixels, side, ...grid), { search: false })).slots;",
    )
    assert plain == fr.jigsaw.solve(pieces, grid=shape, search=False).slots.tolist()


def test_a_photograph_of_the_visitor(visit, tmp_path):
    from PIL import Image

    random = np.random.default_rng(0)
    y, x = np.mgrid[0:300, 0:400]
    waves = np.stack([128 + 90 * np.sin(x / 31 + k) + 30 * np.cos(y / 23 - k) for k in range(3)], -1)
    photograph = np.clip(waves + random.normal(0, 3, waves.shape), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(photograph).save(buffer, "PNG")
    panel = visit.open("puzzle")
    give(panel, "#photo", "notes.txt", "text/plain", b"words")
    panel.get_by_text("notes.txt is no picture").wait_for()
    panel.get_by_text("3 × 3", exact=True).click()
    give(panel, "#photo", "p.png", "image/png", buffer.getvalue())
    pieces, shape, answer = solve(visit, panel)
    assert answer["slots"] == fr.jigsaw.solve(pieces, grid=shape).slots.tolist()


def test_pieces_are_exchanged_by_hand_and_the_network_races(visit):
    panel = visit.open("puzzle")
    panel.get_by_text("3 × 3", exact=True).click()
    panel.get_by_text("Scrambled. Drag").wait_for()
    at = "[...document.querySelectorAll('.stage .piece')].map((p) => p.getAttribute('aria-label'))"
    before = visit.page.evaluate(at)
    assert before[0] == "Piece 1 at row 1, column 1"
    first, second = (panel.get_by_role("button", name=f"Piece {piece} at") for piece in (1, 2))
    first.click()
    second.click()
    assert visit.page.evaluate(at)[:2] == ["Piece 1 at row 1, column 2", "Piece 2 at row 1, column 1"]
    first.focus()
    visit.page.keyboard.press("Shift+ArrowDown")
    assert visit.page.evaluate(at)[0] == "Piece 1 at row 2, column 2"
    visit.page.wait_for_timeout(50)
    start, end = (panel.get_by_role("button", name=f"Piece {piece} at").bounding_box() for piece in (3, 7))
    visit.page.mouse.move(start["x"] + 20, start["y"] + 20)
    visit.page.mouse.down()
    visit.page.mouse.move(end["x"] + 20, end["y"] + 20, steps=5)
    visit.page.mouse.up()
    assert visit.page.evaluate(at)[2] == "Piece 3 at row 3, column 1"
    panel.get_by_role("button", name="Piece by piece").click()
    panel.get_by_text("All 9 pieces, the surest first").wait_for()
    slots = visit.page.evaluate(at)
    panel.locator("#rounds").fill("1")
    assert panel.get_by_text("After round 1 of 9").is_visible()
    assert len(set(slots)) == 9
    panel.get_by_text("fierce").click()
    panel.get_by_role("button", name="Race it").click()
    panel.get_by_text("The network was first").wait_for()
    assert panel.get_by_role("group", name="The network's board").is_visible()


# Words


def test_words_have_the_probabilities_of_the_library(visit):
    visit.open("words")
    words = {"osftre": ["forest", "softer", "osftre"], "ptso": ["tops", "post"], "eessn": ["senes", "esnes"]}
    body = (
        "const letters = await m.Letters.load(); const result = [];"
        "for (const [given, words] of Object.entries(x)) for (const nfe of [1, 2, 9])"
        " result.push([given, words, nfe, await letters.law(given, nfe).probabilities(words)]);"
        "return result;"
    )
    model = fr.unscramble.load()
    for letters, listed, nfe, probabilities in call(visit.page, "words", body, words):
        pairs = [(letters, word) for word in listed]
        expected = word_probabilities(model, pairs, min(nfe, model.n), "left-to-right")
        assert np.allclose(probabilities, expected, atol=1e-5)


def test_draws_follow_their_probabilities(visit):
    visit.open("words")
    body = (
        "const { randomFrom } = await import('/js/codes.js'); const letters = await m.Letters.load();"
        "const law = letters.law('stop', 2); const draws = await law.sample(3000, randomFrom(5));"
        "const words = [...new Set(draws.map((d) => d.word))];"
        "return [words, await law.probabilities(words), draws.map((d) => d.word), draws[0].steps];"
    )
    words, probabilities, draws, steps = call(visit.page, "words", body)
    assert sum(probabilities) <= 1 + 1e-6
    statistic = sum(
        (draws.count(w) - 3000 * p) ** 2 / (3000 * p) for w, p in zip(words, probabilities, strict=True)
    )
    assert statistic < 60  # 23 degrees of freedom at the most: p > 4e-5
    assert [len(code) for code in steps] == [0, 3, 4]


def test_the_words_tab(visit):
    panel = visit.open("words")
    panel.locator(".curve svg").wait_for()
    listed = json.loads(panel.get_attribute("data-words"))
    assert math.isclose(sum(listed.values()), 1.0, abs_tol=0.2)
    assert panel.locator(".words .real").count() >= 4
    assert panel.locator(".step").count() == 6
    panel.get_by_label("Letters").fill("a1b")
    assert status(panel).inner_text() == "Letters are a to z."
    panel.get_by_label("Letters").fill("ab")
    assert status(panel).inner_text().startswith("Give 3 to ")
    panel.get_by_label("Letters").fill("zzzzzzzzz")  # more orders spell the word than can be asked about
    panel.get_by_text("The word list has no word").wait_for()
    assert json.loads(panel.get_attribute("data-words")).keys() == {"zzzzzzzzz"}
    panel.get_by_role("button", name="ptso").click()
    panel.get_by_text("real word").first.wait_for()
    panel.get_by_role("radio", name="1", exact=True).check(force=True)
    panel.get_by_text("400 draws at 1 evaluation:").wait_for()
    assert panel.locator(".step").count() == 2


# Rankings

VOTES = """4: ann > bob > cat > dan
3: bob > cat > dan > ann
2: dan > ann > cat > bob
2: cat > bob > ann > dan
1: ann > dan > bob > cat"""
TOPS = "5: ann > bob\n4: bob > cat\n3: cat > ann > dan\n2: dan > ann"
BATTLES = """model_a,model_b,winner,count
x,y,x,30
x,y,y,21
x,y,tie,6
y,z,y,25
y,z,z,14
z,x,z,9
z,x,x,28
z,x,tie,5
w,z,w,12
w,z,z,13
w,y,tie,3
w,y,y,10"""


def ranked(visit, text):
    panel = visit.open("ranking")
    panel.evaluate("(panel) => delete panel.dataset.board")
    panel.get_by_role("textbox", name="Votes or battles").fill(text)
    panel.page.wait_for_selector("[data-board]")
    return panel, {row["item"]: row for row in json.loads(panel.get_attribute("data-board"))}


def test_battles_give_the_leaderboard_of_the_library(visit):
    _, rows = ranked(visit, BATTLES)
    lines = [line.split(",") for line in BATTLES.splitlines()[1:]]
    first, second, winner, count = zip(*lines, strict=True)
    battles = {"model_a": list(first), "model_b": list(second), "winner": list(winner)}
    table = fr.Leaderboard.fit(battles | {"count": list(map(int, count))}).table
    assert list(rows) == table["item"]
    for i, item in enumerate(table["item"]):
        for name in ("score", "low", "high"):
            assert math.isclose(rows[item][name], table[name][i], abs_tol=1e-6)
        assert abs(rows[item]["best"] - table["p_best"][i]) < 0.03
        assert rows[item]["rank"] == [table["rank_low"][i], table["rank_high"][i]]
        assert rows[item]["together"] == [
            table["rank_low_simultaneous"][i],
            table["rank_high_simultaneous"][i],
        ]
        assert rows[item]["tier"] == table["tier"][i]


@pytest.mark.parametrize(("text", "unranked"), [(VOTES, None), (TOPS, "incomparable"), (TOPS, "below")])
def test_votes_give_scores_and_a_consensus_of_the_library(visit, text, unranked):
    panel, rows = ranked(visit, text)
    if unranked == "below":
        panel.get_by_text("are below").click()
        rows = {row["item"]: row for row in json.loads(panel.get_attribute("data-board"))}
    names = ["ann", "bob", "cat", "dan"]
    counts, orders = [], []
    for line in text.splitlines():
        count, order = line.split(": ")
        listed = [names.index(name) for name in order.split(" > ")]
        counts.append(float(count))
        orders.append(listed + [-1] * (4 - len(listed)))
    data = {"weights": torch.tensor(counts), "unranked": unranked}
    law = fr.PlackettLuce.fit(torch.tensor(orders), **data)
    for name, score, error in zip(names, law.logits.tolist(), law.report.errors, strict=True):
        assert math.isclose(rows[name]["score"], score, abs_tol=1e-6)
        assert math.isclose(rows[name]["high"] - score, 1.959963984540054 * error, abs_tol=1e-6)
    consensus = json.loads(panel.get_attribute("data-consensus"))
    for rule, order in consensus.items():
        expected = fr.consensus(torch.tensor(orders), method=rule.lower(), **data).order.tolist()
        assert order == [names[item] for item in expected]


def test_bad_text_and_pages_of_leaderboards(visit):
    panel = visit.open("ranking")
    panel.get_by_role("textbox", name="Votes or battles").fill("ann > bob > ann")
    panel.get_by_text("Line 1: an item comes twice.").wait_for()
    assert panel.locator("table").count() == 0
    battles = {"model_a": ["x", "y"] * 9, "model_b": ["y", "x"] * 9, "winner": ["x", "x"] * 8 + ["y", "x"]}
    table = fr.Leaderboard.fit(battles).table
    facts = {"file": "mine", "about": "18 battles", "level": 0.95, "unit": "nats", "table": table}
    give(panel, "#file", "b.html", "text/html", leaderboard_page(facts).encode())
    panel.get_by_text("18 battles").wait_for()
    assert panel.locator("tbody th").all_inner_texts() == ["x", "y"]
    assert panel.get_by_role("textbox", name="Votes or battles").input_value() == ""


def test_on_phones_each_row_names_its_numbers(browser, address):
    """The names of the columns are out of sight there."""
    with visiting(browser, address, **PHONE) as visit:
        visit.open("ranking").locator("tbody th").first.wait_for()
        shown = (
            "(k) => getComputedStyle(document.querySelector(`tbody td:nth-child(${k})`), '::before').content"
        )
        assert [visit.page.evaluate(shown, k) for k in (5, 6)] == ['"P(best)"', '"tier"']


# The whole


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_everybody_can_use_it(browser, address, scheme, device):
    """axe finds nothing serious, on no tab; nothing is wider than the window."""
    (axe,) = files_of(AXE)
    with visiting(browser, address, color_scheme=scheme, **(PHONE if device == "phone" else {})) as visit:
        for tab in TABS:
            panel = visit.open(tab)
            panel.locator("h2").wait_for()
            if tab == "words":
                panel.locator(".curve svg").wait_for()
            visit.page.evaluate(axe.read_text(encoding="utf-8"))
            found = visit.page.evaluate("async () => (await axe.run()).violations")
            serious = [each for each in found if each["impact"] in ("serious", "critical")]
            assert not serious, (tab, [(each["id"], each["nodes"][0]["html"]) for each in serious])
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert visit.page.evaluate(wide) <= 0, tab
        assert visit.messages == []


def test_tabs_are_moved_through_by_keys(visit):
    visit.open("puzzle")
    visit.page.get_by_role("tab", name="Puzzle").focus()
    for name in ("Codes", "Words", "Ranking", "Puzzle"):
        visit.page.keyboard.press("ArrowRight")
        tab = visit.page.get_by_role("tab", name=name)
        assert tab.get_attribute("aria-selected") == "true"
        assert visit.page.get_by_role("tabpanel", name=name).is_visible()
    visit.page.get_by_role("button", name="Change between light and dark").click()
    assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
