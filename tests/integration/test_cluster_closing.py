"""An open cluster is closed broker by broker under load, as docs/SECURING.md says: clients see no error, lose nothing.

The brokers are processes. Clients without a login run until all could move; those with one run through the rest: TLS
between brokers is there by then, and permissions come.
"""

import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import confluent_kafka as ck
import pytest
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

from benchmarks.clusters import TierlogCluster
from benchmarks.process import free_port, wait_for
from benchmarks.service import TierlogServer
from tests.integration.test_cluster_clients import QUICK, Confluent, make_topic, wait_until_whole
from tests.support.certificates import Authority

pytestmark = [
    pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd on PATH"),
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

PASSWORDS = {"admin": "the-administrators", "app": "the-applications"}
ANYWHERE = "127.0.0.1:0"
SUPER_USERS = "authorization.super_users"


class Closing:
    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "certificates")
        self.cluster = TierlogCluster(directory / "cluster", settings=QUICK)
        first = directory / "admin.password"
        first.touch(0o600)
        first.write_text(PASSWORDS["admin"])
        self._first = {"login.first_user": "admin", "login.first_password": f"file:{first}"}
        self.ports = {node: free_port() for node in self.cluster.brokers}
        self._plain = {node: list(each.arguments) for node, each in self._brokers()}

    def _brokers(self) -> list[tuple[int, TierlogServer]]:
        return [(node, each) for node, each in self.cluster.brokers.items() if isinstance(each, TierlogServer)]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def login(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.authority.ca,
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **self.login("admin")})

    def roll(self, step: Mapping[str, str], seen: AdminClient) -> None:
        """Restarts one broker after the other with these settings besides the first ones."""
        for node, broker in self._brokers():
            files = self.authority.issue(f"broker{node}")
            settings = {
                "tls.certificate": files.certificate,
                "tls.key": files.key,
                "tls.ca": self.authority.ca,
                "tls.principal_rules": "RULE:^CN=(broker[0-9]).*$/$1/",
                **{name: value.format(port=self.ports[node]) for name, value in step.items()},
            }
            broker.arguments = [*self._plain[node], *(f"--{name}={value}" for name, value in settings.items())]
            broker.answers = lambda host, port: True  # What it prints says that it serves.
            broker.stop()
            broker.start()
            wait_until_whole(seen)

    def steps(self) -> list[dict[str, str]]:
        inside = {
            f"listener.{name}.{key}": value
            for name, protocol in (("inside", "tls"), ("inside-http", "https"))
            for key, value in {
                "protocol": protocol,
                "bind": ANYWHERE,
                "takes": "peers",
                "client_certificate": "required",
            }.items()
        }
        apart = {
            "listener.kafka.takes": "clients",
            "listener.http.takes": "clients",
            "tls.peers": ",".join(f"broker{node}" for node in self.ports),
        }
        logged_in = {
            "listener.closed.protocol": "sasl_tls",
            "listener.closed.bind": "127.0.0.1:{port}",
            "listener.closed.takes": "clients",
            **self._first,
        }
        permitted = {"authorization.enabled": "true", SUPER_USERS: "admin,app,ANONYMOUS"}
        shut = {
            "listener.kafka.protocol": "sasl_tls",
            "listener.http.protocol": "https",
            "listener.http.login": "required",
            SUPER_USERS: "admin",
        }
        made: list[dict[str, str]] = []
        for more in (inside, apart, logged_in, permitted, shut):
            made.append({**(made[-1] if made else {}), **more})
        return made


def test_clients_notice_nothing(tmp_path: Path) -> None:
    closing = Closing(tmp_path)
    cluster = closing.cluster
    inside, apart, logged_in, permitted, shut = closing.steps()
    pairs: list[Confluent] = []
    try:
        cluster.start()
        anybody = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        make_topic(anybody, "open")
        pairs.append(Confluent(cluster.bootstrap, "open"))
        pairs[0].start()
        for step in (inside, apart, logged_in):
            closing.roll(step, anybody)

        admin = closing.admin()
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        app = UserScramCredentialUpsertion("app", kind, PASSWORDS["app"].encode())
        admin.alter_user_scram_credentials([app])["app"].result(30)
        make_topic(admin, "closed")
        pairs.append(Confluent(closing.bootstrap, "closed", closing.login("app")))
        pairs[1].start()
        pairs[0].finish()  # The last client without a login moves.

        closing.roll(permitted, admin)
        for done in admin.create_acls(RULES).values():
            done.result(30)
        closing.roll(shut, admin)
        pairs[1].finish()

        nobody = ck.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "log_level": 0})
        with pytest.raises(ck.KafkaException):
            nobody.list_topics(timeout=3)
        as_app = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **closing.login("app")})
        wait_for(lambda: set(as_app.list_topics(timeout=10).topics) == {"closed"}, "the rules to hold", 30)
        trusting = ssl.create_default_context(cafile=closing.authority.ca)
        for broker in cluster.brokers.values():
            assert isinstance(broker, TierlogServer)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"https://127.0.0.1:{broker.http_port}/metrics", timeout=10, context=trusting)
    finally:
        for pair in pairs:
            pair.stopping.set()
        cluster.kill()


def rule(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, "User:app", "*", operation, AclPermissionType.ALLOW)


RULES = [
    rule(ResourceType.TOPIC, "closed", AclOperation.WRITE),
    rule(ResourceType.TOPIC, "closed", AclOperation.READ),
    rule(ResourceType.GROUP, "confluent", AclOperation.READ),
    rule(ResourceType.GROUP, "whole", AclOperation.READ),
]
