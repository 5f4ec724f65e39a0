"""Every fast path beside its plain twin; ``dispatch`` chooses between them.

``codes`` are the operations on permutations and codes, ``gpu`` the kernels of a network on a GPU, and the
other modules plain twins and loops that numba compiles.
"""

import os

from factorank.kernels.compiled import place_for_cache

if (_place := place_for_cache()) is not None:
    os.environ["NUMBA_CACHE_DIR"] = _place
