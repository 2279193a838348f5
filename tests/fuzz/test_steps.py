"""No request, whatever its form, takes long in one round of the loop. Counted is the processor's time, so that a busy
machine does not fail this; `test_stall` measures what clients notice."""

import asyncio
import threading
import time
from dataclasses import dataclass

import pytest

from gateway.http.server import HttpServer
from gateway.http.settings import HttpSettings
from gateway.kafka.protocol.messages.create_topics import CreatableTopic
from gateway.listener import Listener
from tests.fuzz.shots import all_shots
from tests.fuzz.stall import fire, plant
from tests.fuzz.steps import rounds_of
from tests.gateway.kafka.node import node_in_thread
from tests.gateway.kafka.wire import free_port
from tierlog.interpreter import freeze

SEEDS = (1, 2, 3)
LONGEST = 30
"""Times the known piece of work, which takes 5 ms on the machine that the bounds were made on."""


def known_work_s() -> float:
    began = time.thread_time()
    for _ in range(5):
        made = [CreatableTopic(str(number), number, 1) for number in range(2000)]
    assert len(made) == 2000
    return time.thread_time() - began


@dataclass
class Listening:
    kafka: str
    http: str


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    # As the broker does: what lives as long as the process is not looked at by each collection.
    freeze()
    with node_in_thread(str(tmp_path_factory.mktemp("steps")), asyncio.new_event_loop, flush="os") as running:

        def on_loop(step):
            return asyncio.run_coroutine_threadsafe(step, running.loop).result(20)

        async def listen():
            server = HttpServer(running.node, HttpSettings(port=0), running.server)
            await server.start([Listener("http", http_socket)])
            return server

        http_socket = free_port()
        host, port = http_socket.getsockname()
        http = on_loop(listen())
        made = Listening(running.bootstrap, f"{host}:{port}")
        plant(made)
        yield made
        on_loop(http.stop())
        assert running.server.unexpected_errors == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_takes_long_in_one_round(service, seed):
    """Each seed fires a third of all there is, and draws for itself how it is bad."""
    (loop,) = (thread for thread in threading.enumerate() if thread.name == "node")
    known_s = max(known_work_s() for _ in range(5))
    with rounds_of(loop) as steps:
        for shot in all_shots(seed)[seed % len(SEEDS) :: len(SEEDS)]:
            steps.during = shot.name
            fire(service, shot)
    known_s = max(known_s, *(known_work_s() for _ in range(5)))
    print(f"known work {known_s * 1000:.1f} ms; the longest rounds:\n{steps}")
    assert steps.longest_s < max(0.1, LONGEST * known_s), str(steps)
