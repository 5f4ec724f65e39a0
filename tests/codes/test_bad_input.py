"""Bad codes and orders are refused, every one, with an error that says where."""

import random

import pytest
import torch

import factorank as fr
from tests.codes.test_codes import NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("direction", ["encode", "decode"])
def test_ten_thousand_bad_inputs(name: str, direction: str) -> None:
    """Over the codes and directions: every position of every length is spoilt at least twice."""
    chance = random.Random(f"{name} {direction}")
    code = fr.code(name)
    call = getattr(code, direction)
    good = {}
    for n in (1, 2, 3, 5, 10, 16, 17, 40, 64, 65, 130):
        orders = fr.random_permutations(n, (100,), generator=torch.Generator().manual_seed(n))
        good[n] = orders if direction == "encode" else code.encode(orders)
        sizes = [n] * n if direction == "encode" else code.sizes(n).tolist()
        for number in range(max(80, 2 * n)):
            rows, start = chance.choice([1, 1, 2, 5]), chance.randrange(90)
            bad = good[n][start : start + rows].to(chance.choice([torch.int32, torch.int64]), copy=True)
            row, i = chance.randrange(rows), number % n
            if direction == "encode" and n > 1 and chance.random() < 0.5:
                value = int(bad[row, i - 1])  # twice the same, in range
            else:
                wrong = [-1, sizes[i], sizes[i] + 1, -sizes[i], 63, 64, 2**31 - 1, -(2**31)]
                value = chance.choice([one for one in wrong if not 0 <= one < sizes[i]])
            bad[row, i] = value
            kept = bad.clone()
            message = ""
            try:
                call(bad)
            except fr.FactorankError as error:
                message = str(error)
            assert f"row {row}" in message
            assert f"holds {value}" in message
            assert torch.equal(bad, kept)


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_hold_a_permutation_is_refused(name: str) -> None:
    code = fr.code(name)
    for bad in (
        torch.tensor([0.0, 1.0]),
        torch.tensor([True, False]),
        torch.tensor(0),
        torch.tensor([0j, 1j]),
        torch.tensor([0.0, float("nan")], dtype=torch.bfloat16),
        [0, 1],
        None,
    ):
        with pytest.raises(fr.PermutationError):
            code.encode(bad)  # type: ignore[arg-type]
        with pytest.raises(fr.CodeError):
            code.decode(bad)  # type: ignore[arg-type]


def test_messages_name_code_position_row_value_and_range() -> None:
    codes = torch.zeros((20, 5), dtype=torch.int64)
    codes[17, 2] = 3
    with pytest.raises(fr.CodeError) as caught:
        fr.Lehmer().decode(codes)
    assert str(caught.value) == "right-Lehmer code of length 5 allows 0..2 at position 2 but row 17 holds 3"
    with pytest.raises(
        fr.CodeError, match=r"insertion code of length 5 .* 0\.\.2 at position 2 but row \(4, 1\) holds 3"
    ):
        fr.Insertion().decode(codes.view(5, 4, 5))
    with pytest.raises(
        fr.CodeError, match=r"Fisher-Yates code of length 3 allows 0\.\.0 at position 2 but it holds 1"
    ):
        fr.FisherYates().decode(torch.tensor([0, 0, 1]))
    with pytest.raises(fr.PermutationError) as caught:
        fr.Lehmer(side="left").encode(torch.tensor([[0, 1, 2], [1, 2, 3]]))
    assert str(caught.value) == "left-Lehmer encodes permutations of 0..2 but row 1 holds 3 at position 2"
    with pytest.raises(fr.PermutationError, match="row 0 holds 1 twice, at positions 0 and 2"):
        fr.FisherYates().encode(torch.tensor([[1, 0, 1]]))


@pytest.mark.parametrize("name", NAMES)
def test_unsigned_values_beyond_int64_are_refused(name: str) -> None:
    bad = torch.tensor([0, 2**64 - 1], dtype=torch.uint64)
    with pytest.raises(fr.PermutationError, match="18446744073709551615"):
        fr.code(name).encode(bad)
    with pytest.raises(fr.CodeError, match="18446744073709551615"):
        fr.code(name).decode(bad)


def test_orders_that_the_dtype_cannot_hold_are_refused() -> None:
    with pytest.raises(fr.CodeError, match=r"torch\.int8 cannot hold"):
        fr.Insertion().decode(torch.zeros(200, dtype=torch.int8))
    assert fr.Insertion().decode(torch.zeros(128, dtype=torch.int8))[0] == 127
    assert fr.Insertion().decode(torch.zeros(256, dtype=torch.uint8))[0] == 255


