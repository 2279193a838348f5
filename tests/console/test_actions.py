"""What a person does on the pages is done at the broker, and shown as the command that does the same."""

import base64
import io
import json
import time

import fastavro
import pytest
from confluent_kafka import Producer

from tests.console.browser import Browser
from tests.support.waiting import wait_until
from tierlog.client import Client, Refused, path
from tierlog.process import ServeProcess


@pytest.fixture
def client(scene: ServeProcess):
    with Client(scene.url) as client:
        yield client


@pytest.mark.does("make a topic", "change a setting", "add partitions", "delete a topic")
def test_a_topic_is_made_changed_and_deleted(browser: Browser, scene: ServeProcess, client: Client) -> None:
    browser.open(scene.url, "/topics")
    browser.press("New topic")
    browser.type("Name", "made-here")
    browser.type("Partitions", "3")
    browser.choose("Kept", "30 days")
    browser.picture("new-topic", whole=False)
    command = "tierlog topic create made-here --partitions 3 --config retention.ms=2592000000"
    browser.confirm("Make the topic", command=command)
    browser.wait_for("Partitions\nGroups\nTier map\nSettings\nCost")
    made = client.get(path("topics", "made-here"))
    assert len(made["partitions"]) == 3 and made["config"]["retention.ms"]["value"] == "2592000000"

    browser.press("Settings")
    browser.press("Change max.message.bytes")
    browser.type("Value", "200000")
    browser.confirm("Change", command="tierlog topic alter made-here --config max.message.bytes=200000")
    browser.wait_for("max.message.bytes is changed")
    assert client.get(path("topics", "made-here"))["config"]["max.message.bytes"]["value"] == "200000"
    browser.press("Change max.message.bytes")
    browser.type("Value", "many")
    browser.press("Change", "dialog[open]")
    browser.wait_for("max.message.bytes")
    wait_until(lambda: browser.all("dialog .notice.bad"), "the refusal is shown")
    browser.press("Cancel", "dialog[open]")
    browser.press("Change max.message.bytes")
    browser.all("dialog[open] label.check input")[0].click()  # back to the broker's default
    browser.confirm("Change", command="tierlog topic alter made-here --unset max.message.bytes")
    # The page still says that it was changed before.
    config = path("topics", "made-here")
    wait_until(lambda: client.get(config)["config"]["max.message.bytes"]["source"] != "topic", "the default is back")
    browser.press("Add partitions")
    browser.type("Partitions", "5")
    browser.confirm("Add", command="tierlog topic alter made-here --partitions 5")
    browser.wait_for("Partitions are added")
    assert len(client.get(path("topics", "made-here"))["partitions"]) == 5

    browser.press("Delete")
    browser.picture("delete-topic", whole=False)
    browser.confirm("Delete the topic", name="made-here", command="tierlog topic delete made-here")
    browser.wait_for("made-here is deleted")
    with pytest.raises(Refused):
        client.get(path("topics", "made-here"))
    browser.allowed = ("status of 400", "status of 404")


@pytest.mark.does("produce", "send again")
def test_a_message_is_produced_and_sent_again(browser: Browser, scene: ServeProcess, client: Client) -> None:
    browser.open(scene.url, "/topics/shipments/messages")
    browser.press("Produce")
    browser.type("Key", "ada")
    browser.type("Value", '{"total": 12.5}')
    browser.type("Headers", "source: console")
    browser.picture("produce", whole=False)
    browser.confirm("Send", command="tierlog produce shipments --input json")
    browser.wait_for("ada")
    [(partition, message)] = records(client, "shipments")
    assert (message["key"], message["headers"]) == ("ada", [{"key": "source", "value": "console"}])

    browser.press(f"{partition}:0")
    browser.wait_for('"total": 12.5')
    browser.press("Send again")
    browser.confirm("Send", command="tierlog produce shipments --input json")
    browser.wait_for(f"Partition {partition}, offset 1")
    assert [each["value"] for _, each in records(client, "shipments")] == ['{"total": 12.5}'] * 2


def records(client: Client, topic: str):
    return [
        (each["partition"], message)
        for each in client.get(path("topics", topic))["partitions"]
        for message in client.get(
            path("topics", topic, "partitions", each["partition"], "messages"), offset=0, value_encoding="text"
        )["messages"]
    ]


