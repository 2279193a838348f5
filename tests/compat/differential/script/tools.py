"""What admin tools ask: pages of partitions, producers, transactions, features, brokers, users, log directories."""

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from gateway.kafka.protocol.messages.describe_producers import DescribeProducersRequest
from gateway.kafka.protocol.messages.describe_producers import TopicRequest as ProducersOf
from gateway.kafka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
    TopicRequest,
)
from gateway.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gateway.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from gateway.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from gateway.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from gateway.kafka.protocol.messages.unregister_broker import UnregisterBrokerRequest
from gateway.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.compat.differential.session import Session

from .making import make_topic


def run(session: Session) -> None:
    _pages(session)
    _producers(session)
    _others(session)


def _pages(session: Session) -> None:
    first, second = make_topic(session, "paged-1", 3), make_topic(session, "paged-2", 2)
    for v in session.each(ApiKey.DESCRIBE_TOPIC_PARTITIONS):

        def ask(
            label: str, *names: str, limit: int = 2000, cursor: RequestCursor | None = None, version: int = v
        ) -> None:
            asked = [TopicRequest(name) for name in names]
            session.ask(label, DescribeTopicPartitionsRequest(asked, limit, cursor), version)

        ask("two topics", second, first)
        ask("a topic twice", first, first)
        ask("no such topic", "nobody-paged")
        ask("a bad name", "no/slashes")
        ask("four of five partitions", first, second, limit=4)
        ask("from a cursor", first, second, cursor=RequestCursor(first, 2))
        ask("from a cursor beyond the topic", first, second, cursor=RequestCursor(first, 7))
        ask("from a cursor below 0", first, cursor=RequestCursor(first, -1))


def _producers(session: Session) -> None:
    topic = make_topic(session, "producers")
    for v in session.each(ApiKey.DESCRIBE_PRODUCERS):
        session.ask("of nobody", DescribeProducersRequest([ProducersOf(topic, [0])]), v)
        session.ask("no such partition", DescribeProducersRequest([ProducersOf(topic, [9])]), v)
        session.ask("no such topic", DescribeProducersRequest([ProducersOf("nobody", [0])]), v)
        session.ask("nothing", DescribeProducersRequest([]), v)


def _others(session: Session) -> None:
    for v in session.each(ApiKey.LIST_TRANSACTIONS):
        session.ask("all", ListTransactionsRequest(), v)
        session.ask("of a state that is none", ListTransactionsRequest(["Lazy"]), v)
    for v in session.each(ApiKey.DESCRIBE_TRANSACTIONS):
        session.ask("an unknown one", DescribeTransactionsRequest(["nobody"]), v)
        session.ask("nothing", DescribeTransactionsRequest([]), v)
    for v in session.each(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS):
        session.ask("all", DescribeUserScramCredentialsRequest(None), v)
        session.ask("an unknown one", DescribeUserScramCredentialsRequest([UserName("nobody")]), v)
        twice = [UserName("nobody"), UserName("nobody")]
        session.ask("one twice", DescribeUserScramCredentialsRequest(twice), v)
    for v in session.each(ApiKey.LIST_CONFIG_RESOURCES):
        if v >= 1:
            session.ask("a kind that is none", ListConfigResourcesRequest([77]), v)
            session.ask("brokers", ListConfigResourcesRequest([4]), v)
    for v in session.each(ApiKey.UPDATE_FEATURES):

        def update(label: str, *updates: FeatureUpdateKey, version: int = v) -> None:
            session.ask(label, UpdateFeaturesRequest(10_000, list(updates), version >= 1), version)

        update("an unknown one", FeatureUpdateKey("no.such", 1))
        update("nothing")
    for v in session.each(ApiKey.UNREGISTER_BROKER):
        session.ask("an unknown one", UnregisterBrokerRequest(99), v)
    topic = make_topic(session, "moved")
    for v in session.each(ApiKey.ALTER_REPLICA_LOG_DIRS):

        def move(label: str, path: str, name: str, version: int = v) -> None:
            wanted = [AlterReplicaLogDir(path, [AlterReplicaLogDirTopic(name, [0])])]
            session.ask(label, AlterReplicaLogDirsRequest(wanted), version)

        move("to an unknown directory", "/no/such", topic)
        move("to a path that is not absolute", "here", topic)
        move("no such topic", "/no/such", "nobody")
