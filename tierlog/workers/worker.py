"""The process of one worker: `python -m tierlog.workers.worker NUMBER DIRECTORY`. The supervisor alone starts it.

It reads its `Worker` from standard input, pickled: secrets are in no command line. It is a broker like any other, and
prints its ready line to the supervisor.
"""

import os
import pickle
import sys

from hot_tier.errors import TierlogError
from tierlog.loading import quickly
from tierlog.workers.plan import Worker


def main() -> None:
    code = serve(pickle.load(sys.stdin.buffer))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as `tierlog.__main__` does


def serve(worker: Worker) -> int:
    with quickly():
        from tierlog.cli import output
        from tierlog.cli.app import exit_code
        from tierlog.exclusive import keep_files_private
        from tierlog.kernel_cache import keep_kernels
        from tierlog.logging import configure_logging

        keep_files_private()
        configure_logging(worker.settings.broker.log_level, worker.settings.broker.log_format, worker=worker.number)
        keep_kernels(worker.home)
        # This import loads the kernels, and compiles them if necessary.
        from tierlog.broker import run

    try:
        run(worker.settings, ports=worker.ports)
    except TierlogError as error:
        code = exit_code(error)
        output.report(error, code, as_json=False)
        return code
    return 0


if __name__ == "__main__":
    # A pickled worker names the class by its module.
    from tierlog.workers import worker

    worker.main()
