"""The `tierlog` command."""

import contextlib
import os
import sys

from tierlog.cli.app import run


def main() -> None:
    """Ends without taking the interpreter apart: threads of the S3 client may still be busy then, and one in some
    thirty such endings was an abort, after everything had been done and said."""
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