def test_a_filter_says_how_far_it_has_looked(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url, "/topics/orders/messages?from=earliest&filter=total%20%3E%20550")
    browser.wait_for("records looked at")
    browser.wait_for("from the bucket")
    browser.wait_for("More is there.")
    shown = len(browser.all("tbody tr"))
    assert shown >= 50
    browser.press("Read on")
    wait_until(lambda: len(browser.all("tbody tr")) > shown, "more is shown")
    browser.open(scene.url, "/topics/orders/messages?from=earliest&partition=2&filter=nobody-wrote-this")
    browser.wait_for("Up to the end.", 60)
    browser.wait_for("No messages")


def test_a_key_is_found_in_both_tiers(browser: Browser, scene: ServeProcess) -> None:
    pytest.importorskip("duckdb")
    browser.open(scene.url, "/topics/orders/messages?from=key&key=customer-094")
    browser.wait_for("files read", 90)
    browser.wait_for("records in")
    assert {each.text for each in browser.all("tbody td.key")} == {"customer-094"}
    browser.press("Copy as")
    browser.wait_for("tierlog find orders --key customer-094")


def test_a_condition_of_sql_picks_records_of_both_tiers(browser: Browser, scene: ServeProcess, client: Client) -> None:
    pytest.importorskip("duckdb")
    condition = "(value->>'total')::DOUBLE > 550 -- dear ones"
    query = f"SELECT count(*) FROM orders WHERE partition = 1 AND {condition}"
    [[dear]] = client.post(path("sql"), {"query": query})["rows"]
    assert dear > 50
    browser.open(scene.url, "/topics/orders/messages?partition=1")
    browser.choose("From", "SQL where")
    browser.type("Where", condition)
    browser.press("Read")
    browser.wait_for("The newest 50 records", 90)
    browser.picture("where", whole=False)
    browser.press("Show more")
    wait_until(lambda: len(browser.all("tbody tr")) >= min(dear, 200), "more is shown", 60)
    assert {each.text.split(":")[0] for each in browser.all("tbody td:first-child a")} == {"1"}
    browser.press("Copy as")
    browser.wait_for('SELECT partition, "offset"')
    browser.press("Close", "dialog[open]")
    browser.type("Where", "nothing > 1")
    browser.press("Read")
    browser.wait_for("DESCRIBE TOPIC names the columns")
    browser.allowed = ("api/v1/sql",)


LINE = {"type": "record", "name": "Line", "fields": [{"name": "item", "type": "string"}]}
SCHEMA = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "total", "type": "double"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "gift", "type": ["null", "Line"]},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["PLACED", "PAID"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "share", "type": "float"},
        {"name": "paid", "type": "boolean"},
    ],
}
ORDER = {
    "total": 12.5, "customer": "Zoë", "lines": [{"item": "mug"}, {"item": "pen"}], "gift": {"item": "card"},
    "counts": {"small": -3, "large": 2**62}, "state": "PAID", "mark": b"\x00\xff", "share": 0.25, "paid": True,
}  # fmt: skip
SHOWN = {**ORDER, "counts": {"small": -3, "large": str(2**62)}, "mark": "00ff"}


def avro(schema: object, value: object) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), value)
    return written.getvalue()


def test_values_in_avro_are_shown_once_their_schema_is_known(
    browser: Browser, scene: ServeProcess, client: Client
) -> None:
    client.post(path("topics"), {"name": "coded", "partitions": 1})
    value = base64.b64encode(b"\0\0\0\0\7" + avro(SCHEMA, ORDER)).decode()
    client.post(
        path("topics", "coded", "messages", "batch"), {"messages": [{"value": value, "value_encoding": "base64"}]}
    )
    browser.open(scene.url, "/topics/coded/messages/0/0")
    browser.wait_for("000000  00 00 00 00 07")
    browser.press("Schema…")
    browser.type("Schema", json.dumps(SCHEMA))
    browser.choose("Bytes before a value", "5: a registry's number")
    browser.press("Use it", "dialog[open]")
    browser.wait_for('"customer": "Zoë"')
    assert json.loads(browser.all("main pre.json")[0].text) == SHOWN
    browser.picture("avro", whole=False)
    browser.press("Send again")
    browser.press("Send", "dialog[open]")
    browser.wait_for("Partition 0, offset 1")
    sent = client.get(path("topics", "coded", "partitions", 0, "messages"), offset=0)["messages"]
    assert [each["value"] for each in sent] == [value] * 2, "the same bytes, not what was shown"
    browser.open(scene.url, "/topics/coded/messages?from=earliest&filter=total%20%3E%2012")
    browser.wait_for("2 shown")


