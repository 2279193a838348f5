"""A Flink job in Python: it copies a topic in capital letters to another one, exactly once.

Run by the Python of `make flink`, with the fields of `Settings` as its arguments.
"""

import sys
from typing import NamedTuple

from pyflink.common import Configuration, SimpleStringSchema, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.base import DeliveryGuarantee
from pyflink.datastream.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)


class Settings(NamedTuple):
    bootstrap: str
    given: str
    made: str
    jar: str
    checkpoints: str
    restored: str
    """The checkpoint to go on from; empty for none."""


def environment(settings: Settings) -> StreamExecutionEnvironment:
    config = Configuration()
    for key, value in {
        "pipeline.jars": f"file://{settings.jar}",
        "execution.checkpointing.dir": f"file://{settings.checkpoints}",
        "execution.checkpointing.interval": "500 ms",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "200 ms",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.time": "100",
    }.items():
        config.set_string(key, value)
    if settings.restored:
        config.set_string("execution.state-recovery.path", f"file://{settings.restored}")
    made = StreamExecutionEnvironment.get_execution_environment(config)
    made.set_parallelism(2)
    return made


def main(settings: Settings) -> None:
    flink = environment(settings)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(settings.bootstrap)
        .set_topics(settings.given)
        .set_group_id("flink")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(settings.bootstrap)
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic(settings.made)
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("flink-job")
        .set_property("transaction.timeout.ms", "120000")
        .build()
    )
    records = flink.from_source(source, WatermarkStrategy.no_watermarks(), "given")
    records.map(str.upper, Types.STRING()).sink_to(sink)
    flink.execute("capitals")


if __name__ == "__main__":
    main(Settings(*sys.argv[1:]))
