"""The command line: every command, its errors, and that it starts without torch."""

import json
import subprocess
import sys

import pytest
import torch

import factorank as fr
from factorank.cli import command, command_names
from factorank.commands import codes
from factorank.commands._fit_report import name_items
from factorank.commands._text import shorten, table, width
from factorank.data import Rankings, read_rankings, write_rankings
from factorank.distributions.saving import load_law


@pytest.fixture
def votes(tmp_path):
    """A file of complete rankings of four named items."""
    law = fr.Mallows([2, 0, 3, 1], 0.4)
    orders = law.sample((200,), generator=torch.Generator().manual_seed(0))
    path = tmp_path / "votes.soc"
    write_rankings(Rankings.from_orders(orders, ["ann", "bob", "cat", "dan"]), path)
    return path


@pytest.mark.parametrize("arguments", [["--help"], ["fit", "--help"], ["--version"], ["nope"]])
def test_it_starts_without_torch(arguments):
    code = (
        "import sys; from factorank.cli import main\n"
        f"try: main({arguments!r})\nexcept SystemExit: pass\n"
        "assert not {'torch', 'numba', 'numpy', 'matplotlib', 'polars'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_python_m_factorank():
    done = subprocess.run(
        [sys.executable, "-m", "factorank", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"factorank {fr.__version__}\n")


def test_every_command_is_listed_with_its_first_line(run):
    code, out, _ = run("--help")
    assert code == 0
    for name in command_names():
        assert f"\n  {name} " in out
        first = command(name).__doc__.splitlines()[0]
        assert first.endswith(".")
        assert first.split()[0] in out
    assert max(map(len, out.splitlines())) < 80
    assert {"fit", "sample", "compare", "bench", "codes"} <= set(command_names())


@pytest.mark.parametrize("name", command_names())
def test_help_of_every_command_is_plain_text_that_fits(name, run):
    code, out, _ = run(name, "--help")
    assert code == 0
    assert "\x1b" not in out
    assert out.startswith(f"usage: factorank {name}")


def test_options_that_may_be_left_out_are_shown_by_what_they_take(run):
    text = " ".join(run("jigsaw", "train", "--help")[1].replace("│", " ").split())
    assert "--code {inline,lehmer,left-lehmer,fisher-yates,insertion} The" in text
    assert "--steps INT Training" in text
    assert "None" not in text
    for name in command_names():
        assert "{None}" not in run(name, "--help")[1]
    assert run("jigsaw", "train", "--steps", "None")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "there is no command 'nope'; there are ambiguous, "),
        (["fit", "missing.soc"], "missing.soc: No such file or directory"),
        (["fit", "bad.soc"], "bad.soc:1: expected '# FILE NAME: …'"),
        (["fit", "partial.csv"], "partial.csv:2: the ranking does not rank 'b': say --unranked below"),
        (["fit", "tied.csv"], "tied.csv:3: the ranking ties 'a' and 'b'; --break-ties puts"),
        (
            ["fit", "numbers.csv"],
            "numbers.csv:1: the columns are named by numbers only: say --as orders if",
        ),
        (["fit", "zero.csv"], "zero.csv:2: the rank of 'a' is 0; ranks begin with 1 (or say --first-rank 0)"),
        (["compare", "partial.csv"], "partial.csv:2: the ranking does not rank 'b'"),
        (["fit", "partial.csv", "--break-ties"], "partial.csv:2: the ranking does not rank 'b'"),
        (["fit", "long.csv"], "long.csv:4: voter 'y': the ranking ties 'a' and 'b'"),
        (["fit", "tied.toc"], "tied.toc:16: the ranking ties 'a' and 'b'"),
        (
            ["fit", "headless.csv"],
            "headless.csv:1: this line looks like a ranking, for 'a' is in a ranking at",
        ),
        (["fit", "tied.csv", "--bootstrap", "-1"], "--bootstrap is at least 0, not -1"),
        (["sample", ".", "--as", "long"], "--as long is the layout of a table: give --out FILE.csv"),
        (["sample", ".", "--as", "long", "--out", "x.soc"], "give --out FILE.csv, too"),
        (["compare", "tied.csv", "--components", "0"], "a mixture has at least 1 component, not 0"),
        (["sample", "."], "neither a law (law.json) nor a model (config.json)"),
        (["sample", ".", "--count", "0"], "--count is at least 1, not 0"),
        (["bench", "nothing"], "there is no benchmark 'nothing'; there are assignment, classical, "),
        (["bench", "rows"], "there is no benchmark 'rows'; there are assignment, classical, "),
        (
            ["codes", "1", "3", "2"],
            "an order of 3 items holds each of 0..2 once, but 1 3 2 counts from 1; from 0 it is 0 2 1",
        ),
        (["codes", "0", "4", "2"], "each of 0..2 once, but 0 4 2 holds 4, which is none of them"),
        (["codes", "1", "0", "1"], "each of 0..2 once, but 1 0 1 holds 1 more than once"),
    ],
)
def test_errors_are_one_line_and_code_2(arguments, message, run, tmp_path):
    (tmp_path / "bad.soc").write_text("1: 1,2\n")
    (tmp_path / "partial.csv").write_text("a,b\n1,\n2,1\n")
    (tmp_path / "tied.csv").write_text("a,b\n2,1\n1,1\n2,1\n")
    (tmp_path / "long.csv").write_text("voter,item,rank\nx,a,1\nx,b,2\ny,a,1\ny,b,1\n")
    (tmp_path / "headless.csv").write_text("b,a,c\na,b,c\nc,a,b\n")
    write_rankings(Rankings(["a", "b"], torch.tensor([[1, 0], [0, 0]])), tmp_path / "tied.toc")
    (tmp_path / "numbers.csv").write_text("1,2\n1,2\n2,1\n")
    (tmp_path / "zero.csv").write_text("a,b\n0,1\n")
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("factorank: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("model", ["mallows", "generalized-mallows", "rim", "plackett-luce", "mixture"])
def test_fit_reports_saves_and_draws(model, votes, run, tmp_path):
    code, out, err = run("fit", votes, "--model", model, "--bootstrap", 5, "--restarts", 1, "--out", "mine")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for name in ("ann", "bob", "cat", "dan", "bits a ranking", "AIC, BIC", "95%"):
        assert name in out
    folder = tmp_path / "mine"
    assert (folder / "fit.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads((folder / "fit.json").read_text())
    law = load_law(folder)
    orders = read_rankings(votes)
    total = float((law.log_prob(orders.to_padded_orders()) * orders.weights).sum())
    assert facts["log_likelihood"] == pytest.approx(total, rel=1e-6)
    if model == "mallows":
        assert facts["components"][0]["consensus"] == [2, 0, 3, 1]
        low, high = facts["components"][0]["intervals"][0]
        assert low <= facts["components"][0]["values"][0] <= high


def test_fit_saves_the_law_where_no_picture_can_be_drawn(votes, run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run("fit", votes, "--bootstrap", 0, "--out", "mine")
    assert (code, err) == (0, "")
    assert "saved in mine: law.json, law.safetensors, fit.json; no pictures: figures need matplotlib" in out
    assert load_law(tmp_path / "mine").n == 4
    assert not list((tmp_path / "mine").glob("*.png"))


@pytest.mark.parametrize("family", ["mallows", "generalized-mallows", "rim", "plackett-luce"])
@pytest.mark.parametrize("components", [3])
def test_a_mixture_reports_every_parameter_with_an_interval(family, components, votes, run, tmp_path):
    options = ["--model", "mixture", "--family", family, "--components", components, "--restarts", 1]
    code, out, err = run("fit", votes, *options, "--bootstrap", 3, "--out", "mine", "--no-picture")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    parts = json.loads((tmp_path / "mine" / "fit.json").read_text())["components"]
    assert len(parts) == components
    for part in parts:
        assert len(part["intervals"]) == len(part["values"]) == (1 if family == "mallows" else 4)
        for value, interval in zip(part["values"], part["intervals"], strict=True):
            if value is not None:
                assert f"{value:.3f}".replace("-0.000", "0.000") in out
                assert interval[0] <= interval[1]
    assert out.count("95%") >= (2 if family == "mallows" else 5)  # weights, and dispersions or each item
    assert "component 0" not in out


FITTED = [(name, "mallows") for name in ("mallows", "generalized-mallows", "rim", "plackett-luce")]
FITTED += [("mixture", name) for name, _ in FITTED]


@pytest.mark.parametrize(("model", "family"), FITTED)
@pytest.mark.parametrize("text", ["a\n1\n1\n", "a,b\n1,2\n1,2\n"])
def test_fit_to_hardly_anything(model, family, text, run, tmp_path):
    (tmp_path / "few.csv").write_text(text)
    options = ["--model", model, "--family", family, "--bootstrap", 2, "--restarts", 1]
    code, out, err = run("fit", "few.csv", *options)
    assert (code, err) == (0, "")
    assert "bits a ranking   0.000" in out


def test_fit_again_replaces_its_own_folder_but_nothing_else(votes, run, tmp_path):
    for _ in range(2):
        code, out, _ = run("fit", votes, "--bootstrap", 0, "--no-picture")
        assert code == 0
    assert "saved in runs/fit/votes-mallows: law.json, law.safetensors, fit.json\n" in out
    (tmp_path / "runs/fit/votes-mallows/notes.txt").write_text("mine")
    code, _, err = run("fit", votes)
    assert code == 2
    assert "holds 'notes.txt', too" in err


@pytest.mark.parametrize(
    "model", [["mallows"], ["plackett-luce"], ["mixture", "--family", "plackett-luce", "--penalty", 0.1]]
)
@pytest.mark.parametrize("unranked", ["below", "incomparable"])
def test_fit_to_top_lists(model, unranked, run, tmp_path):
    (tmp_path / "tops.csv").write_text("count,a,b,c\n30,1,2,\n10,,1,2\n5,2,,1\n7,3,2,1\n")
    code, out, _ = run("fit", "tops.csv", "--unranked", unranked, "--bootstrap", 3, "--model", *model)
    assert code == 0
    assert "52 rankings of 3 items" in out
    assert "hold 95% of 3 refits" in out


def test_sample_prints_names_or_writes_files(votes, run, tmp_path):
    run("fit", votes, "--bootstrap", 0, "--no-picture", "--out", "law")
    code, out, _ = run("sample", "law", "--count", 3, "--seed", 1)
    assert code == 0
    assert [sorted(line.split(" > ")) for line in out.splitlines()] == [["ann", "bob", "cat", "dan"]] * 3
    assert run("sample", "law", "--count", 3, "--seed", 1)[1] == out
    assert run("sample", "law", "--count", 3, "--seed", 2)[1] != out
    for name in ("s.csv", "s.soc"):
        code, out, _ = run("sample", "law", "--count", 50, "--out", name)
        assert "50 orders of 4 items written" in out
        assert read_rankings(tmp_path / name, items=None).voters == 50
    assert (tmp_path / "s.csv").read_text().startswith("place 1,place 2,place 3,place 4\n")


def test_hardly_any_voters_have_no_interval(run, tmp_path):
    (tmp_path / "one.csv").write_text("place 1,place 2,place 3\nb,a,c\n")
    code, out, _ = run("fit", "one.csv", "--no-picture")
    assert code == 0
    assert "fitted to 1 ranking of 3 items" in out
    assert "\n\nNo intervals: there is 1 voter, and fewer than 5 say nothing of others." in out
    assert " – " not in out
    (tmp_path / "three.csv").write_text("place 1,place 2,place 3\nb,a,c\nb,c,a\na,b,c\n")
    code, out, _ = run("compare", "three.csv", "--components", 1, "--held-out", 0.3)
    assert code == 0
    rows = [line.split() for line in out.splitlines()[3:8]]
    assert [row[4] for row in rows] == ["–"] * 5


def test_sample_from_a_model(run, tmp_path):
    model = fr.PermutationModel(n=4, code="lehmer", objective="masked", width=8, depth=1, heads=1)
    model.save_pretrained(tmp_path / "model")
    code, out, _ = run("sample", "model", "--count", 2, "--nfe", 1)
    assert code == 0
    assert [sorted(line.split(" > ")) for line in out.splitlines()] == [["0", "1", "2", "3"]] * 2


def test_compare_prints_one_table(votes, run):
    code, out, err = run("compare", votes, "--components", 2, "--restarts", 1)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "votes.soc: 200 rankings of 4 items, 40 of them held out"
    families = [line.split()[:2] for line in lines[3:10]]
    assert families == [
        ["uniform", "1"],
        ["mallows", "1"],
        ["mallows", "2"],
        ["generalized-mallows", "1"],
        ["rim", "1"],
        ["plackett-luce", "1"],
        ["plackett-luce", "2"],
    ]
    assert sum("*" in line for line in lines[3:10]) == 1
    assert max(map(len, lines)) < 80


def test_bench_passes_its_arguments_on(run, monkeypatch, tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "echo.py").write_text("def main(argv):\n    print(argv)\n    return 3\n")
    monkeypatch.setattr("factorank.commands.bench.FOLDER", tmp_path / "benchmarks")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    assert run("bench", "echo", "--fast", "--help") == (3, "['--fast', '--help']\n", "")
    monkeypatch.setattr("factorank.commands.bench.FOLDER", tmp_path / "nothing")
    code, _, err = run("bench", "echo")
    assert code == 2
    assert "there are none outside a checkout of the source" in err


def test_bench_lists_what_can_be_run(run):
    text = " ".join(run("bench", "--help")[1].replace("│", " ").split())
    listed = text.split("NAME ")[-1].split(".")[0].split(", ")
    assert {"codes", "classical", "sample", "train"} <= set(listed)
    assert not {"rows", "timing", "limits", "workloads", "paper", "__init__"} & set(listed)


def test_codes_shows_the_papers_examples(run):
    code, out, _ = run("codes")
    assert code == 0
    for text in (
        "decoding lehmer 2 3 2 0 0",
        "decoding fisher-yates 3 1 0 0",
        "decoding insertion 0 0 1 3 2",
    ):
        assert text in out
    assert max(map(len, out.splitlines())) < 80


def test_the_steps_of_decoding_end_in_the_order():
    for order in fr.permutation_at(torch.arange(120), 5).tolist():
        for name in ("lehmer", "left-lehmer", "fisher-yates", "insertion"):
            last = codes.decoding(name, tuple(order)).splitlines()[-1]
            assert last.endswith(" " + " ".join(map(str, order)))


def test_tables_align_wide_characters():
    text = table(["item", "n"], [["日本", 1], ["e\u0301", 22]], "lr")
    assert {width(line) for line in text.splitlines()[1:]} == {width("  日本  22")}
    assert shorten("日本語の候補者", 8) == "日本語…"
    assert shorten("short", 5) == "short"


def test_messages_name_items():
    said = name_items("nothing above item 1 and nothing below items 0, 2", ["ann", "bob", "cat"])
    assert said == "nothing above item 1 (bob) and nothing below items 0 (ann), 2 (cat)"
