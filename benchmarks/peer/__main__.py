"""`python -m benchmarks.peer fetch` gets the jars; `… serve` runs a broker until interrupted."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from benchmarks.peer.jars import PeerUnavailable, fetch, fetch_programs, kafka_version
from benchmarks.peer.kafka import KafkaServer


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer", description=__doc__)
    parser.add_argument("action", choices=["fetch", "serve"])
    action = parser.parse_args().action
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if action == "fetch":
            print(f"Apache Kafka {kafka_version()}: fetching jars with Maven unless they are there already")
            print(f"jars in {fetch()}")
            try:
                print(f"jars of Kafka Streams, Connect and MirrorMaker in {fetch_programs()}")
            except PeerUnavailable as error:
                print(f"tests with Kafka Streams, Connect and MirrorMaker are skipped: {error}", file=sys.stderr)
            return 0
        with (
            tempfile.TemporaryDirectory(prefix="kafka-") as directory,
            KafkaServer(Path(directory)) as server,
        ):
            print(f"kafka ready kafka={server.bootstrap} after {server.start_seconds:.1f} s", flush=True)
            if server.process:
                server.process.wait()
    except PeerUnavailable as error:
        print(f"Apache Kafka is not available: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
