"""The commands that train models, score rankings and draw figures."""

import csv
import json
import math

import pytest
import torch

import factorank as fr
from factorank.commands.figure import MADE_BY
from factorank.data import Rankings, write_rankings
from factorank.figures import FIGURES
from factorank.sealed import sealed_head

NAMES = ["ann", "bob", "cat", "dan"]
SMALL = ["--width", "8", "--depth", "1", "--heads", "2", "--steps", "4"]


@pytest.fixture
def votes(tmp_path):
    """A file of complete rankings of four named items, some shared by several voters."""
    orders = fr.Mallows([2, 0, 3, 1], 0.4).sample((200,), generator=torch.Generator().manual_seed(0))
    path = tmp_path / "votes.soc"
    write_rankings(Rankings.from_orders(orders, NAMES), path)
    return path


@pytest.fixture
def model(tmp_path):
    """A model that is no uniform law, without names for its items."""
    made = fr.PermutationModel.from_mallows(fr.Mallows([2, 0, 3, 1], 0.4), width=8, depth=1, heads=1)
    made.save_pretrained(tmp_path / "model")
    return made


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
@pytest.mark.parametrize("code", ["lehmer", "insertion"])
def test_train_saves_a_model_that_sample_and_score_know_by_name(code, objective, votes, run, tmp_path):
    status, out, err = run(
        "train", votes, "--code", code, "--objective", objective, *SMALL, "--held-out", 0.25
    )
    assert (status, err) == (0, "")
    assert out.startswith("votes.soc: 200 rankings of 4 items, 50 of them held out\n")
    assert ("at most " in out) == (objective == "masked")
    folder = tmp_path / f"runs/train/votes-{code}-{objective}"
    assert fr.PermutationModel.from_pretrained(folder).objective == objective
    assert json.loads((folder / "items.json").read_text())["items"] == NAMES
    _, out, _ = run("sample", folder, "--count", 3)
    assert [sorted(line.split(" > ")) for line in out.splitlines()] == [NAMES] * 3
    status, out, err = run("score", folder, votes)
    assert (status, err) == (0, "")
    assert ("an upper bound" in out) == (objective == "masked")


def test_train_goes_on_with_its_run_and_refuses_another(votes, run, tmp_path):
    arguments = ["train", votes, *SMALL, "--out", "mine"]
    assert run(*arguments)[0] == 0
    weights = (tmp_path / "mine/model.safetensors").read_bytes()
    status, out, _ = run(*arguments)
    assert status == 0
    assert ": 4 steps in " in out
    assert (tmp_path / "mine/model.safetensors").read_bytes() == weights
    status, _, err = run(*arguments, "--lr", 0.5)
    assert status == 2
    assert "mine holds another run: lr is 0.002 there and 0.5 here; choose another folder as --out" in err


def test_train_with_another_optimizer(votes, run, tmp_path):
    arguments = ["train", votes, *SMALL, "--out", "mine"]
    assert run(*arguments, "--optimizer", "muon")[0] == 0
    assert json.loads((tmp_path / "mine/training.json").read_text())["optimizer"] == "muon"
    status, _, err = run(*arguments)
    assert status == 2
    assert 'mine holds another run: optimizer is "muon" there and "adamw" here; ' in err


def test_train_says_what_is_left_to_do(votes, run):
    arguments = ["train", votes, *SMALL[:-1], 1000, "--max-seconds", 0.01, "--held-out", 0]
    status, out, _ = run(*arguments)
    assert status == 0
    assert "of 1000; the same command goes on from there" in out
    assert "held out" not in out


