"""The acts of the demo, in order. Each act checks its claims against what the demo itself knows that it sent."""

import base64
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote

from hot_tier.clock import steady_s, wall_ms
from tierlog.client import Client, path
from tierlog.demo.archive import read_the_archive
from tierlog.demo.orders import DAY_MS, Order, orders
from tierlog.demo.report import Report
from tierlog.demo.traffic import Place, Traffic, choose_traffic, read_partition
from tierlog.process import ServeProcess

TOPIC = "orders"
PARTITIONS = 4
HISTORY = 50_000
LIVE = 30_000
KILL_AFTER = 5_000
SETTINGS = {"segment.bytes": "262144", "retention.ms": str(40 * DAY_MS), "remote.storage.enable": "true"}
"""Small segments, so that some are sealed and archived; a retention longer than the age of the oldest order."""


NOTE = '{"hello": "Zoë"}'.encode()

Watch = Callable[[int], None]
"""Called with the number of acks so far."""


def tell(directory: Path, report: Report) -> None:
    service = ServeProcess(directory / "data")
    report.opening(
        "tierlog demo",
        "A broker in its own process, orders of a made-up shop, and what became of them.\n"
        f"Everything is in {directory}.",
    )
    with service:
        Story(service, report).tell()


class Story:
    def __init__(self, service: ServeProcess, report: Report) -> None:
        self._service = service
        self._report = report
        self._traffic: Traffic = choose_traffic(service, {})
        self._now_ms = wall_ms()
        self._history = list(orders(HISTORY, self._now_ms))
        self._acknowledged: dict[Place, int] = {}
        """What the broker acknowledged: by place, the number of the order."""
        self._client = Client(service.url)

    def tell(self) -> None:
        self._start()
        self._produce()
        self._share()
        self._replay()
        self._call_over_http()
        self._kill()
        self._look_at_the_disk()
        read_the_archive(self._client, self._report, f"file://{quote(str(self._service.data_dir / 'bucket'))}", TOPIC)
        self._leave_something_to_see()

    def _start(self) -> None:
        self._report.act("A service starts", "One command, no configuration: tierlog serve")
        self._report.say(f"ready after {self._service.start_seconds:.2f} s")
        self._report.say(f"Kafka clients: {self._service.kafka}    HTTP: {self._service.url}")
        self._report.figure("start_seconds", self._service.start_seconds)
        self._client.post(path("topics"), {"name": TOPIC, "partitions": PARTITIONS, "config": SETTINGS})

    def _produce(self) -> None:
        self._report.act(
            "Producers write",
            f"{HISTORY:,} orders of 30 days, through {self._traffic.name}; each is synced to the disk before its ack.",
        )
        seconds = self._send(self._history)
        size = sum(len(order.value) for order in self._history)
        self._report.say(
            f"{HISTORY:,} orders, {size / 1e6:.1f} MB, in {seconds:.2f} s: {HISTORY / seconds:,.0f} per second"
        )
        self._report.show(self._history[0].value.decode())
        self._report.figure("produce_per_second", HISTORY / seconds)
        acknowledged = len(set(self._acknowledged.values()))
        self._report.check("every order was acknowledged, each at an offset of its own", acknowledged == HISTORY)
        homes = {(order.key, place[0]) for place, order in self._placed()}
        self._report.check("a customer's orders are all in one partition", len(homes) == len({key for key, _ in homes}))

    def _share(self) -> None:
        self._report.act("A consumer group reads", "Two members of the group `billing` share the four partitions.")
        began = steady_s()
        members = self._traffic.share(TOPIC, "billing", 2, HISTORY)
        seconds = steady_s() - began
        self._report.table(
            ("", "partitions", "orders>"),
            [(each.name, ", ".join(map(str, each.partitions)), f"{len(each.numbers):,}") for each in members],
        )
        self._report.figure("group_read_seconds", seconds)
        read = Counter(number for member in members for number in member.numbers)
        self._report.check("together they read every order, none twice", read == Counter(range(HISTORY)))
        assigned = sorted(partition for member in members for partition in member.partitions)
        self._report.check("each partition had exactly one reader", assigned == list(range(PARTITIONS)))
        lag = self._client.get(path("consumer-groups", "billing", "offsets"))["lag"]
        self._report.check("what they committed is kept by the broker", lag == 0, f"lag {lag}")

    def _replay(self) -> None:
        begin = self._now_ms - 7 * DAY_MS
        end = begin + DAY_MS
        self._report.act("Replay by time", "One day of a week ago, found by the time index: GET …/messages?from=…&to=…")
        began = steady_s()
        read = sorted(
            number
            for partition in range(PARTITIONS)
            for _, number in read_partition(self._client, TOPIC, partition, **{"from": begin, "to": end})
        )
        milliseconds = (steady_s() - began) * 1000
        expected = [order.number for order in self._history if begin <= order.timestamp < end]
        self._report.say(f"{len(read):,} orders in {milliseconds:.0f} ms, out of {HISTORY:,}")
        self._report.check("exactly the orders of that day", read == expected)

    def _call_over_http(self) -> None:
        self._report.act("Plain HTTP", "No client library: what curl can send and read.")
        url = f"{self._service.url}{path('topics', 'notes')}"
        self._client.post(path("topics"), {"name": "notes", "partitions": 1})
        stored = self._client.post(path("topics", "notes", "messages"), NOTE)
        self._report.say(f"curl -d '{NOTE.decode()}' {url}/messages")
        self._report.show(json.dumps(stored))
        page = self._client.get(path("topics", "notes", "partitions", 0, "messages"), offset=stored["offset"])
        self._report.say(f"curl '{url}/partitions/0/messages?offset=0'")
        self._report.show(json.dumps(page))
        found = [base64.b64decode(message["value"]) for message in page["messages"]]
        self._report.check("the message comes back byte for byte", found == [NOTE])

    def _kill(self) -> None:
        self._report.act(
            "kill -9 in the middle of writing",
            f"{LIVE:,} more orders; after {KILL_AFTER:,} acks the broker is killed without warning and started again.",
        )
        before = len(self._acknowledged)
        enough = threading.Event()
        outage = Outage(self._service, enough, lambda: len(self._acknowledged) - before)
        outage.start()

        def watch(done: int) -> None:
            if done - before >= KILL_AFTER:
                enough.set()

        try:
            seconds = self._send(orders(LIVE, self._now_ms, first=HISTORY), watch)
        except BaseException:
            outage.call_off()
            raise
        outage.finish()
        self._report.say(
            f"killed after {outage.acknowledged:,} acks; ready again {self._service.start_seconds:.2f} s later; "
            f"the producer went on, and all {LIVE:,} were acknowledged after {seconds:.1f} s"
        )
        self._report.figure("recovery_seconds", self._service.start_seconds)
        self._client.close()
        stored = {
            place: number
            for partition in range(PARTITIONS)
            for place, number in read_partition(self._client, TOPIC, partition)
        }
        lost = [place for place, number in self._acknowledged.items() if stored.get(place) != number]
        self._report.check(
            "every acknowledged order is where its ack said", not lost, f"{len(self._acknowledged):,} acks compared"
        )
        twice = len(stored) - len(set(stored.values()))
        if self._traffic.once:
            self._report.check("no order is there twice, although the producer had to send again", twice == 0)
        else:
            self._report.say(f"{twice} orders are there twice: sent again over HTTP because their answer was lost")
        self._report.check("none is missing", set(stored.values()) == set(range(HISTORY + LIVE)))

    def _look_at_the_disk(self) -> None:
        self._report.act("On the disk", "Segments in Kafka's own record format, each with an offset and a time index.")
        topic = self._client.get(path("topics", TOPIC))
        self._report.table(
            ("partition>", "first offset>", "next offset>", "leader epoch>", "segments>", "KiB>"),
            [
                (
                    each["partition"],
                    each["log_start_offset"],
                    f"{each['high_watermark']:,}",
                    each["leader_epoch"],
                    each["segments"],
                    f"{each['size_bytes'] / 1024:,.0f}",
                )
                for each in topic["partitions"]
            ],
        )
        total = sum(each["high_watermark"] - each["log_start_offset"] for each in topic["partitions"])
        self._report.check("the offsets add up", total >= HISTORY + LIVE, f"{total:,} records")

    def _leave_something_to_see(self) -> None:
        """For whoever serves the directory again and opens the console: both tiers in use, and records set aside."""
        self._client.patch(path("topics", TOPIC), {"config": {"local.retention.ms": str(10 * DAY_MS)}})
        for offset in range(3):
            letter = {"topic": TOPIC, "partition": 0, "offset": offset, "reason": "the customer has moved"}
            self._client.post(path("consumer-groups", "billing", "dead-letters"), letter)

    def _send(self, some: Iterable[Order], watch: Watch = lambda done: None) -> float:
        def acknowledged(order: Order, place: Place) -> None:
            self._acknowledged[place] = order.number
            watch(len(self._acknowledged))

        began = steady_s()
        self._traffic.produce(TOPIC, some, acknowledged)
        return steady_s() - began

    def _placed(self) -> Iterable[tuple[Place, Order]]:
        return ((place, self._history[number]) for place, number in self._acknowledged.items())


class Outage(threading.Thread):
    """Kills the broker when told to, and starts it again. `finish` raises the error if that failed.

    The program cannot end while this thread waits, so call `finish` or `call_off`.
    """

    def __init__(self, service: ServeProcess, when: threading.Event, count: Callable[[], int]) -> None:
        super().__init__(name="outage")
        self.acknowledged = 0
        """The number of acks that had arrived when the broker was gone."""
        self._service = service
        self._when = when
        self._count = count
        self._called_off = False
        self._failure: BaseException | None = None

    def run(self) -> None:
        self._when.wait()
        if self._called_off:
            return
        try:
            self._service.kill()
            self.acknowledged = self._count()
            self._service.start()
        except BaseException as error:
            self._failure = error

    def call_off(self) -> None:
        self._called_off = True
        self._when.set()
        self.join()

    def finish(self) -> None:
        self._when.set()
        self.join()
        if self._failure is not None:
            raise self._failure
