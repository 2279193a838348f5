"""Apache Kafka's command-line tools, called by the names of their shell scripts."""

import subprocess
from dataclasses import dataclass

from benchmarks.peer.jars import jars_dir, java

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
}
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
QUICK_START = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LONG_RUN = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True, slots=True)
class ToolResult:
    code: int
    out: str
    err: str


def run_tool(name: str, *arguments: str, stdin: str = "", timeout_s: float = 60, long_run: bool = False) -> ToolResult:
    """Calls a tool once. `long_run` uses the JVM flags for measurements instead of those for a quick start."""
    flags = LONG_RUN if long_run else QUICK_START
    command = [java(), *flags, QUIET, "-cp", f"{jars_dir()}/*", TOOLS[name], *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    return ToolResult(done.returncode, done.stdout, done.stderr)
