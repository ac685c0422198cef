"""`python -m medimg_eval COMMAND [key=value ...]`. Imports nothing heavy: `--help` answers at once."""

import os
import sys

from medimg_eval.commands.cli import start


def main() -> None:
    """Runs the command line and exits with its code."""
    # Products of small matrices are not worth threads, which take a third of a table's CPU time. NumPy reads it once.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    # Arrow's own pool keeps what it frees, some 60 MB of a table of 60,000 rows. Arrow reads it once, too.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    sys.exit(start(sys.argv[1:]))


if __name__ == "__main__":
    main()
