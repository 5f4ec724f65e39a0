"""Bad inputs, generated from signatures: a call that is right, with one or two of its arguments spoilt.

An argument whose type is none that the signature names is certainly wrong: to accept it is silently wrong.
Others may be right, such as another dtype or a tensor of another shape; of those the answers are looked at:
no number in them is NaN, and what should be a permutation is one.
"""

import math
import random
import signal
import types
import typing
import warnings
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import factorank as fr
from benchmarks.campaign.specimens import Target, targets

HUNG, PATIENCE = 20, 2
"""Seconds after which a call counts as hanging, and after which one is left alone that asks for very much."""
MUCH = 10**6


class Thing:
    """An object that is nothing in particular."""

    def __repr__(self) -> str:
        return "<thing>"


def hostile(random_numbers: random.Random) -> list[Any]:
    """Values that are wrong for most parameters."""
    g = torch.Generator().manual_seed(random_numbers.randrange(2**31))
    n = random_numbers.choice([0, 1, 2, 4, 5, 300])
    order = torch.randperm(n, generator=g)
    return [
        *(None, True, False, 0, 1, -1, 2, 10**12, -(10**12), 10**30, 2**63, 0.5, -0.5, 1e308, 5e-324),
        *(math.nan, math.inf, -math.inf, 1 + 2j, "", "lehmer", "\x1b[31m", "\ud800", b"bytes", "0", "nan"),
        *(
            [],
            [0],
            [0, 0],
            [1, 2, 3, 4],
            [[0, 1], [2]],
            ["a"],
            [None],
            (),
            (0,),
            (-1,),
            (2, -3),
            {},
            {"a": 1},
        ),
        *(set(), Thing(), Thing, print, iter([1]), range(4), types.SimpleNamespace()),
        *(torch.tensor(3), torch.tensor(0.5), torch.tensor(math.nan), torch.empty(0), torch.empty(0, 4)),
        *(
            torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]]),
            torch.tensor([0, 1, 2, -1]),
            torch.tensor([0, 1, -7, 2]),
        ),
        *(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 2**62])),
        *(
            order,
            order.to(torch.int8),
            order.float(),
            order.bool(),
            order.to(torch.complex64),
            order[None, None],
        ),
        *(order.to(torch.uint8), order.to(torch.uint16), order.to(torch.uint64), order.double() * math.nan),
        *(torch.rand(4, generator=g), torch.rand(4, 4, generator=g) * -1, torch.full((4,), math.inf)),
        *(torch.zeros(4, dtype=torch.float16), torch.zeros(4).to_sparse(), torch.zeros(4, device="meta")),
        *(
            np.arange(4),
            np.arange(4.0),
            np.array(["a", "b"]),
            np.array([object()]),
            np.float32(0.5),
            np.int8(3),
        ),
        *(
            np.array([[0, 1], [1, 0]]),
            np.array(math.nan),
            np.datetime64("2020"),
            torch.float32,
            torch.device("cpu"),
        ),
        *(
            "cuda",
            "nowhere",
            torch.Generator(),
            fr.Uniform(3),
            fr.Uniform(4),
            fr.Lehmer(),
            torch.nn.Linear(2, 2),
        ),
        *("/dev/null/at/all", "/dev/null", "."),
    ]


def attempt(target: Target, random_numbers: random.Random) -> tuple[str, str]:
    """Spoil some arguments and call: what came of it, and how the call reads."""
    arguments = dict(target.arguments)
    names = [name for name in target.hints if name != "return"] or list(arguments)
    if not names:
        return "right", target.name
    pool = hostile(random_numbers)
    spoilt = random_numbers.sample(names, min(len(names), random_numbers.choice([1, 1, 1, 2])))
    for name in spoilt:
        arguments[name] = random_numbers.choice(pool)
    wrong = any(not allows(target.hints.get(name, Any), arguments[name]) for name in spoilt)
    described = f"{target.name}({', '.join(f'{name}={_shown(arguments[name])}' for name in spoilt)})"
    much = any(isinstance(arguments[name], int) and arguments[name] > MUCH for name in spoilt)
    try:
        with warnings.catch_warnings(), _limit(PATIENCE if much else HUNG):
            warnings.simplefilter("ignore")
            answer = target.call(**arguments)
            fault = _fault(target, answer)
    except fr.FactorankError as error:
        timed = isinstance(error.__cause__, TimeoutError)
        return ("taken" if timed else "refused"), described
    except TimeoutError:  # who asks for a million million rounds gets them
        return ("taken" if much else "hung"), described
    except OSError as error:
        return ("refused" if error.filename is not None or error.strerror else "raw"), described
    except MemoryError:
        return "memory", described
    except Exception as error:
        text = " ".join(str(error).split())[:90]
        return "raw", f"{described}: {type(error).__name__}: {text}"
    if fault:
        return "wrong answer", f"{described}: {fault}"
    return ("accepted" if wrong else "taken"), described


def numbered(number: int, seed: int) -> tuple[str, str]:
    """The attempt of this number; targets take turns."""
    return attempt(targets()[number % len(targets())], random.Random(f"{seed} {number}"))


def allows(hint: Any, value: Any) -> bool:
    """Whether a value may be meant by a parameter of this type; generous about what numbers and lists are."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return True
    if hint is None or hint is types.NoneType:
        return value is None
    if origin in (typing.Union, types.UnionType):
        return any(allows(part, value) for part in parts)
    if origin is typing.Literal:
        return isinstance(value, str | bool | int) and value in parts
    if hint in (int, float):
        return isinstance(value, int | float | np.number | Tensor) and not isinstance(value, bool)
    if hint is bool:
        return isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    kind = origin or hint
    if not isinstance(kind, type):
        return True
    if kind is Hashable:
        return isinstance(value, Hashable)
    if isinstance(value, str) and kind.__module__ == "collections.abc" and parts[:1] == (str,):
        return True  # a text is a sequence of letters
    if issubclass(kind, Tensor):
        return isinstance(value, Tensor)
    if kind.__module__ == "collections.abc" or kind in (list, tuple, dict, torch.Size):
        return not isinstance(value, str | bytes | bool | int | float | complex | None)
    return isinstance(value, kind)


def _fault(target: Target, answer: Any) -> str:
    """What is wrong with an answer that can be seen without knowing the right one."""
    if target.name.endswith(".relevance"):  # of no rating, which is NaN, there is none
        return ""
    if isinstance(answer, float) and math.isnan(answer):
        return "NaN"
    real = isinstance(answer, Tensor) and answer.device.type != "meta" and answer.is_floating_point()
    if real and bool(answer.isnan().any()):
        return "NaN"
    if isinstance(answer, fr.PermutationDistribution) and answer.n <= 64:
        drawn = answer.sample((2,), generator=torch.Generator().manual_seed(0))
        shorter = [order[order >= 0] for order in drawn.flatten(0, -2)]  # lists of letters may end in -1
        if not all(bool(fr.is_permutation(order)) for order in shorter):
            return "samples are no permutations"
    return ""


class _limit:
    """Raise ``TimeoutError`` in a block that takes too long."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def stop(*_: object) -> None:
            raise TimeoutError

        self.before = signal.signal(signal.SIGALRM, stop)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self.before)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype)[6:]}{tuple(value.shape)}" + (
            f"={value.tolist()}"
            if value.device.type != "meta" and not value.is_sparse and value.numel() < 6
            else ""
        )
    return ascii(value)[:50]
