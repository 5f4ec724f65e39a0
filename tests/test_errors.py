"""Errors carry their parameter, in Python and on the command line."""

import pickle
from dataclasses import dataclass
from typing import Annotated

import pytest
import torch
import tyro

import factorank as fr
from factorank.commands._options import in_options, option_name
from factorank.errors import FactorankError, RankingsError, TrainingError

CASES = [
    (
        "{parameter} is at least 1, not 0",
        "first_rank is at least 1, not 0",
        "--first-rank is at least 1, not 0",
    ),
    ("say {parameter='below'} or so", "say first_rank='below' or so", "say --first-rank below or so"),
    ("say {parameter=0}", "say first_rank=0", "say --first-rank 0"),
    ("ranks begin with 1", "ranks begin with 1", "--first-rank: ranks begin with 1"),
    ("{'a': 1} and {x} stay", "{'a': 1} and {x} stay", "--first-rank: {'a': 1} and {x} stay"),
]


@dataclass
class Command:
    """A command line."""

    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")] = ""
    seconds: Annotated[float, tyro.conf.arg(name="max-seconds")] = 1.0
    first_rank: int = 1


@pytest.mark.parametrize(("message", "in_python", "on_the_command_line"), CASES)
def test_the_parameter_is_named_as_the_reader_sets_it(message, in_python, on_the_command_line):
    error = TrainingError(message, parameter="first_rank")
    assert (str(error), error.parameter) == (in_python, "first_rank")
    assert in_options(error, Command()) == on_the_command_line


def test_options_of_a_command():
    assert [option_name(Command(), name) for name in ("file", "seconds", "first_rank", "lr")] == [
        "FILE",
        "--max-seconds",
        "--first-rank",
        None,
    ]


def test_other_errors_keep_their_message():
    assert FactorankError("no {parameter}").parameter is None
    assert str(FactorankError("no {parameter}")) == "no {parameter}"
    assert in_options(FactorankError("no parameter"), Command()) == "no parameter"
    assert in_options(FactorankError("{parameter} is 1", parameter="lr"), Command()) == "lr is 1"


def test_the_place_comes_before_the_message():
    error = TrainingError("{parameter} is 1", parameter="first_rank").within("votes.csv")
    assert isinstance(error, TrainingError)
    assert str(error) == "votes.csv: first_rank is 1"
    assert error.with_option("--first-rank") == "votes.csv: --first-rank is 1"


@pytest.mark.parametrize(
    "error", [TrainingError("{parameter} is 1", parameter="lr"), RankingsError("a", row=3)]
)
def test_errors_come_back_from_other_processes(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def run(call):
    """A program that has no name."""
    exec("call()", {"call": call})


@pytest.mark.parametrize(
    "call",
    [
        lambda: fr.PlackettLuce.fit(torch.tensor([[0, 1]])),
        lambda: fr.PermutationModel(
            3, "insertion", width=8, depth=1, heads=1, context=fr.ItemContext(3, 8), target="rank"
        ).loss(torch.arange(3), torch.arange(3)),
    ],
)
def test_a_warning_names_the_line_of_the_caller(call):
    with pytest.warns(UserWarning, match="no maximum|goes to position") as caught:
        run(call)
    assert {warning.filename for warning in caught} == {__file__}
