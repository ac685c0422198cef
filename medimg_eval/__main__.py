"""`python -m medimg_eval COMMAND [key=value ...]`. Imports nothing heavy: `--help` answers at once."""

import sys

from medimg_eval.commands.cli import start


def main() -> None:
    """Runs the command line and exits with its code."""
    sys.exit(start(sys.argv[1:]))


if __name__ == "__main__":
    main()
