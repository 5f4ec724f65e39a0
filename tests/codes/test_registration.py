"""Codes of a user's own: what is no code is found out when it is registered."""

import re

import pytest
import torch

import factorank as fr
from factorank.codes import code_names
from factorank.codes.checking import check_code
from factorank.lexicographic import permutation_at


class Mine(fr.Code):
    """The insertion code under another name; tests spoil a part of it."""

    name = "mine"

    def sizes(self, n):
        return fr.Insertion().sizes(n)

    def _encode(self, order):
        return fr.Insertion().encode(order)

    def _decode(self, code):
        return fr.Insertion().decode(code)


class TwoOrdersOneCode(Mine):
    def _encode(self, order):
        code = super()._encode(order)
        return torch.where(code.sum(-1, keepdim=True) == 1, 0, code)


class DecodesAnother(Mine):
    def _decode(self, code):
        return super()._decode(code).flip(-1)


class OutsideOfTheDomains(Mine):
    def sizes(self, n):
        return fr.Lehmer().sizes(n)


class TooManyCodes(Mine):
    def sizes(self, n):
        return torch.full((n,), n)


class WrongSizes(Mine):
    def sizes(self, n):
        return list(range(1, n + 1))


class OtherDtype(Mine):
    def _encode(self, order):
        return super()._encode(order).to(torch.int32)


class OnlyFromFive(Mine):
    """Right for fewer than five items."""

    def _encode(self, order):
        return super()._encode(order) if order.shape[-1] < 5 else torch.zeros_like(order)


class NotOfAPrefix(Mine):
    domains_depend_on_n = False

    def sizes(self, n):
        return torch.arange(1, n + 1)

    def _encode(self, order):
        return fr.Lehmer().encode(order).flip(-1)

    def _decode(self, code):
        return fr.Lehmer().decode(code.flip(-1))


class DomainsOfTheLength(Mine):
    """A prefix of a list has the same values, but fewer are allowed there."""

    domains_depend_on_n = False
    sizes, _encode, _decode = (
        lambda self, n: fr.Lehmer().sizes(n),
        lambda self, order: fr.Lehmer().encode(order),
        lambda self, code: fr.Lehmer().decode(code),
    )


class Nothing(Mine):
    def _encode(self, order):
        return None


class HalfTheRows(Mine):
    def _decode(self, code):
        return super()._decode(code)[: len(code) // 2]


class Half(Mine):
    _decode = fr.Code._decode


class OnlyToSeven(Mine):
    """Right for up to seven items."""

    def _decode(self, code):
        return super()._decode(code) if code.shape[-1] < 8 else super()._decode(code).flip(-1)


class Nameless(fr.Code):
    sizes, _encode, _decode = Mine.sizes, Mine._encode, Mine._decode


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (TwoOrdersOneCode, r"not a bijection: the orders \[0, 1\] and \[1, 0\] have one code, \[0, 0\]"),
        (DecodesAnother, r"not a bijection: \[0, 1\] has the code \[0, 1\], which stands for \[1, 0\]"),
        (
            OutsideOfTheDomains,
            r"the code of \[0, 1\] is \[0, 1\], outside of the domains: sizes\(2\) is \[2, 1\]",
        ),
        (TooManyCodes, r"sizes\(2\) is \[2, 2\], which makes 4 codes for the 2 orders of 2 items"),
        (WrongSizes, r"sizes\(1\) is an int64 tensor \(1,\), not list"),
        (OtherDtype, r"torch\.int64 \(1, 1\) as a tensor like them, not torch\.int32 \(1, 1\)"),
        (Nothing, r"mine: _encode gives the codes of rows .* not a NoneType"),
        (HalfTheRows, r"mine: _decode gives the orders of rows .* not torch\.int64 \(0, 1\)"),
        (DomainsOfTheLength, r"sizes\(2\) is \[2, 1\], which does not begin with sizes\(1\), \[1\]"),
        (Half, r"defines sizes, _encode and _decode, but Half lacks _decode"),
        (OnlyFromFive, r"not a bijection: the orders \[0, 1, 2, 3, 4\] and"),
        (NotOfAPrefix, r"domains_depend_on_n = False.* does not begin with that of"),
        (Nameless, r"a code has a name.*Nameless has none; give the class one: name = "),
        (type("Blank", (Mine,), {"name": ""}), r"Blank has ''"),
        (type("Other", (Mine,), {"name": "other"}), r"registered as 'mine' has the name 'other'"),
    ],
)
def test_what_is_no_code_is_refused(make, match):
    before = code_names()
    with pytest.raises(fr.CodeError, match=match):
        fr.register_code("mine", make)
    assert code_names() == before


def test_a_code_without_a_name_makes_no_model():
    with pytest.raises(fr.CodeError, match="Nameless has none"):
        fr.PermutationModel(4, Nameless(), width=8, depth=1, heads=2)


