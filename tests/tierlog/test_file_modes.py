"""What a broker writes is for its own user alone."""

import os
from pathlib import Path

from tests.support.modes import open_to_others
from tests.support.service import services
from tests.support.waiting import wait_until
from tierlog.client import Client, path


def test_nobody_else_can_read_what_a_broker_writes(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with services(tmp_path) as serve:
            service = serve("--archive.check-ms", "100")
            with Client(service.url) as client:
                config = {"remote.storage.enable": "true", "segment.bytes": "1024"}
                client.post(path("topics"), {"name": "orders", "partitions": 1, "config": config})
                for _ in range(8):
                    client.post(path("topics", "orders", "messages"), b"x" * 500)
                client.post(path("consumer-groups", "g", "offsets"), {"topic": "orders", "partition": 0, "offset": 1})
                wait_until(lambda: any((service.data_dir / "bucket").rglob("*.parquet")), "an archived segment")
            service.stop()
            assert len(list(service.data_dir.rglob("*"))) > 20
            assert open_to_others(service.data_dir) == []
            assert "look into the data directory" not in service.output()

            service.data_dir.chmod(0o755)
            service.start()
            service.stop()
            assert service.output().count("other users of this machine can look into the data directory") == 1
    finally:
        os.umask(before)
