"""A closed cluster: TLS, logins and permissions on every way in, and an audit, which has to survive the faults too.

The load logs in as a user with the few rights that it needs. At each broker an administrator makes users by HTTPS, and
somebody without rights tries the same. What both were told is compared with the topic `__audit`.
"""

import base64
import http.client
import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from benchmarks.clusters import Cluster
from benchmarks.process import BrokerProcess, wait_for
from benchmarks.service import TierlogServer
from tests.chaos.workload import READER, Worker, read_partition
from tests.support.certificates import Authority

from .faults import Kind
from .wire import Wire

ADMIN, USER, STRANGER = "admin", "load", "stranger"
TOPICS = "chaos-"
AUDIT, AUDIT_PARTITIONS = "__audit", 3
LOST = "events of the audit are lost"
EVERY_S, ANSWER_S, WRITTEN_S = 0.3, 15.0, 40.0

Event = Mapping[str, Any]


class Closed:
    def __init__(self, directory: Path) -> None:
        self._authority = Authority(directory)
        self._passwords = {user: secrets.token_urlsafe(12) for user in (ADMIN, USER, STRANGER)}
        self._first = directory / "admin.password"
        self._first.touch(0o600)
        self._first.write_text(self._passwords[ADMIN])
        self._trusting = ssl.create_default_context(cafile=self._authority.ca)

    def close(self, cluster: Cluster) -> None:
        """Before the start."""
        names = {node: f"broker-{node}" for node in cluster.brokers}
        for node, broker in cluster.brokers.items():
            assert isinstance(broker, TierlogServer)
            files = self._authority.issue(names[node], broker.host)
            inside = {"bind": f"{broker.host}:0", "takes": "peers", "client_certificate": "required"}
            listeners = {
                "kafka": {"protocol": "sasl_tls", "takes": "clients"},
                "http": {"protocol": "https", "takes": "clients", "login": "required"},
                "inside": {"protocol": "tls", **inside},
                "inside-http": {"protocol": "https", **inside},
            }
            settings = {
                "tls.certificate": files.certificate,
                "tls.key": files.key,
                "tls.ca": self._authority.ca,
                "tls.peers": ",".join(names.values()),
                "tls.principal_rules": "RULE:^CN=(broker-[0-9]+).*$/$1/",
                "login.first_user": ADMIN,
                "login.first_password": f"file:{self._first}",
                "authorization.enabled": "true",
                "authorization.super_users": ADMIN,
                "audit.enabled": "true",
                "audit.partitions": AUDIT_PARTITIONS,
                "audit.interval_ms": 10_000,  # The stranger's refusals are told one by one: some 30 in this time.
            }
            settings |= {
                f"listener.{name}.{key}": value for name, keys in listeners.items() for key, value in keys.items()
            }
            broker.arguments += [f"--{key}={value}" for key, value in settings.items()]
            broker.answers = self._answers

    def _answers(self, host: str, port: int) -> bool:
        try:
            with Wire(host, port, 1.0, self.login(ADMIN)) as wire:
                return bool(wire.metadata(AUDIT).brokers)
        except OSError:
            return False

    def admit(self, cluster: Cluster) -> None:
        """Makes the users, and gives the load its rights. Returns when every broker knows."""
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **self.login(ADMIN)})
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = [UserScramCredentialUpsertion(user, kind, self._passwords[user].encode()) for user in (USER, STRANGER)]
        rules = [
            _allow(ResourceType.TOPIC, TOPICS, AclOperation.CREATE),
            _allow(ResourceType.TOPIC, TOPICS, AclOperation.READ),
            _allow(ResourceType.TOPIC, TOPICS, AclOperation.WRITE),
            _allow(ResourceType.GROUP, TOPICS, AclOperation.READ),
            _allow(ResourceType.GROUP, READER, AclOperation.READ),
        ]
        for done in (*admin.alter_user_scram_credentials(users).values(), *admin.create_acls(rules).values()):
            done.result(20)

        def known() -> bool:
            answers = [self.ask(broker, ADMIN, "GET", "acls")[1] for broker in cluster.brokers.values()]
            return all(len(json.loads(answer)["acls"]) == len(rules) for answer in answers)

        wait_for(known, "every broker to know the rules", 20)

    def login(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self._authority.ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self._passwords[user],
        }

    def ask(self, broker: BrokerProcess, who: str, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Returns status and body of the answer over HTTPS. Raises OSError if there is none."""
        assert isinstance(broker, TierlogServer)
        known = base64.b64encode(f"{who}:{self._passwords[who]}".encode()).decode()
        request = urllib.request.Request(
            f"https://{broker.host}:{broker.http_port}/api/v1/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {known}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S, context=self._trusting) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, b""

    def judge(self, cluster: Cluster, acts: "list[Act]", ended: "list[Ended]") -> None:
        """What the audit is to have is there, at the latest when its brokers had time to write it."""
        client = {"bootstrap.servers": cluster.bootstrap, **self.login(ADMIN)}
        said = {node for node, broker in cluster.brokers.items() if LOST in broker.log_tail(1_000_000)}
        found: list[str] = []

        def all_is_there() -> bool:
            values = [value for number in range(AUDIT_PARTITIONS) for _, value in read_partition(client, AUDIT, number)]
            found[:] = wrong_in_audit([json.loads(value) for value in values], acts, ended, said)
            return not found

        try:
            wait_for(all_is_there, "the audit to be whole", WRITTEN_S, interval_s=1)
        except TimeoutError:
            raise AssertionError(f"{len(found)} wrong in the audit:\n" + "\n".join(found[:20])) from None
        assert {act.outcome for act in acts} == {"success", "refused"}, "nobody did anything that the audit could have"
        print(f"{len(acts)} acts of administrators are in the audit")


def _allow(kind: ResourceType, prefix: str, operation: AclOperation) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefix == TOPICS else ResourcePatternType.LITERAL
    return AclBinding(kind, prefix, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW)


@dataclass(frozen=True, slots=True)
class Act:
    """What a broker answered; `name` is in no other act."""

    node: int
    name: str
    outcome: str
    invoked_ns: int


@dataclass(frozen=True, slots=True)
class Ended:
    node: int
    how: Kind
    at_ns: int


class Administrator(Worker):
    def __init__(self, node: int, broker: BrokerProcess, closed: Closed, acts: list[Act], complaints: list[str]):
        super().__init__(f"admin-{node}")
        self._node, self._broker, self._closed, self._acts, self._complaints = node, broker, closed, acts, complaints

    def run(self) -> None:
        turn = 0
        while not self._stopping.wait(EVERY_S):
            turn += 1
            self._ask(ADMIN, f"made-{self._node}-{turn}", "success")
            self._ask(STRANGER, f"never-{self._node}-{turn}", "refused")

    def _ask(self, asker: str, name: str, wanted: str) -> None:
        invoked_ns = time.monotonic_ns()
        try:
            path, body = f"users/{name}/password", {"password": secrets.token_urlsafe(12)}
            status, _ = self._closed.ask(self._broker, asker, "PUT", path, body)
        except (OSError, http.client.HTTPException):
            return
        if status >= 500:
            return  # It cannot serve now.
        outcome = "success" if status < 300 else "refused" if status == 403 else str(status)
        self._acts.append(Act(self._node, name, outcome, invoked_ns))
        if outcome != wanted:
            self._complaints.append(f"{asker} asked node {self._node} to make {name}: {status}")


def wrong_in_audit(
    events: Iterable[Event], acts: Iterable[Act], ended: Iterable[Ended], said: Iterable[int] = ()
) -> list[str]:
    """`said`: nodes that wrote, when they stopped, that events are lost."""
    return list(_wrong(list(events), acts, sorted(ended, key=lambda each: each.at_ns), set(said)))


def _wrong(events: list[Event], acts: Iterable[Act], ended: list[Ended], said: set[int]) -> Iterator[str]:
    runs: dict[str, set[int]] = defaultdict(set)
    told = set()
    for event in events:
        run, _, number = event["metadata"]["uid"].rpartition("-")
        runs[run].add(int(number))
        outcome, who = event["unmapped"]["outcome"], event.get("actor", {}).get("user", {}).get("name")
        told |= {(each["name"], outcome) for each in event.get("resources", ())}
        if outcome == "refused" and who in (ADMIN, USER):
            yield f"{who} was refused: {event}"
    for run, numbers in runs.items():
        if missing := set(range(max(numbers))) - numbers:
            yield f"of the run {run} events up to {max(numbers)} are there, without {sorted(missing)[:5]}"
    for act in acts:
        if (act.name, act.outcome) not in told:
            end = next((each for each in ended if each.node == act.node and each.at_ns > act.invoked_ns), None)
            # What a broker had not written yet is lost when it is killed.
            if end is None or (end.how is not Kind.KILL and act.node not in said):
                yield f"{act} is not there; after it: {end}"