def test_train_learns_from_every_voter(run, tmp_path):
    """Three voters to one: as good as 0.811 bits, which a model blind to the counts would miss by 0.19."""
    (tmp_path / "two.csv").write_text("count,a,b\n300,1,2\n100,2,1\n")
    network = ["--width", 8, "--depth", 1, "--heads", 1, "--steps", 300, "--lr", 0.02]
    assert run("train", "two.csv", *network, "--objective", "autoregressive", "--out", "run")[0] == 0
    law = fr.PermutationModel.from_pretrained(tmp_path / "run").distribution()
    assert law.log_prob(torch.tensor([0, 1])).exp().item() == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (
            "a,b\n1,\n2,1\n",
            [],
            "votes.csv:2: the ranking does not rank 'b'; a model learns from complete rankings",
        ),
        ("a,b\n1,1\n2,1\n", [], "votes.csv:2: the ranking ties 'a' and 'b'; --break-ties puts"),
        ("a,b\n1,2\n", [], "of 1 voters leaves one part empty; --held-out 0 trains on all of them"),
        ("a,b\n1,2\n2,1\n", ["--held-out", "1.5"], "lies between 0 and 1, not at 1.5; --held-out 0"),
        ("a,b\n1,2\n2,1\n", ["--held-out", "0.5", "--width", "9"], "multiple of the heads"),
        ("a,b\n1,2\n2,1\n", ["--held-out", "0.5", "--dropout", "2"], "dropout is a share, a number from 0"),
        ("a,b\n1,2\n2,1\n", ["--steps", "0"], "--steps is a whole number of at least 1, not 0"),
        ("a,b\n1,2\n2,1\n", ["--max-seconds", "-1"], "--max-seconds is a finite number above 0, not -1.0"),
        ("count,a,b\n9999999999,1,2\n", [], "9999999999 voters who rank 2 items are too many to train on"),
    ],
)
def test_train_refuses(text, arguments, message, run, tmp_path):
    (tmp_path / "votes.csv").write_text(text)
    status, out, err = run("train", "votes.csv", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_train_breaks_ties(run, tmp_path):
    (tmp_path / "tied.csv").write_text("count,a,b\n50,1,1\n50,2,1\n")
    assert run("train", "tied.csv", "--break-ties", *SMALL)[0] == 0


@pytest.mark.parametrize("options", [["--nfe", 1], ["--unmask", "left-to-right"], ["--unmask", "confident"]])
def test_scores_of_a_model_are_its_log_prob(options, model, run, tmp_path):
    orders = fr.permutation_at(torch.arange(24), 4)
    write_rankings(Rankings.from_orders(orders, counts=torch.arange(24) + 1), tmp_path / "all.soc")
    status, out, _ = run("score", "model", "all.soc", *options, "--out", "scores.csv")
    assert status == 0
    table = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert [row["ranking"] for row in table] == [" > ".join(map(str, row)) for row in orders.tolist()]
    with torch.no_grad():
        bits = -model.distribution(nfe=1).log_prob(orders) / math.log(2)
    assert [float(row["bits"]) for row in table] == pytest.approx(bits.tolist(), abs=1e-5)
    assert sum(2 ** -float(row["bits"]) for row in table) == pytest.approx(1, abs=1e-5)
    mean = float((bits * (torch.arange(24) + 1)).sum() / 300)
    assert f"mean of 300 rankings: {mean:.3f} bits (exact)\nthe uniform law: 4.585 bits\n" in out


def test_scores_are_written_in_the_order_of_the_file(model, run, tmp_path):
    """Equal rankings keep their rows, so that the scores can be put beside the voters."""
    lines = ["0,1,2,3", "3,2,1,0", "0,1,2,3", "2,0,1,3"]
    (tmp_path / "votes.csv").write_text("\n".join(["place 1,place 2,place 3,place 4", *lines]))
    for options, name in (["--nfe", 1], "bits"), ([], "bits_bound"):
        status, out, _ = run("score", "model", "votes.csv", "--out", "scores.csv", *options)
        assert status == 0
        assert "scores.csv: 4 rankings, a row for each of votes.csv, in its order" in out
        table = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
        assert list(table[0]) == ["voters", name, "ranking"]
        assert [row["ranking"].replace(" > ", ",") for row in table] == lines
        assert {row["voters"] for row in table} == {"1"}
        assert table[0] == table[2]
    run("score", "model", "votes.csv", "--out", "scores.csv", "--break-ties")
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 4


def test_scores_follow_the_names_whatever_their_order(votes, run, tmp_path):
    """The same vote in a file that lists the items otherwise has the same bits."""
    run("fit", votes, "--bootstrap", 0, "--no-picture", "--out", "law")
    run("train", votes, *SMALL, "--out", "run")
    (tmp_path / "one.csv").write_text("ann,bob,cat,dan\n2,4,1,3\n")
    (tmp_path / "other.csv").write_text("dan,cat,bob,ann\n3,1,4,2\n")
    for arguments in (["law"], ["run", "--unmask", "left-to-right"]):
        first, second = (run("score", arguments[0], f, *arguments[1:])[1] for f in ("one.csv", "other.csv"))
        assert "cat > ann > dan > bob" in first
        assert first == second
    law = fr.load_law(tmp_path / "law")
    bits = -float(law.log_prob(torch.tensor([2, 0, 3, 1]))) / math.log(2)
    assert f"mean of 1 ranking: {bits:.3f} bits (exact)" in run("score", "law", "one.csv")[1]


def test_scores_of_top_lists_under_a_law(votes, run, tmp_path):
    run("fit", votes, "--bootstrap", 0, "--no-picture", "--out", "law")
    (tmp_path / "top.csv").write_text("ann,bob,cat,dan\n,,1,\n")
    status, out, _ = run("score", "law", "top.csv", "--unranked", "below")
    orders = fr.permutation_at(torch.arange(24), 4)
    first = orders[orders[:, 0] == 2]
    bits = -float(fr.load_law(tmp_path / "law").log_prob(first).logsumexp(0)) / math.log(2)
    assert status == 0
    assert f"{bits:.3f}  cat\n" in out
    assert "uniform" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["score", "model", "names.csv"], "'a' is in names.csv only"),
        (["score", "model", "few.csv"], "the items of few.csv are not those of model: '3' is in model only"),
        (["score", "model", "top.csv"], "top.csv:2: the ranking does not rank '1': say --unranked below"),
        (["score", "model", "top.csv", "--unranked", "below"], "a model scores complete rankings only"),
        (["score", ".", "names.csv"], "neither a law (law.json) nor a model (config.json)"),
        (["sample", "model", "--nfe", "9"], "nfe is a whole number from 1 to 4, not 9"),
        (["sample", "context"], "the model in context is conditional on a context (ItemContext)"),
        (
            ["figure", "cyclic"],
            "no file results/cyclic.jsonl; --results FILE draws from another; factorank cyclic writes such",
        ),
        (
            ["figure", "codes", "--results", "none.jsonl"],
            "no file none.jsonl; factorank bench codes writes such",
        ),
        (["figure", "votes", "--results", "bench.jsonl"], "but the file holds results of codes"),
        (["figure", "votes", "--results", "empty.jsonl"], "but the file holds no results"),
    ],
)
def test_errors_are_one_line(arguments, message, model, run, tmp_path):
    (tmp_path / "names.csv").write_text("a,b,c,d\n1,2,3,4\n")
    (tmp_path / "few.csv").write_text("place 1,place 2,place 3\n0,1,2\n")
    (tmp_path / "top.csv").write_text("place 1,place 2,place 3,place 4\n0,,,\n1,2,3,0\n")
    (tmp_path / "bench.jsonl").write_text('{"experiment": "codes"}\n')
    (tmp_path / "empty.jsonl").write_text("")
    context = fr.ItemContext(9, 8)
    fr.PermutationModel(3, "insertion", width=8, depth=1, heads=1, context=context).save_pretrained(
        tmp_path / "context"
    )
    status, out, err = run(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "items.json: not JSON"),
        ("[1, 2, 3, 4]", "items.json: [1, 2, 3, 4] is not dict"),
        (sealed_head({"items": ["a"]}, {}), "items.json: not a list of the names of 4 items"),
        (sealed_head({"items": list("abcd")}, {}).replace('"a"', '"e"'), "items.json: damaged or edited"),
    ],
)
def test_damaged_names_are_refused(text, message, model, run, tmp_path):
    (tmp_path / "model/items.json").write_text(text)
    status, _, err = run("sample", "model")
    assert status == 2
    assert message in err


