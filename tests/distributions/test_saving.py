"""Saved laws come back exactly; anything else in their place is refused with a reason."""

from contextlib import suppress

import pytest
import torch
from safetensors.torch import save

import factorank as fr
from factorank.distributions import saving
from factorank.distributions.fitting.report import FitReport
from factorank.distributions.mixture import Mixture
from factorank.distributions.saving import LawFileError, law_items, load_law, save_law
from factorank.sealed import read_sealed, write_sealed


def probabilities(n, generator):
    table = (torch.rand(n, n, generator=generator, dtype=torch.float64) + 0.1).tril()
    return table / table.sum(-1, keepdim=True)


LAWS = {
    "uniform": lambda g: fr.Uniform(4, batch_shape=(2,), dtype=torch.float64),
    "mallows": lambda g: fr.Mallows([2, 0, 3, 1], phi=0.3),
    "weighted mallows": lambda g: fr.Mallows([2, 0, 3, 1], 0.3, weights=torch.rand(4, generator=g)),
    "batched mallows": lambda g: fr.Mallows(torch.arange(4), torch.rand(3, generator=g)),
    "generalized mallows": lambda g: fr.GeneralizedMallows([1, 0, 2, 3], torch.rand(4, generator=g)),
    "rim": lambda g: fr.RIM(probabilities(4, g)),
    "rim of logits": lambda g: fr.RIM(logits=torch.randn(4, 4, generator=g), reference=[3, 1, 0, 2]),
    "mixture": lambda g: Mixture(
        torch.rand(3, generator=g),
        [fr.Mallows([1, 0, 2, 3], 0.3), fr.RIM(probabilities(4, g)), Mixture([1.0], [fr.Uniform(4)])],
    ),
    "thurstone": lambda g: fr.Thurstone([0.0, 1.0, 0.5, 0.2], 0.3 * torch.eye(4) + 0.1),
    "plackett-luce": lambda g: fr.PlackettLuce(torch.randn(4, generator=g).requires_grad_()),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_law_comes_back_exactly(name, tmp_path):
    law = LAWS[name](torch.Generator().manual_seed(0))
    save_law(law, tmp_path / "law", items=["a", "b", "c", "d"])
    again = load_law(tmp_path / "law")
    assert type(again) is type(law)
    assert again.batch_shape == law.batch_shape
    orders = fr.random_permutations(4, (50, *law.batch_shape), generator=torch.Generator().manual_seed(1))
    assert torch.equal(again.log_prob(orders), law.log_prob(orders))
    assert again.log_prob(orders).dtype == law.log_prob(orders).dtype
    assert law_items(tmp_path / "law") == ("a", "b", "c", "d")


COMPARISONS = {
    "bradley-terry": lambda g: fr.BradleyTerry(torch.randn(4, generator=g)),
    "davidson": lambda g: fr.Davidson(torch.randn(4, generator=g).double(), nu=0.7, effects=[0.5]),
    "davidson of items": lambda g: fr.Davidson(torch.randn(4, generator=g), nu=torch.rand(4, generator=g)),
    "rao-kupper": lambda g: fr.RaoKupper(torch.randn(4, generator=g), kappa=1.5),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_law_of_comparisons_comes_back_exactly(name, tmp_path):
    law = COMPARISONS[name](torch.Generator().manual_seed(0))
    save_law(law, tmp_path / "law", items=["a", "b", "c", "d"])
    again = load_law(tmp_path / "law")
    assert type(again) is type(law)
    pairs = torch.tensor([[a, b] for a in range(4) for b in range(4) if a != b])
    covariates = None if not len(law.effects) else torch.linspace(-1, 1, 12)[:, None]
    assert torch.equal(again.log_probs(pairs, covariates), law.log_probs(pairs, covariates))
    assert law_items(tmp_path / "law") == ("a", "b", "c", "d")


def test_a_law_with_ties_comes_back_exactly(tmp_path):
    law = fr.DavidsonLuce([0.3, -1.0, 0.5], [0.7, 0.1])
    save_law(law, tmp_path / "law")
    ranks = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 0]])
    assert torch.equal(load_law(tmp_path / "law").log_prob(ranks), law.log_prob(ranks))


def test_fits_come_back_with_coefficients_and_errors(tmp_path):
    pairs, outcomes = [[0, 1], [1, 2], [2, 0], [0, 2], [1, 0]], [0, 0, 0, 2, 2]
    orders, features = torch.tensor([[0, 1, 2], [1, 2, 0], [1, 0, 2]]), [[1.0], [0.0], [-2.0]]
    for number, law in enumerate(
        (
            fr.Davidson.fit(pairs, outcomes, features=features),
            fr.PlackettLuce.fit(orders, features=features),
            fr.PlackettLuce.fit(orders, features=features, ties=True),
        )
    ):
        save_law(law, tmp_path / str(number))
        again = load_law(tmp_path / str(number))
        assert again.report == law.report
        assert all(error > 0 for error in again.report.errors)
        assert torch.equal(again.coefficients, law.coefficients)


def test_parameters_that_make_no_law_are_refused(tmp_path):
    save_law(fr.RaoKupper([0.0, 1.0], kappa=2.0), tmp_path / "law")
    facts, files = read_sealed(tmp_path / "law", "law.json", fr.FactorankError, "a law")
    forged = {"scores": torch.tensor([0.0, 1.0]), "kappa": torch.tensor(0.5), "effects": torch.zeros(0)}
    write_sealed(tmp_path / "law", "law.json", facts, files | {"law.safetensors": save(forged)})
    with pytest.raises(LawFileError, match="the law cannot be rebuilt: RaoKupper takes kappa of 1 or more"):
        load_law(tmp_path / "law")


