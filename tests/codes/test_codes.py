"""Every code against its definition, and what the paper says about them."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import factorank as fr
from tests.codes.definitions import DEFINITIONS

NAMES = list(DEFINITIONS)
FACTORIZED = [name for name in NAMES if name != "inline"]
INTEGERS = [
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]


def all_orders(n: int) -> torch.Tensor:
    return torch.tensor(list(itertools.permutations(range(n))), dtype=torch.int64).reshape(
        math.factorial(n), n
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", range(8))
def test_equals_its_definition_on_every_permutation(name: str, n: int) -> None:
    orders = all_orders(n)
    codes = fr.code(name).encode(orders)
    expected = torch.tensor([DEFINITIONS[name](x) for x in orders.tolist()], dtype=torch.int64)
    expected = expected.reshape(orders.shape)
    assert torch.equal(codes, expected)
    assert torch.equal(fr.code(name).decode(codes), orders)


@pytest.mark.parametrize("name", FACTORIZED)
@pytest.mark.parametrize("n", range(8))
def test_every_sequence_in_the_domains_is_the_code_of_one_permutation(name: str, n: int) -> None:
    code = fr.code(name)
    domains = [range(int(size)) for size in code.sizes(n)]
    codes = torch.tensor(list(itertools.product(*domains)), dtype=torch.int64).reshape(math.factorial(n), n)
    orders = code.decode(codes)
    assert fr.is_permutation(orders).all()
    assert len({tuple(order) for order in orders.tolist()}) == math.factorial(n)
    assert torch.equal(code.encode(orders), codes)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_dtype_and_batch_shape_are_kept(name: str, dtype: torch.dtype) -> None:
    code = fr.code(name)
    for n in (0, 1, 5, 70):
        for batch in ((), (1,), (3,), (2, 3), (0,), (2, 0, 3), (1, 2, 1, 2)):
            orders = fr.random_permutations(n, batch)
            codes = code.encode(orders.to(dtype))
            assert codes.dtype == dtype
            assert codes.shape == (*batch, n)
            expected = (
                [DEFINITIONS[name](x) for x in orders.reshape(-1, n).tolist()] if orders.numel() else []
            )
            assert codes.reshape(-1).tolist() == [value for row in expected for value in row]
            back = code.decode(codes)
            assert back.dtype == dtype
            assert torch.equal(back.to(torch.int64), orders)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "n", [16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 2048, 2049]
)
def test_long_codes(name: str, n: int, generator: torch.Generator) -> None:
    orders = fr.random_permutations(n, (7,), generator=generator)
    identity = torch.arange(n)
    orders = torch.cat([orders, identity[None], identity.flip(0)[None]])
    expected = {row: DEFINITIONS[name](orders[row].tolist()) for row in (0, 7, 8)}
    for dtype in (torch.int32, torch.int64):
        codes = fr.code(name).encode(orders.to(dtype))
        assert {row: codes[row].tolist() for row in expected} == expected
        assert torch.equal(fr.code(name).decode(codes).to(torch.int64), orders)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [10_000, 16_384, 16_385, 66_000])
def test_very_long_codes(name: str, n: int, generator: torch.Generator) -> None:
    order = fr.random_permutations(n, (2,), generator=generator)
    code = fr.code(name).encode(order)
    assert torch.equal(fr.code(name).decode(code), order)
    if name == "lehmer":  # the sum counts inversions, which merge sort counts too
        assert code[0].sum() == inversions(order[0].tolist())
        assert (code < fr.code(name).sizes(n)).all()
    if name == "insertion":
        left = fr.Lehmer(side="left").encode(fr.inverse(order))
        assert torch.equal(code, torch.arange(n) - left)


def inversions(values: list[int]) -> int:
    if len(values) < 2:
        return 0
    half = len(values) // 2
    one, two = values[:half], values[half:]
    count = inversions(one) + inversions(two)
    one, two = sorted(one), sorted(two)
    j = 0
    for x in one:
        while j < len(two) and two[j] < x:
            j += 1
        count += j
    return count


@given(st.data())
def test_round_trip_of_any_batch(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    n = data.draw(st.integers(0, 140))
    batch = data.draw(st.lists(st.integers(0, 4), max_size=3))
    orders = fr.random_permutations(
        n, batch, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    )
    strided = orders.transpose(0, -1).contiguous().transpose(0, -1)  # same values, another memory layout
    assert torch.equal(fr.code(name).decode(fr.code(name).encode(strided)), orders)


# What the paper states, in the forms that hold.


def test_the_figures() -> None:
    assert fr.Lehmer().encode(torch.tensor([2, 4, 3, 0, 1])).tolist() == [2, 3, 2, 0, 0]
    assert fr.FisherYates().encode(torch.tensor([3, 2, 1, 0])).tolist() == [3, 1, 0, 0]
    assert fr.Insertion().encode(torch.tensor([1, 2, 4, 0, 3])).tolist() == [0, 0, 1, 3, 2]
    # The two codes of the appendix, which differ by one at one position, and their permutations.
    assert fr.Lehmer().decode(torch.tensor([2, 3, 1, 0, 0])).tolist() == [2, 4, 1, 0, 3]
    assert fr.Lehmer().decode(torch.tensor([2, 3, 2, 0, 0])).tolist() == [2, 4, 3, 0, 1]


def test_sizes() -> None:
    assert fr.code("lehmer").sizes(4).tolist() == fr.code("fisher-yates").sizes(4).tolist() == [4, 3, 2, 1]
    assert fr.code("left-lehmer").sizes(4).tolist() == fr.code("insertion").sizes(4).tolist() == [1, 2, 3, 4]
    assert fr.code("inline").sizes(4).tolist() == [4, 4, 4, 4]
    for name in NAMES:
        assert torch.equal(fr.code(name).support_mask(5).sum(1), fr.code(name).sizes(5))
        assert fr.code(name).support_mask(0).shape == (0, 0)
    assert {name for name in NAMES if fr.code(name).domains_depend_on_n} == {
        "inline",
        "lehmer",
        "fisher-yates",
    }


@pytest.mark.parametrize("n", range(1, 7))
def test_one_step_in_a_lehmer_code_is_a_transposition(n: int) -> None:
    codes = torch.tensor(list(itertools.product(*(range(size) for size in range(n, 0, -1)))))
    orders = fr.Lehmer().decode(codes)
    for i in range(n):
        for other in range(1, n - i):
            smaller = codes[:, i] < other
            changed = codes[smaller]
            changed[:, i] = other
            moved = fr.hamming(orders[smaller], fr.Lehmer().decode(changed))
            # 2, one transposition, for a step of one
            assert torch.equal(moved, other - codes[smaller, i] + 1)


@pytest.mark.parametrize("n", range(8))
def test_insertion_is_left_lehmer_of_the_inverse(n: int) -> None:
    orders = all_orders(n)
    left = fr.Lehmer(side="left").encode(fr.inverse(orders))
    assert torch.equal(fr.Insertion().encode(orders), torch.arange(n) - left)


@pytest.mark.parametrize("n", range(1, 8))
def test_cyclic_exactly_when_all_draws_but_the_last_are_positive(n: int) -> None:
    orders = all_orders(n)
    draws = fr.FisherYates().encode(orders)
    assert torch.equal(fr.is_cyclic(orders), (draws[:, :-1] > 0).all(1))
    assert fr.is_cyclic(orders).sum() == math.factorial(n - 1)


@pytest.mark.parametrize("side", ["right", "left"])
def test_lehmer_sum_is_kendall_to_the_identity(side: str) -> None:
    orders = all_orders(5)
    codes = fr.Lehmer(side=side).encode(orders)
    assert torch.equal(codes.sum(1), fr.kendall(orders, torch.arange(5)))


def test_sympy_agrees(generator: torch.Generator) -> None:
    combinatorics = pytest.importorskip("sympy.combinatorics")
    for n in (1, 2, 7, 30, 65):
        for order in fr.random_permutations(n, (5,), generator=generator):
            theirs = combinatorics.Permutation(order.tolist())
            assert fr.Lehmer().encode(order).tolist() == [*theirs.inversion_vector(), 0]
            assert fr.index_of(order) == theirs.rank()
            assert fr.inverse(order).tolist() == (~theirs).array_form


def test_the_lehmer_package_agrees(generator: torch.Generator) -> None:
    theirs = pytest.importorskip("lehmer").Lehmer(9)
    for order in fr.random_permutations(9, (20,), generator=generator):
        assert fr.index_of(order) == int(theirs.encode(order.tolist())[0])
        assert fr.Lehmer().encode(order).tolist() == theirs.perm2code(order.tolist())[0].tolist()
