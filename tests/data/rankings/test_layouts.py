"""Tables as people have them: every layout, separator and spelling is read as the same votes, and said so."""

from fractions import Fraction

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

import factorank as fr
from factorank.data import Rankings, read_rankings, write_rankings
from factorank.data.rankings import checks

VOTES = Rankings(["ann", "bob", "cat"], torch.tensor([[0, 1, 2], [1, 0, 1], [-1, 0, 1]]))
STRICT = Rankings(["ann", "bob", "cat"], torch.tensor([[0, 1, 2], [1, 0, 2], [1, 0, -1]]))

RANKS = [
    "ann,bob,cat\n1,2,3\n2,1,2\n,1,2\n",
    "ann;bob;cat\n1;2;3\n2;1;2\n;1;2\n",
    "ann\tbob\tcat\n1\t2\t3\n2\t1\t2\n\t1\t2\n",
    "ann|bob|cat\n1|2|3\n2|1|2\n-|1|2\n",
    "sep=;\nann;bob;cat\n1;2;3\n2;1;2\n;1;2\n",
    "ann,bob,cat\n1,2,3\n2.5,1,2.5\nNA,1,2\n",
    "ann;bob;cat\n1;2;3\n2,5;1;2,5\nn/a;1;2\n",
    "ann,bob,cat\n1.0,2.0,3.0\n2.0,1.0,2.0\nNaN,1.0,2.0\n",
    ",ann,bob,cat\n0,1,2,3\n1,2,1,2\n2,-,1,2\n",
    "ID,ann,bob,cat\n7,1,2,3\n8,2,1,2\n9,null,1,2\n",
    "Unnamed: 0,Voter,ann,bob,cat\n0,x,1,2,3\n1,y,2,1,2\n2,z,,1,2\n",
    "index;COUNT;ann;bob;cat\n0;1;1;2;3\n1;1;2;1;2\n2;1;None;1;2\n",
    " ann , bob , cat \n 1 , 2 , 3 \n 2 , 1 , 2 \n , 1 , 2 \n",
]
ORDERS = [
    "place 1,place 2,place 3\nann,bob,cat\nbob,ann,cat\nbob,ann,\n",
    "1st,2nd,3rd\nann,bob,cat\nbob,ann,cat\nbob,ann,NA\n",
    "Rank1;Rank2;Rank3\nann;bob;cat\nbob;ann;cat\nbob;ann;-\n",
    "rank_1\trank_2\trank_3\nann\tbob\tcat\nbob\tann\tcat\nbob\tann\t\n",
    "First,Second,Third\nann,bob,cat\nbob,ann,cat\nbob,ann,nan\n",
    "FIRST CHOICE,SECOND CHOICE,THIRD CHOICE\nann,bob,cat\nbob,ann,cat\nbob,ann,\n",
    "Choice 1,Choice 2,Choice 3\nann,bob,cat\nbob,ann,cat\nbob,ann,\n",
    "1,2,3\nann,bob,cat\nbob,ann,cat\nbob,ann,\n",
    "0,1,2\nann,bob,cat\nbob,ann,cat\nbob,ann,\n",
    "User_ID,Position 1,Position 2,Position 3\n1,ann,bob,cat\n2,bob,ann,cat\n3,bob,ann,\n",
]
LONG = [
    "voter,item,rank\n1,ann,1\n1,bob,2\n1,cat,3\n2,bob,1\n2,ann,2\n2,cat,3\n3,bob,1\n3,ann,2\n",
    "Voter;Item;Rank\n1;ann;1\n1;bob;2\n1;cat;3\n2;bob;1\n2;ann;2\n2;cat;3\n3;bob;1\n3;ann;2\n3;cat;NA\n",
    "RANK\tCandidate\tRespondent ID\n1\tann\ta\n2\tbob\ta\n3\tcat\ta\n1\tbob\tb\n2\tann\tb\n3\tcat\tb\n"
    "1\tbob\tc\n2\tann\tc\n",
    "user,item,rating\n1,ann,9.5\n1,bob,7\n1,cat,-1\n2,bob,5\n2,ann,4\n2,cat,3\n3,bob,5\n3,ann,2\n3,cat,\n",
]


@pytest.mark.parametrize("text", RANKS)
def test_tables_of_ranks(text, tmp_path):
    (tmp_path / "v.csv").write_text(text)
    votes = read_rankings(tmp_path / "v.csv")
    assert votes == VOTES
    assert votes.read_as.startswith("read as: one row ")
    assert "columns are items, cells are ranks, 1 is best" in votes.read_as


