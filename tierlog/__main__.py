"""The `tierlog` command."""

import sys

from tierlog.cli.app import run


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
