"""The layer that checks arguments: errors of ours that name the parameter, for everything that is public."""

import inspect
import operator
import pickle
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numba
import numpy as np
import pytest
import torch

import factorank as fr
from benchmarks.campaign import inputs
from benchmarks.campaign.specimens import MODULES, public_names, skipped, targets
from factorank import arguments, public

WRONG: list[bool] = []


@arguments.checked
def example(
    n: int,
    share: float | None = None,
    kind: Literal["a", "b"] = "a",
    items: Sequence[int] = (),
    act: Callable[[], None] | None = None,
    flag: bool = False,
    pair: tuple[int, int] = (1, 2),
    path: Path | str = ".",
) -> int:
    if n == 3 and isinstance(n, int) and WRONG:
        raise RuntimeError("something deep inside")
    return 0 + operator.index(n)


@pytest.mark.parametrize(
    "right",
    [
        {"n": np.int8(3)},
        {"n": torch.tensor(3)},
        {"n": 3, "share": 1},
        {"n": 3, "share": np.float32(0.5)},
        {"n": 3, "share": torch.tensor(0.5)},
        {"n": 3, "items": np.arange(3)},
        {"n": 3, "items": torch.arange(3)},
        {"n": 3, "items": range(3)},
        {"n": 3, "act": print, "flag": True, "pair": [3, 4], "path": Path("x"), "kind": "b"},
    ],
)
def test_what_may_be_meant_is_taken(right):
    assert int(example(**right)) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": "3"}, "n is a whole number, not '3'"),
        ({"n": 3.0}, "n is a whole number, not 3.0"),
        ({"n": None}, "n is a whole number, not None"),
        ({"n": 3, "share": "x"}, "share is a number or None, not 'x'"),
        ({"n": 3, "share": 1j}, "share is a number or None, not 1j"),
        ({"n": 3, "kind": "c"}, "kind is 'a' or 'b', not 'c'"),
        ({"n": 3, "items": [1, "a"]}, "items is a sequence, not a list that holds 'a'$"),
        ({"n": 3, "items": "abc"}, "items is a sequence, not 'abc'"),
        ({"n": 3, "act": 4}, "act is a function or None, not 4"),
        ({"n": 3, "flag": 1}, "flag is True or False, not 1"),
        ({"n": 3, "pair": (1,)}, "pair is a sequence, not a tuple"),
        ({"n": 3, "path": 5}, "not 5"),
    ],
)
def test_the_error_names_the_parameter_and_is_a_type_error(wrong, message, monkeypatch):
    for fails in ([True], []):  # whether or not the function itself would fail
        monkeypatch.setattr(sys.modules[__name__], "WRONG", fails)
        with pytest.raises(fr.FactorankError, match=message) as caught:
            example(**wrong)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, ValueError)


def test_a_function_with_a_path_does_nothing_if_a_type_is_wrong(tmp_path):
    @arguments.checked
    def write(path: Path, text: str = "") -> None:
        Path(path).write_text(str(text))

    with pytest.raises(fr.FactorankError, match="text is text, not 3"):
        write(tmp_path / "file", text=3)
    assert not (tmp_path / "file").exists()
    write(tmp_path / "file", text="3")


def test_errors_of_the_callers_code_stay_what_they_are():
    def reward(orders):
        raise KeyError("of the caller")

    with pytest.raises(KeyError) as caught:
        fr.Uniform(3).tilt(reward, 1.0).log_prob(torch.arange(3))
    assert not isinstance(caught.value, fr.FactorankError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_torch_was_not_built_for():
    with pytest.raises(fr.FactorankError, match=r"CUDA|NVIDIA"):  # or built for it, where there is no driver
        fr.Uniform(3, device="cuda").sample()


def test_the_functions_own_words_come_first():
    with pytest.raises(fr.PermutationError, match="not as list"):
        fr.inverse([0, 1])


def test_what_fails_inside_is_an_error_of_ours_and_of_the_original_type():
    @arguments.checked
    def fails(kind: type) -> None:
        raise kind("the words")

    for kind in (RuntimeError, IndexError, TypeError, ZeroDivisionError, MemoryError):
        with pytest.raises(fr.FactorankError, match="fails cannot take these arguments: the words") as caught:
            fails(kind)
        assert isinstance(caught.value, kind)
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), kind)
    for kind in (KeyboardInterrupt, AssertionError, OSError):
        with pytest.raises(kind) as caught:
            fails(kind)
        assert not isinstance(caught.value, fr.FactorankError)


