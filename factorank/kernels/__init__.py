"""Every fast path beside its plain twin; ``dispatch`` chooses between them.

``codes`` are the operations on permutations and codes, ``gpu`` the kernels of a network on a GPU, and the
other modules plain twins and loops that numba compiles.
"""