def test_bytes_that_are_no_avro_of_the_schema_are_refused(browser: Browser, scene: ServeProcess) -> None:
    whole = avro(SCHEMA, ORDER)
    itself = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
    nulls = {"type": "array", "items": "null"}
    attempts = [
        *((SCHEMA, whole[:cut]) for cut in range(len(whole))),
        (SCHEMA, whole + b"\0"),
        (nulls, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0"),
        (itself, b""),
        (["null", "string"], b"\x04"),
        ("string", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
    ]
    browser.open(scene.url)
    refused = browser.run_later(
        """const done = arguments[2], attempts = arguments[1];
        import(arguments[0]).then(({ decoder }) => done(attempts.map(([schema, bytes]) => {
          try { return JSON.stringify(decoder({ schema, skip: 0 })(Uint8Array.from(bytes))) } catch { return null }
        })))""",
        f"{scene.url}/console/avro.js",
        [[json.dumps(schema), list(data)] for schema, data in attempts],
    )
    assert refused == [None] * len(attempts)


def test_a_live_tail_counts_what_it_leaves_out(browser: Browser, scene: ServeProcess, client: Client) -> None:
    client.post(path("topics"), {"name": "flood", "partitions": 1})
    browser.open(scene.url, "/topics/flood/messages?from=tail")
    browser.wait_for("Waiting for new messages")
    for turn in range(4):
        messages = [{"value": f"line {turn} {number}"} for number in range(3_000)]
        client.post(path("topics", "flood", "messages", "batch"), {"messages": messages})
    wait_until(lambda: numbers(browser)[0] == 12_000, "the tail has seen them")
    came, left_out = numbers(browser)
    assert 0 < came - left_out <= 400
    assert len(browser.all("tbody tr")) == min(200, came - left_out)
    browser.picture("live", whole=False)


FLOOD_S = 12
TAIL_BYTES = 128 << 10
"""What the page asks of a partition at a time; as base64 in JSON it is half as much again."""


def test_a_tail_of_a_topic_in_full_flood_stays_small(browser: Browser, scene: ServeProcess, client: Client) -> None:
    """A producer writes as fast as it can, 100,000 records a second where there is room. What the page asks, shows and
    keeps does not grow with it, the page answers at once, and so does the broker."""
    client.post(path("topics"), {"name": "torrent", "partitions": 2, "config": {"flush": "os"}})
    browser.open(scene.url, "/topics/torrent/messages?from=tail")
    browser.wait_for("Waiting for new messages")
    heap, sent, waits = browser.heap_bytes(), 0, []
    producer = Producer({"bootstrap.servers": scene.kafka, "linger.ms": 50, "queue.buffering.max.messages": 200_000})
    began = time.monotonic()
    while (passed := time.monotonic() - began) < FLOOD_S:
        for number in range(10_000):
            producer.produce("torrent", b"line %012d %080d" % (sent + number, 0), partition=number & 1)
        sent += 10_000
        producer.flush(30)
        if len(waits) < passed:
            asked = time.monotonic()
            client.get(path("topics", "torrent"))
            waits.append(time.monotonic() - asked)
            assert browser.run("return 1 + 1") == 2
    seconds = time.monotonic() - began
    wait_until(lambda: numbers(browser)[0] == sent, "the tail has come to the end")
    came, left_out = numbers(browser)
    assert 0 < came - left_out < 50 * 2 * (seconds + 30), "a sample, a page of each partition a second"
    assert len(browser.all("tbody tr")) == 200
    read = browser.run(
        "return performance.getEntriesByType('resource').reduce((sum, each) => sum + each.encodedBodySize, 0)"
    )
    assert read < (seconds + 30) * 2 * TAIL_BYTES * 3 / 2
    grown = browser.heap_bytes() - heap
    print(
        f"{sent / seconds:,.0f} records/s for {seconds:.0f} s: {read / seconds / 1000:.0f} KB/s to the page, heap "
        f"{grown / 1e6:+.1f} MB, the broker answers in {sorted(waits)[len(waits) // 2] * 1000:.0f} ms"
    )
    assert grown < 32 << 20
    assert sorted(waits)[len(waits) // 2] < 1


def numbers(browser: Browser) -> tuple[int, int]:
    came, left_out = browser.all("[role=status].num")[0].text.removeprefix("Live: ").split(" came, ")
    return int(came.replace(",", "")), int(left_out.split()[0].replace(",", ""))


@pytest.mark.does("reset a group", "delete a group")
def test_offsets_are_reset_after_a_look_at_what_would_be(browser: Browser, scene: ServeProcess, client: Client) -> None:
    for partition in range(2):
        client.post(
            path("consumer-groups", "movers", "offsets"), {"topic": "customers", "partition": partition, "offset": 5}
        )
    browser.open(scene.url, "/groups/movers")
    browser.press("Reset offsets")
    browser.wait_for("records are to be read")
    browser.choose("To", "the newest record")
    browser.wait_for("Then 0 records are to be read")
    browser.picture("reset", whole=False)
    before = client.get(path("consumer-groups", "movers", "offsets"))["offsets"]
    assert [each["offset"] for each in before] == [5, 5], "a look changes nothing"
    browser.confirm("Reset the offsets", command="tierlog group reset movers --topic customers --to latest")
    browser.wait_for("movers is moved")
    assert client.get(path("consumer-groups", "movers", "offsets"))["lag"] == 0
    browser.press("Delete")
    browser.confirm("Delete the group", name="movers", command="tierlog group delete movers")
    browser.wait_for("movers is deleted")
    assert "movers" not in {each["group"] for each in client.get(path("consumer-groups"))["groups"]}


@pytest.mark.does("redrive")
def test_dead_letters_are_redriven_once(browser: Browser, scene: ServeProcess, client: Client) -> None:
    client.post(path("topics"), {"name": "bills", "partitions": 1})
    sent = [
        {"key": f"k{number}", "value": f"v{number}", "headers": [{"key": "h", "value": "1"}]} for number in range(5)
    ]
    client.post(path("topics", "bills", "messages", "batch"), {"messages": sent})
    for offset in range(5):
        letter = {"topic": "bills", "partition": 0, "offset": offset, "reason": "no"}
        client.post(path("consumer-groups", "payers", "dead-letters"), letter)
    client.post(path("consumer-groups", "payers", "offsets"), {"topic": "bills", "partition": 0, "offset": 5})
    for expected in (10, 10):
        browser.open(scene.url, "/groups/payers/dead-letters")
        browser.press("Redrive…")
        if expected == 10 and len(records(client, "bills")) == 5:
            browser.wait_for("5 of 5 records were not redriven yet")
            browser.picture("redrive", whole=False)
            count = 5
            browser.press("The same as a command", "dialog[open]")
            browser.wait_for("tierlog consume bills.payers.dlq --group payers.redrive --json")
            browser.press(f"Send {count} records again", "dialog[open]")
            browser.wait_for("5 records were sent again")
        else:
            browser.wait_for("were redriven before")
        assert len(records(client, "bills")) == expected
    again = [message for _, message in records(client, "bills")][5:]
    assert [each["key"] for each in again] == [each["key"] for each in sent]
    assert all(each["headers"] == [{"key": "h", "value": "1"}] for each in again)


def test_a_query_over_both_tiers(browser: Browser, scene: ServeProcess, client: Client) -> None:
    pytest.importorskip("duckdb")
    browser.open(scene.url, "/sql")
    browser.type(
        "Query", "SELECT value->>'$.city' AS city, count(*) AS orders FROM orders GROUP BY ALL ORDER BY 2 DESC"
    )
    browser.press("Run")
    browser.wait_for("8 rows in", 90)
    browser.wait_for("Nairobi")
    assert "q=SELECT" in browser.address
    browser.picture("query", whole=False)
    browser.type("Query", "SELECT nothing FROM orders")
    browser.press("Run")
    wait_until(lambda: browser.all("main .notice.bad"), "the refusal is shown")
    browser.allowed = ("api/v1/sql",)


def test_the_archive_is_verified(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url, "/archive/verify")
    browser.press("Verify")
    browser.wait_for("Everything is as the manifests say", 90)
    browser.picture("verified", whole=False)


def test_a_long_list_comes_in_pages(browser: Browser, scene: ServeProcess, client: Client) -> None:
    for number in range(60):
        client.post(path("topics"), {"name": f"many-{number:03}", "partitions": 1})
    try:
        browser.open(scene.url, "/topics")
        browser.type("Search by name", "many-")
        browser.wait_for("60 topics with “many-” in the name")
        browser.wait_for("1–50 of 60")
        browser.press("Next")
        browser.wait_for("51–60 of 60")
        browser.press("Topic↑")
        browser.wait_for("1–50 of 60")
        browser.wait_for("many-059")
        assert "descending=true" in browser.address and "search=many-" in browser.address
    finally:
        for number in range(60):
            client.delete(path("topics", f"many-{number:03}"))


def test_figures_stay_current(browser: Browser, scene: ServeProcess) -> None:
    browser.open(scene.url)
    browser.wait_for("Lag of all groups")
    first = browser.text
    wait_until(lambda: browser.text != first, "the page refreshes", 60)
