"""Row-wise operations on permutations and codes: one table, one torch operator, and its back ends.

``table`` says what each operation is, ``operator`` is what callers use. ``reference`` is the definition in
plain torch, ``cpu`` the numba kernels (``sets``, ``packed``, ``trees`` and ``lists``, on ``bits``),
``cuda`` the CUDA C of ``walks.cu`` with ``rows.cu`` or ``warps.cu``.
"""

from factorank.kernels.codes.operator import longest_increasing, transform
from factorank.kernels.codes.table import NO_FAULT, OPERATIONS, Domain

__all__ = ["NO_FAULT", "OPERATIONS", "Domain", "longest_increasing", "transform"]
