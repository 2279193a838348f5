"""HTTP requests of hostile size: every operation of the API with long and many parameters, and bombs as documents.

They are put together from the operations themselves, so that a new one is fired at too.
"""

import random
from collections.abc import Iterator

from gateway.http.app import OPERATIONS
from gateway.http.operation import Document, Operation, RawBody

BODY_BYTES = 900_000
LONG_BODY_BYTES = 15_000_000
NOT_FIRED = ("DELETE",)
"""Done to the topics that are fired at they would end the fuzzing; they are fired at names that do not exist."""


def http_requests(rng: random.Random, topics: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Each operation in a way of being bad that is drawn, and the worst documents for the one that takes long ones."""
    for operation in OPERATIONS:
        named = "absent" if operation.method in NOT_FIRED else rng.choice(topics)
        way, query, headers = rng.choice(list(_ways(operation, rng)))
        body = b"" if operation.body is None else rng.choice(list(_documents(operation, rng)))
        yield f"{operation.name} with {way}", _request(operation, named, query, headers, body)
    batch = next(each for each in OPERATIONS if each.name == "postMessages")
    for name, document in _batches(rng):
        yield f"postMessages: {name}", _request(batch, rng.choice(topics), "", b"", document)
    read = next(each for each in OPERATIONS if each.name == "getMessages")
    for media in (b"application/json", b"application/x-ndjson", b"application/vnd.apache.arrow.stream"):
        query = "offset=0&limit=1000000"
        yield f"getMessages as {media.decode()}", _request(read, topics[-1], query, b"Accept: %b\r\n" % media, b"")
    one = _request(read, topics[0], "offset=0", b"", b"", close=False)
    yield "getMessages 100 times in one go", one * 100 + _request(read, topics[0], "offset=0", b"", b"")


def _request(operation: Operation, topic: str, query: str, headers: bytes, body: bytes, *, close: bool = True) -> bytes:
    path = operation.path.replace("{topic}", topic).replace("{partition}", "0").replace("{group}", "group")
    path = path.replace("{name}", topic).replace("{broker}", "999").replace("{", "").replace("}", "")
    head = f"{operation.method} {path}{'?' if query else ''}{query} HTTP/1.1\r\nHost: localhost\r\n".encode()
    if isinstance(operation.body, Document | RawBody):
        head += b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return head + headers + (b"Connection: close\r\n" if close else b"") + b"\r\n" + body


def _ways(operation: Operation, rng: random.Random) -> Iterator[tuple[str, str, bytes]]:
    yield "nothing special", "", b""
    yield "many parameters", "&".join(f"p{n}=1" for n in range(1500)), b""
    yield "a parameter again and again", "limit=1&" * 1500, b""
    yield "a long parameter", "offset=" + "9" * 15_000, b""
    yield "an escaped parameter", "offset=" + "%41" * 5_000, b""
    yield "many headers", "", b"".join(b"X-Header-%d: v\r\n" % n for n in range(5_000))
    yield "a long header", "", b"X-Partition-Key: " + b"k" * 15_000 + b"\r\n"
    for each in operation.parameters:
        if each.where == "query":
            yield f"a strange {each.name}", f"{each.name}={rng.choice(['-1', '1e9', '0' * 9000, '%00', 'latest'])}", b""


def _documents(operation: Operation, rng: random.Random) -> Iterator[bytes]:
    names = list(operation.body.model.model_fields) if isinstance(operation.body, Document) else ["value"]
    name = rng.choice(names).encode()
    yield b"{}"
    yield b"x" * BODY_BYTES
    yield b'{"%b":%b1%b}' % (name, b"[" * 100_000, b"]" * 100_000)
    yield b'{"%b":[%b1]}' % (name, b"1," * 120_000)
    yield b'{"%b":{%b"z":1}}' % (name, b"".join(b'"k%d":1,' % n for n in range(20_000)))
    yield b"{%b" % b"".join(b'"k%d":1,' % n for n in range(20_000)) + b'"z":1}'
    yield b'{"%b":%b}' % (name, b"1" * 250_000)
    yield b'{"%b":"%b"}' % (name, b"\\u0041" * 40_000)


def _batches(rng: random.Random) -> Iterator[tuple[str, bytes]]:
    def batch(message: bytes, count: int | None = None) -> bytes:
        fits = (LONG_BODY_BYTES - 20) // (len(message) + 1)
        return b'{"messages":[' + b",".join([message] * min(fits, count or fits)) + b"]}"

    header = b'{"key":"a","value":"b"}'
    yield "100,000 empty messages", batch(b"{}", 100_000)
    yield "millions of empty messages", batch(b"{}")
    yield "messages with headers", batch(b'{"value":"x","headers":[%b]}' % b",".join([header] * 5), 100_000)
    yield "messages with 1,000 headers", batch(b'{"headers":[%b]}' % b",".join([header] * 1_000))
    yield "one message of headers", b'{"messages":[{"headers":[' + b",".join([header] * 600_000) + b"]}]}"
    yield "keys", batch(b'{"key":"%b"}' % (b"k" * rng.choice([1, 100, 1000])), 100_000)
    yield "one wrong at the end", batch(b"{}", 99_998)[:-2] + b',{"value":5}]}'
    yield "all wrong", batch(b'{"value":5}', 100_000)
    yield "not base64", batch(b'{"value":"!","value_encoding":"base64"}', 100_000)
    yield "one long value", b'{"messages":[{"value":"' + b"\\n" * (LONG_BODY_BYTES // 2 - 20) + b'"}]}'
    yield "no JSON", b"[" * LONG_BODY_BYTES