@pytest.mark.parametrize("text", ORDERS)
def test_tables_of_orders(text, tmp_path):
    (tmp_path / "v.txt").write_text(text)
    votes = read_rankings(tmp_path / "v.txt")
    assert votes == STRICT
    assert "columns are places, best first, cells are items" in votes.read_as


@pytest.mark.parametrize("text", LONG)
def test_long_tables(text, tmp_path):
    (tmp_path / "v.csv").write_text(text)
    votes = read_rankings(tmp_path / "v.csv")
    assert votes == STRICT
    assert ("scores, the highest is best" if "rating" in text else "ranks, 1 is best") in votes.read_as


def test_winners_and_losers(tmp_path):
    (tmp_path / "v.csv").write_text("Winner;Loser;Count\nbob;ann;2\nann;cat;1\nbob;ann;3\n")
    votes = read_rankings(tmp_path / "v.csv")
    assert votes == Rankings(
        ["ann", "bob", "cat"], torch.tensor([[1, 0, -1], [0, -1, 1]]), torch.tensor([5, 1])
    )
    assert (
        votes.read_as
        == "read as: one row for 'Count' comparisons, 'Winner' beats 'Loser', separated by semicolons"
    )


def test_the_suffix_tsv_means_tabs_and_names_may_hold_the_other_separators(tmp_path):
    (tmp_path / "v.tsv").write_text("a,b\tc;d\n1\t2\n")
    assert read_rankings(tmp_path / "v.tsv").items == ("a,b", "c;d")
    (tmp_path / "v.csv").write_text("Smith, John;Doe, Jane\n2;1\n")
    assert read_rankings(tmp_path / "v.csv").items == ("Smith, John", "Doe, Jane")


def test_what_is_said_can_be_overruled(tmp_path):
    path = tmp_path / "v.csv"
    path.write_text("a,b,c\n3,2,1\n1,2,3\n")
    assert read_rankings(path).ranks.tolist() == [[2, 1, 0], [0, 1, 2]]
    assert read_rankings(path, "scores").ranks.tolist() == [[0, 1, 2], [2, 1, 0]]
    path.write_text("best,middle,worst\na,b,c\nb,c,a\n")
    assert read_rankings(path, "orders").ranks.tolist() == [[0, 1, 2], [2, 0, 1]]
    path.write_text("1,2\n2,1\n")
    assert read_rankings(path, "orders").ranks.tolist() == [[1, 0]]
    path.write_text("voter,item,rank,date\n1,ann,1,may\n1,bob,2,may\n")
    assert read_rankings(path, "long").items == ("ann", "bob")
    path.write_text("a;b,c\n1;2,0\n")
    with pytest.raises(fr.RankingsError, match=r"format='csv', format='semicolons'"):
        read_rankings(path)
    assert read_rankings(path, "semicolons").n == 2


def test_a_first_line_that_is_a_ranking_is_seen_also_when_the_layout_is_given(tmp_path):
    (tmp_path / "v.csv").write_text("a,b,c\nb,a,c\n")
    with pytest.raises(fr.RankingsError, match="this line looks like a ranking"):
        read_rankings(tmp_path / "v.csv", "orders")


def test_a_count_of_zero_is_left_out_with_a_word(tmp_path):
    votes = Rankings(["a", "b"], torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, 7]))
    write_rankings(votes, tmp_path / "v.soc")
    text = (tmp_path / "v.soc").read_text()
    (tmp_path / "v.soc").write_text(text.replace("7: ", "0: ").replace("VOTERS: 9", "VOTERS: 2"))
    (tmp_path / "v.csv").write_text("count,a,b\n2,1,2\n0,2,1\n0,1,1\n")
    for name, word in ("v.soc", "v.soc:16: a ranking with"), ("v.csv", "v.csv:3: 2 rankings with"):
        with pytest.warns(fr.RankingsWarning, match=f"{word} a count of 0 left out"):
            assert read_rankings(tmp_path / name) == Rankings(
                ["a", "b"], torch.tensor([[0, 1]]), torch.tensor([2])
            )
    (tmp_path / "v.csv").write_text("count,a,b\n0,2,1\n")
    with pytest.raises(fr.RankingsError, match="there is no ranking in the file"):
        read_rankings(tmp_path / "v.csv")


