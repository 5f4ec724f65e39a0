"""factorank: learn, sample and score probability distributions over permutations and rankings.

The names are listed in ``factorank/public.py``. They are loaded when the first of them is used, so that the
command line answers at once: importing torch alone takes seconds.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from factorank.public import *  # noqa: F403
else:

    def __getattr__(name):
        from importlib import import_module
        from importlib.util import find_spec

        if not name.startswith("_") and find_spec(f"factorank.{name}"):
            return import_module(f"factorank.{name}")
        public = import_module("factorank.public")
        if name == "__all__":
            return public.__all__
        if name not in public.__all__:
            raise AttributeError(f"module 'factorank' has no attribute {name!r}")
        value = globals()[name] = getattr(public, name)
        return value

    def __dir__():
        from factorank import public

        return sorted({*globals(), *public.__all__})