def test_every_family_is_covered():
    every = [*LAWS.values(), *COMPARISONS.values(), lambda g: fr.DavidsonLuce([0.0])]
    assert {type(make(torch.Generator())) for make in every} == set(saving.FAMILIES)


def test_the_report_comes_back(tmp_path):
    law = fr.Mallows.fit(torch.tensor([[0, 1, 2], [0, 1, 2], [1, 0, 2]]))
    save_law(law, tmp_path / "law")
    assert load_law(tmp_path / "law").report == law.report
    law.report = FitReport("Mallows", 3.0, -torch.inf, 1, history=(-torch.inf, 1.5), warnings=("a word",))
    save_law(law, tmp_path / "law")
    assert load_law(tmp_path / "law").report == law.report


def test_without_names(tmp_path):
    save_law(fr.Uniform(3), tmp_path / "law")
    assert law_items(tmp_path / "law") is None
    with pytest.raises(LawFileError, match="the law ranks 3 items, but there are 2 names"):
        save_law(fr.Uniform(3), tmp_path / "law", items=["a", "b"])
    assert load_law(tmp_path / "law").n == 3


def edit(folder, **changes):
    """Change what the file says, as somebody would who knows how it is sealed."""
    facts, files = read_sealed(folder, "law.json", fr.FactorankError, "a law")
    write_sealed(folder, "law.json", facts | changes, files)


def described(**law):
    return {"law": {"family": "Mallows", "central": {"tensor": "central"}, "phi": {"tensor": "phi"}} | law}


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: edit(f, version=99), "its version is 99, and 2 is read"),
        (lambda f: edit(f, format="other"), "law.json does not describe a law"),
        (lambda f: edit(f, law={"family": "Zipf"}), "unknown family, 'Zipf'; known are Uniform, Mallows"),
        (lambda f: edit(f, law={"family": "Mallows"}), "the law cannot be rebuilt"),
        (lambda f: edit(f, **described(validate_args=False)), "a Mallows has .*, and no 'validate_args'"),
        (lambda f: edit(f, **described(phi=7)), "7 is not dict"),
        (lambda f: edit(f, **described(central=[0, 0, 0])), "is not dict"),
        (lambda f: edit(f, **described(central={"tensor": "phi"})), "the law cannot be rebuilt"),
        (lambda f: edit(f, n=5), "the law ranks 2 items, but the file says 5"),
        (lambda f: (f / "law.json").write_text((f / "law.json").read_text().replace("phi", "psi")), "SHA"),
        (lambda f: (f / "law.json").write_text("[" * 100_000), "nested deeper"),
        (lambda f: (f / "law.json").write_bytes(b'{"a": "\xff"}'), "is not UTF-8"),
        (lambda f: (f / "law.json").write_text("{"), "law.json: not JSON"),
        (lambda f: (f / "law.json").write_text("[]"), "is not dict"),
        (lambda f: (f / "law.json").unlink(), "there is no law.json in this folder"),
        (
            lambda f: (f / "law.safetensors").write_bytes(b"x" * 100),
            "law.safetensors has 100 bytes and should have",
        ),
    ],
)
def test_spoiled_folders_are_refused(spoil, message, tmp_path):
    folder = tmp_path / "law"
    save_law(fr.Mallows([0, 1], 0.5), folder)
    spoil(folder)
    with pytest.raises(LawFileError, match=message):
        load_law(folder)


def test_every_changed_byte_is_noticed(tmp_path):
    save_law(fr.Mallows([0, 1], 0.5), tmp_path / "law", items=["a", "b"])
    for name in ("law.safetensors", "law.json"):
        file = tmp_path / "law" / name
        data = file.read_bytes()
        for place in range(len(data)):
            changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            file.write_bytes(changed)
            with suppress(LawFileError):  # white space alone may differ
                assert load_law(tmp_path / "law").phi == 0.5
                assert name == "law.json"
                assert data[place : place + 1].isspace()
        file.write_bytes(data)


def test_too_few_names_are_refused_and_not_printed_as_they_are(tmp_path):
    save_law(fr.Uniform(5), tmp_path / "law", items=list("abcde"))
    edit(tmp_path / "law", items=["a", "b"])
    with pytest.raises(LawFileError, match="the law ranks 5 items, but there are 2 names"):
        law_items(tmp_path / "law")


def test_names_of_two_items_are_refused(tmp_path):  # a table of the law would speak of one for the other
    with pytest.raises(LawFileError, match="two items are called 'a'"):
        save_law(fr.Uniform(3), tmp_path / "law", items=["a", "b", "a"])
    save_law(fr.Uniform(3), tmp_path / "law", items=["a", "b", "c"])
    edit(tmp_path / "law", items=["a", "b", "a"])
    with pytest.raises(LawFileError, match="two items are called 'a'"):
        law_items(tmp_path / "law")


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(LawFileError, match=r"holds 'thesis.tex', too"):
        save_law(fr.Uniform(3), tmp_path)
    with pytest.raises(LawFileError, match="is a file"):
        save_law(fr.Uniform(3), tmp_path / "thesis.tex")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_what_cannot_be_saved_says_so(tmp_path):
    class Mine(fr.Uniform):
        pass

    with pytest.raises(LawFileError, match="a Mine cannot be saved; these can: Uniform, Mallows"):
        save_law(Mine(3), tmp_path / "law")
    assert not (tmp_path / "law").exists()
