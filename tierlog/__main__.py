"""The `tierlog` command."""

import contextlib
import os
import sys

from tierlog.cli.app import run


def main() -> None:
    """Ends without the interpreter's usual shutdown. Threads of the S3 client may still be busy then, and about one in
    thirty such exits was an abort, after all work had been done and reported."""
    code = run(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