def test_inline_decode_checks_the_range_only() -> None:
    assert fr.Inline().decode(torch.tensor([1, 1])).tolist() == [1, 1]
    with pytest.raises(fr.CodeError):
        fr.Inline().decode(torch.tensor([1, 2]))


def test_unchecked_calls_touch_nothing_outside() -> None:
    """check=False on garbage may return garbage, but must not crash or write elsewhere."""
    garbage = torch.randint(-(2**62), 2**62, (50, 70))
    for n in (1, 5, 16, 17, 64, 65, 70):
        for name in NAMES:
            rows = garbage[:, :n]
            kept = rows.clone()
            assert fr.code(name).encode(rows, check=False).shape == rows.shape
            assert fr.code(name).decode(rows, check=False).shape == rows.shape
            assert torch.equal(rows, kept)


def test_names() -> None:
    assert fr.code("right-lehmer") == fr.code("lehmer") == fr.Lehmer()
    assert repr(fr.code("left-lehmer")) == "Lehmer(side='left')"
    assert fr.code(fr.Insertion()).name == "insertion"
    with pytest.raises(fr.CodeError, match="there is no code 'lemur'; there are inline, lehmer"):
        fr.code("lemur")
    with pytest.raises(fr.CodeError, match="'right' or 'left', not 'up'"):
        fr.Lehmer(side="up")  # type: ignore[arg-type]


def test_a_code_of_the_users_own() -> None:
    class Backwards(fr.Code):
        """The right-Lehmer code read from the end."""

        name = "backwards"

        def sizes(self, n: int) -> torch.Tensor:
            return torch.arange(1, n + 1)

        def _encode(self, order: torch.Tensor) -> torch.Tensor:
            return fr.Lehmer().encode(order).flip(-1)

        def _decode(self, code: torch.Tensor) -> torch.Tensor:
            return fr.Lehmer().decode(code.flip(-1))

    fr.register_code("backwards", Backwards)
    try:
        code = fr.code("backwards")
        orders = fr.random_permutations(6, (2, 3))
        assert torch.equal(code.decode(code.encode(orders)), orders)
        assert code.encode(orders[:0]).shape == (0, 3, 6)
        with pytest.raises(
            fr.CodeError, match=r"backwards code of length 2 allows 0\.\.0 at position 0 but it holds 1"
        ):
            code.decode(torch.tensor([1, 0]))
        with pytest.raises(fr.PermutationError, match="backwards encodes permutations"):
            code.encode(torch.tensor([1, 1]))
        with pytest.raises(fr.CodeError, match="already"):
            fr.register_code("backwards", Backwards)
        with pytest.raises(fr.CodeError, match="makes a dict"):
            fr.register_code("dictionary", dict)  # type: ignore[arg-type]
    finally:
        fr.codes._codes.pop("backwards")


@pytest.mark.parametrize(
    ("blocks", "bits"), [([2, 2], 2.0), ([4], 0.0), ([1, 1, 1, 1], 4.584962500721156), ([], 0.0)]
)
def test_largest_entropy_of_an_inline_model(blocks: list[int], bits: float) -> None:
    assert fr.max_inline_entropy(blocks) / torch.log(torch.tensor(2.0, dtype=torch.float64)) == pytest.approx(
        bits
    )


def test_largest_entropy_of_an_inline_model_by_search() -> None:
    """All ways to hand the left-over values to the positions of a block, for every partition of up to 6."""

    def best(left: int, size: int) -> int:
        """The largest product of `size` positive integers that sum to at most `left`."""
        if size == 0:
            return 1
        return max((take * best(left - take, size - 1) for take in range(1, left - size + 2)), default=0)

    def compositions(n: int) -> list[list[int]]:
        return [[]] if n == 0 else [[k, *rest] for k in range(1, n + 1) for rest in compositions(n - k)]

    for n in range(1, 7):
        for blocks in compositions(n):
            product, left = 1, n
            for size in blocks:
                product *= best(left, size)
                left -= size
            assert fr.max_inline_entropy(blocks) == pytest.approx(
                float(torch.tensor(product).log()), abs=1e-6
            )
    with pytest.raises(fr.CodeError):
        fr.max_inline_entropy([2, 0])