def test_everything_public_is_guarded():
    for name in public.__all__:
        value = getattr(fr, name)
        if inspect.isfunction(value):
            assert hasattr(value, "__checked__"), name
        elif inspect.isclass(value) and not issubclass(value, BaseException):
            own = vars(value).get("__init__")
            assert own is None or hasattr(own, "__checked__"), name
    for room in MODULES:
        module = getattr(fr, room)
        for name, value in vars(module).items():
            own = [name] if getattr(value, "__module__", "") == module.__name__ and name[0] != "_" else []
            if inspect.isfunction(value) and name in getattr(module, "__all__", own):
                assert hasattr(value, "__checked__"), f"{room}.{name}"


@pytest.mark.parametrize("objective", ["masked", "autoregressive"])
def test_learned_laws_are_guarded(objective):
    law = fr.PermutationModel(3, "lehmer", objective, width=8, depth=1, heads=2).distribution()
    for call in (
        lambda: law.sample_with_nfe((2,), generator="g"),
        lambda: law.path(generator=3),
        lambda: law.stratified(2, generator=3),
        lambda: law.expand((2,)).expand((3,)),
    ):
        with pytest.raises(fr.FactorankError):
            call()


def test_signatures_and_compilation_stay():
    assert list(inspect.signature(fr.kendall).parameters) == ["order", "other", "check"]
    assert pickle.loads(pickle.dumps(fr.kendall)) is fr.kendall
    compiled = torch.compile(lambda x: fr.losses.plackett_luce(x, torch.arange(3)), backend="eager")
    torch.testing.assert_close(compiled(torch.rand(3)).shape, torch.Size([]))


def test_laws_that_no_public_name_makes_are_checked_too():
    law = fr.PermutationModel(3, "lehmer", width=8, depth=1, heads=1).distribution(nfe=1)
    for each in (law, law.condition(observed=[1, 0]), law.tilt(lambda order: order[..., 0].double(), 1.0)):
        with pytest.raises(fr.FactorankError, match="generator is a Generator or None, not 'lehmer'"):
            each.sample(generator="lehmer")


def test_the_campaign_calls_every_public_name():
    called = {target.name for target in targets()}
    for name, value in public_names():
        kind = isinstance(value, type) and issubclass(value, BaseException)
        assert name in called or name in skipped() or kind or not callable(value), name
    assert not called & skipped()


def test_the_campaign_begins_with_arguments_that_are_right(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for target in targets():
        target.call(**target.arguments)


def test_a_short_campaign_of_bad_inputs(tmp_path, monkeypatch):
    """As `bench reliability` does a million times: nothing raw, no wrong type accepted, no NaN answered."""
    monkeypatch.chdir(tmp_path)  # where calls may write
    slow = (
        "Mixture.fit",
        "unscramble.",
        "Thurstone.fit",
        "jigsaw.",
        "load_ratings",
        "votes.",
        "baselines.denoising",
        "PermutationModel.dist",
    )
    chosen = [target for target in targets() if not target.name.startswith(slow)]
    faults = []
    for number in range(700):
        outcome, described = inputs.attempt(chosen[number % len(chosen)], random.Random(number))
        if outcome not in ("refused", "taken", "right"):
            faults.append(f"{outcome}: {described}")
    assert not faults, "\n".join(faults)


def test_errors_of_memory_are_ours_too():
    @arguments.checked
    def ask(count: int) -> np.ndarray:
        return np.empty(count)

    with pytest.raises(
        fr.FactorankError, match="ask cannot take these arguments: Unable to allocate"
    ) as caught:
        ask(10**15)
    assert isinstance(caught.value, MemoryError)


def test_errors_of_the_compiler_are_ours_too():
    @numba.njit
    def compiled(value):
        return value + 1

    @arguments.checked
    def call(value: object) -> object:
        return compiled(value)

    with pytest.raises(fr.FactorankError, match="call cannot take these arguments"):
        call(object())
