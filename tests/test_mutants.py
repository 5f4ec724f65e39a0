"""Mutation testing: what is changed, which tests are chosen for it, and that mutants are noticed."""

import ast
import itertools

from benchmarks.campaign.changes import Mutant, mutant, places
from benchmarks.campaign.choosing import choose
from benchmarks.mutants import PARTS, mutants

SOURCE = '''
LIMIT: int = 3

class Law:
    def fits(self, size=2) -> "bool | None":
        """Whether 1 < size."""
        if size < LIMIT and not size == 1:
            return size + 1 > 2
        raise ValueError(f"{size + 1}" + "0")
'''


def test_each_place_is_changed_once(tmp_path):
    (tmp_path / "law.py").write_text(SOURCE)
    found = [mutant("laws", "law", number, tmp_path) for number in range(places("law", tmp_path))]
    assert {(each.function, each.text[:8], each.change) for each in found} == {
        ("", "LIMIT: i", "3 to 4"),
        ("", "def fits", "2 to 3"),
        ("Law.fits", "if size ", "And to Or"),
        ("Law.fits", "if size ", "Lt to LtE"),
        ("Law.fits", "if size ", "not left out"),
        ("Law.fits", "if size ", "Eq to NotEq"),
        ("Law.fits", "if size ", "1 to 2"),
        ("Law.fits", "return s", "Gt to GtE"),
        ("Law.fits", "return s", "Add to Sub"),
        ("Law.fits", "return s", "1 to 2"),
        ("Law.fits", "return s", "2 to 3"),
    }
    plain = ast.unparse(ast.parse(SOURCE)).splitlines()
    for each in found:
        lines = each.source.splitlines()
        assert sum(ours != theirs for ours, theirs in zip(lines, plain, strict=True)) == 1


def test_parts_have_the_same_share_and_the_order_is_always_the_same():
    one, other = (list(itertools.islice(mutants(3), 36)) for _ in range(2))
    assert one == other
    assert [each.part for each in one] == [*PARTS] * 6
    assert len({each.name for each in one}) == 36


def test_the_nearest_and_quickest_tests_come_first():
    """Those that enter the function, the module's own before others; a file's tests stay together."""

    def row(test, seconds, *functions):
        return {"file": test.split("::")[0], "seconds": seconds, "reached": list(functions)}

    ours, shared = "tests/codes/test_lehmer.py", "tests/models/test_law.py"
    seconds = {
        f"{shared}::quick": (0.1, "codes/lehmer:encode"),
        f"{ours}::slow": (3.0, "codes/lehmer:encode"),
        f"{ours}::quick": (0.2, "codes/lehmer:encode"),
        f"{ours}::another": (0.1, "codes/lehmer:decode"),
        f"{shared}::long": (60.0, "codes/lehmer:encode"),
        "tests/test_files.py::elsewhere": (0.1, "files:write"),
    }
    known = {test: row(test, *given) for test, given in seconds.items()}
    changed = Mutant("codes", "codes/lehmer", "encode", 1, 0, "", "", "")
    tests, spent = choose(changed, known, 10)
    assert tests == [f"{ours}::quick", f"{ours}::slow", f"{ours}::another", f"{shared}::quick"]
    assert spent < 10
    assert f"{ours}::another" in choose(Mutant("codes", "codes/lehmer", "", 1, 0, "", "", ""), known, 10)[0]