def test_the_command_offers_every_figure(run):
    assert set(FIGURES) == set(MADE_BY)
    assert set(FIGURES) <= set(
        run("figure", "--help")[1].replace("{", " ").replace("}", " ").replace(",", " ").split()
    )


def test_train_chooses_the_code_by_held_out_bits_and_says_so(votes, run, tmp_path):
    status, out, err = run("train", votes, "--steps", 6, "--rounds", 2)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "votes.soc: 200 rankings of 4 items"
    assert lines[1] == "read as: PrefLib soc (strict orders, complete)"
    table = [line.split() for line in lines[4:8]]
    assert {row[0] for row in table} == {"inline", "insertion", "lehmer"}
    bits = [float(next(cell for cell in row if "." in cell).rstrip("*")) for row in table]
    assert bits == sorted(bits)
    assert "*" in lines[4]
    folder = tmp_path / "runs/train/votes-auto"
    facts = json.loads((folder / "networks.json").read_text())
    assert sum(part["weight"] for part in facts["networks"]) == pytest.approx(1)
    _, out, err = run("sample", folder, "--count", 5)
    assert [sorted(line.split(" > ")) for line in out.splitlines()] == [NAMES] * 5
    status, out, err = run("score", folder, votes)
    assert (status, err) == (0, "")
    assert "(exact)" in out
    status, _, err = run("sample", folder, "--nfe", 2)
    assert status == 2
    assert "--nfe is for a single network" in err
    status, _, err = run("train", votes, "--code", "auto", "--depth", 2)
    assert status == 2
    assert "--depth is for a network of one code" in err
    head = (folder / "networks.json").read_text()
    for text in ("{}", head.replace('"weight": 0.', '"weight": 0.0')):
        (folder / "networks.json").write_text(text)
        assert "networks.json" in run("sample", folder)[2]
    (folder / "networks.json").write_text(head)
    ours, other = (folder / part["folder"] for part in facts["networks"][:2])
    for path in other.iterdir():
        path.write_bytes((ours / path.name).read_bytes())
    assert "not the network that networks.json names" in run("sample", folder)[2]


def test_sample_never_prints_what_is_no_order(votes, run, tmp_path):
    """A law that knows nothing holds an item twice in most of its draws; the others are kept."""
    fr.PermutationModel(4, "inline", width=8, depth=1, heads=1).save_pretrained(tmp_path / "inline")
    status, out, err = run("sample", "inline", "--count", 200)
    assert status == 0
    assert all(sorted(line.split(" > ")) == list("0123") for line in out.splitlines())
    share = float(err.split("rejection: ")[1].split("%")[0]) / 100
    assert share == pytest.approx(24 / 256, abs=0.04)
    fr.PermutationModel(9, "inline", width=8, depth=1, heads=1).save_pretrained(tmp_path / "many")
    status, out, err = run("sample", "many", "--count", 50, "--nfe", 1)
    assert (status, out) == (2, "")
    assert "draws at nfe=1 are orders: an inline code holds items twice" in err
    assert "--nfe 9 is the most that can be done" in err
