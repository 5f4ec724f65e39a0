"""The public names of factorank, nothing else. ``import factorank`` offers them, loaded at first use."""

from factorank.codes import (
    Code,
    FisherYates,
    Inline,
    Insertion,
    Lehmer,
    code,
    code_names,
    max_inline_entropy,
    register_code,
)
from factorank.distances import cayley, footrule, hamming, kendall, rho, ulam
from factorank.errors import CodeError, FactorankError, PermutationError, RankingsError
from factorank.permutations import (
    compose,
    cycle_count,
    cycles,
    index_of,
    inverse,
    is_cyclic,
    is_permutation,
    permutation_at,
    random_cyclic,
    random_permutations,
)

__all__ = [
    "Code",
    "CodeError",
    "FactorankError",
    "FisherYates",
    "Inline",
    "Insertion",
    "Lehmer",
    "PermutationError",
    "RankingsError",
    "cayley",
    "code",
    "code_names",
    "compose",
    "cycle_count",
    "cycles",
    "footrule",
    "hamming",
    "index_of",
    "inverse",
    "is_cyclic",
    "is_permutation",
    "kendall",
    "max_inline_entropy",
    "permutation_at",
    "random_cyclic",
    "random_permutations",
    "register_code",
    "rho",
    "ulam",
]
