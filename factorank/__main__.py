"""``python -m factorank``: the command line."""

import sys

from factorank.cli import main

if __name__ == "__main__":
    sys.exit(main())