def test_a_code_with_the_name_of_another_makes_no_model():
    for name, other in (("insertion", r"Insertion\(\)"), ("right-lehmer", r"Lehmer\(side='right'\)")):
        same = type("Same", (Mine,), {"name": name})
        with pytest.raises(fr.CodeError, match=rf"Same has the name '{name}', which is that of {other}"):
            fr.PermutationModel(4, same(), width=8, depth=1, heads=2)
    with pytest.raises(fr.CodeError, match=r"Changed has the name 'insertion', which is that of"):
        fr.PermutationModel(4, type("Changed", (fr.Insertion,), {})(), width=8, depth=1, heads=2)


def test_the_librarys_codes_are_not_renamed():
    renamed = type("Renamed", (fr.Insertion,), {"name": "renamed"})
    with pytest.raises(fr.CodeError, match="Renamed is a subclass of Insertion, whose operations go by its"):
        fr.register_code("renamed", renamed)
    with pytest.raises(fr.CodeError, match=r"a subclass of factorank\.Code with sizes, _encode and _decode"):
        fr.PermutationModel(4, renamed(), width=8, depth=1, heads=2)


def test_a_code_that_fails_beyond_few_items_makes_no_model():
    for n in (6, 7):
        fr.PermutationModel(n, OnlyToSeven(), width=8, depth=1, heads=2)
    with pytest.raises(fr.CodeError, match="mine is not a bijection"):
        fr.PermutationModel(9, OnlyToSeven(), width=8, depth=1, heads=2)


def test_a_class_is_no_code_yet():
    with pytest.raises(fr.CodeError, match=r"code is a name or a code, not a class: Lehmer\(\)"):
        fr.PermutationModel(4, fr.Lehmer)


@pytest.mark.parametrize("name", code_names())
def test_the_librarys_codes_pass(name):
    check_code(fr.code(name))


def test_a_good_one_is_registered():
    fr.register_code("mine", Mine)
    try:
        assert fr.code("mine").title == "mine"
        model = fr.PermutationModel(4, "mine", width=8, depth=1, heads=2)
        assert fr.is_permutation(model.distribution(nfe=2).sample((50,))).all()
        law, orders = model.distribution(nfe=1), permutation_at(torch.arange(24), 4)
        stands = torch.nn.functional.one_hot(fr.inverse(orders), 4).float()
        expected = torch.einsum("k,kij->ij", law.log_prob(orders).exp(), stands)
        torch.testing.assert_close(law.marginals(), expected)  # listed, for want of a closed form
        longer = fr.PermutationModel(9, "mine", width=8, depth=1, heads=2).distribution(nfe=1)
        assert longer.estimates == {"marginals", "mean_ranks"}
        assert longer.marginals().shape == (9, 9)
    finally:
        fr.codes._codes.pop("mine")


class OfAPrefix(Mine):
    """Right, and known to be: the insertion code of fewer items begins that of more."""

    domains_depend_on_n = False


class TwoOrdersOfThree(Mine):
    def _encode(self, order):
        code = super()._encode(order)
        same = (order == torch.arange(order.shape[-1]).flip(0)).all(-1, keepdim=True) & (order.shape[-1] == 3)
        return torch.where(same, torch.tensor([0, 1, 0])[: order.shape[-1]], code) if same.any() else code


def test_a_code_whose_lists_of_several_lengths_can_be_mixed():
    check_code(OfAPrefix())


def test_two_orders_of_one_code_are_named():
    pairs = r"\[(.*)\] and \[(.*)\] have one code"
    with pytest.raises(fr.CodeError, match=pairs) as caught:
        check_code(TwoOrdersOfThree())
    one, other = re.search(pairs, str(caught.value)).groups()
    assert one != other
    assert "2, 1, 0" in (one, other)


class AnotherFromSix(OfAPrefix):
    """The codes of six items are right, but do not begin with those of five."""

    def _encode(self, order):
        return super()._encode(order.argsort(-1) if order.shape[-1] >= 6 else order)

    def _decode(self, code):
        order = super()._decode(code)
        return order.argsort(-1) if code.shape[-1] >= 6 else order


def test_lists_of_all_lengths_are_compared():
    with pytest.raises(fr.CodeError, match="lists of several lengths would be mixed"):
        check_code(AnotherFromSix())


@pytest.mark.parametrize("name", ["lehmer", "insertion", "fisher-yates"])
def test_a_code_is_made_of_another_without_its_checks(name):
    code, orders = fr.codes.code(name), fr.permutation_at(torch.arange(24), 4)
    assert torch.equal(code._encode(orders), code.encode(orders))
    assert torch.equal(code._decode(code.encode(orders)), orders)
