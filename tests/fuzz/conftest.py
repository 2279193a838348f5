"""A node with a canary: what was stored before must be there, byte for byte, whatever is sent."""

import os

import psutil
import pytest

from tests.fuzz.target import SETTINGS, Target
from tests.gateway.kafka.node import node_in_thread


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    directory = str(tmp_path_factory.mktemp("fuzz"))
    with node_in_thread(directory, kafka=SETTINGS) as running:
        made = Target(running)
        made.plant()
        before = psutil.Process(os.getpid()).memory_info().rss
        yield made
        made.check()
        assert running.server.unexpected_errors == 0
        assert psutil.Process(os.getpid()).memory_info().rss - before < 400 * 1024 * 1024
    # What the log holds after all that can be recovered and read by a fresh start.
    with node_in_thread(directory, kafka=SETTINGS) as running:
        again = Target(running)
        again.canary = made.canary
        again.check()
        again.check_all_partitions()