def test_control_characters_are_cleaned_with_a_word_and_items_stay_apart(tmp_path):
    votes = Rankings(["MÉNAGER", "STÖPEL", "bell", "x"], torch.tensor([[0, 1, 2, 3]]))
    write_rankings(votes, tmp_path / "v.soc")
    text = (tmp_path / "v.soc").read_text()
    text = (
        text.replace("STÖPEL", "MÉNAGER".encode().decode("latin-1"))
        .replace("bell", "be\x07ll")
        .replace(": x\n", ": " + "ÅX".encode().decode("latin-1") + "\n")
    )
    (tmp_path / "v.soc").write_text(text)
    with pytest.warns(fr.RankingsWarning, match=r"v\.soc:14: control characters .* and 2 more"):
        read = read_rankings(tmp_path / "v.soc")
    assert read.items == ("MÉNAGER", "MÃNAGER", "bell", "ÅX")
    (tmp_path / "v.csv").write_text("place 1,place 2\na\x07,b\n")
    with pytest.warns(fr.RankingsWarning, match=r"v\.csv:2: .*'a\\x07' is now 'a'"):
        assert read_rankings(tmp_path / "v.csv").items == ("a", "b")
    (tmp_path / "v.csv").write_text("place 1,place 2\na\x07,b\na,b\n")
    with pytest.raises(fr.RankingsError, match="differ by control characters only"):
        read_rankings(tmp_path / "v.csv")


@pytest.mark.parametrize("method", ["dense", "min", "average"])
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(scores=st.lists(st.integers(0, 4), min_size=1, max_size=7))
def test_ties_are_read_however_they_are_numbered(method, scores, tmp_path):
    ranks = rankdata([-score for score in scores], method=method)
    (tmp_path / "v.csv").write_text(
        ",".join(f"x{i}" for i in range(len(scores))) + "\n" + ",".join(f"{rank:g}" for rank in ranks) + "\n"
    )
    votes = read_rankings(tmp_path / "v.csv")
    assert votes == Rankings.from_scores(torch.tensor([scores], dtype=torch.float64), votes.items)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(row=st.lists(st.sampled_from([Fraction(k, 2) for k in range(2, 10)]), min_size=1, max_size=5))
def test_numbers_that_are_no_ranks_are_refused(row, tmp_path):
    """By brute force: the row is one of the three numberings of the ties that it has."""
    ways = (
        rankdata([float(value) for value in row], method=method) for method in ("dense", "min", "average")
    )
    valid = any([float(value) for value in row] == way.tolist() for way in ways)
    (tmp_path / "v.csv").write_text(
        ",".join(f"x{i}" for i in range(len(row)))
        + "\n"
        + ",".join(f"{float(value):g}" for value in row)
        + "\n"
    )
    if valid:
        assert read_rankings(tmp_path / "v.csv").complete
    else:
        with pytest.raises(fr.RankingsError, match=r"if the largest number is best, say format='scores'"):
            read_rankings(tmp_path / "v.csv")


@pytest.mark.parametrize("items", [["winner", "loser"], ["1st", "2nd"], ["ID", "a"], ["Weight", "a"]])
def test_names_that_would_be_mistaken_for_columns_are_not_written_as_such(items, tmp_path):
    votes = Rankings(items, torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(fr.RankingsError, match="use long"):
        write_rankings(votes, tmp_path / "v.csv")
    write_rankings(votes, tmp_path / "v.csv", "long")
    assert read_rankings(tmp_path / "v.csv") == votes


def test_rankings_that_would_fill_the_memory_are_refused_before_they_do(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "MOST_RANKS", 100)
    (tmp_path / "v.csv").write_text("voter,item,rank\n" + "".join(f"v{i},i{i},1\n" for i in range(11)))
    with pytest.raises(
        fr.RankingsError, match="11 different rankings of 11 items hold 121 ranks; at most 100"
    ):
        read_rankings(tmp_path / "v.csv")
    (tmp_path / "w.csv").write_text("winner,loser\n" + "a,b\nb,a\n" * 200)  # 400 rows, 2 different ones
    assert read_rankings(tmp_path / "w.csv").counts.tolist() == [200, 200]


def test_equal_rows_are_merged_in_the_order_of_first_appearance():
    ranks = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 0], [0, 1]])
    merged = Rankings(["a", "b"], ranks, torch.tensor([1, 2, 3, 4, 5])).distinct()
    assert merged == Rankings(["a", "b"], torch.tensor([[1, 0], [0, 1], [0, 0]]), torch.tensor([4, 7, 4]))


def test_scores_that_are_no_numbers_are_refused(tmp_path):
    (tmp_path / "v.csv").write_text("a,b\n1.5,x\n")
    with pytest.raises(fr.RankingsError, match="the score of 'b' is 'x', not a number"):
        read_rankings(tmp_path / "v.csv", "scores")
    (tmp_path / "v.csv").write_text("a,b\n-1.5,2e1\n")
    assert read_rankings(tmp_path / "v.csv", "scores").ranks.tolist() == [[1, 0]]
