"""What `tierlog cluster rebuild` decides from surveys; `tests/recovery` does it with a real cluster."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from cold_tier.descriptions import TopicDescription
from gateway.coordinators.offsets_topic.topic import offsets_topic
from gateway.coordinators.settings import GroupSettings, TransactionSettings
from gateway.coordinators.transactions.topic import transactions_topic
from hot_tier.cluster.directory import write_identity
from hot_tier.cluster.model import NO_NODE, Identity, initial_state
from hot_tier.errors import CorruptLog, CorruptMetadata
from hot_tier.ids import LeaderEpoch, NodeId
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.settings import LogSettings
from tests.hot_tier.log.support import append, batch
from tierlog.rebuild import Archive, Rebuilt, plan
from tierlog.survey import FoundLog, Survey
from tierlog.survey import survey as take

ORDERS = UUID(int=7)


def log(epoch: int, end: int, partition: int = 0, topic: str = "orders", **fields: Any) -> FoundLog:
    found = {"topic_id": ORDERS, "damaged": False, "emptied": False, **fields}
    return FoundLog(topic=topic, partition=partition, leader_epoch=epoch, end_offset=end, **found)


def survey(node: int, *logs: FoundLog) -> Survey:
    return Survey(NodeId(node), Identity(f"directory {node}", 3), 17, logs)


def decided(*surveys: Survey, archives: Any = None, partitions: dict[str, int] | None = None) -> Rebuilt:
    journals = [offsets_topic(GroupSettings(offsets_topic_partitions=8)), transactions_topic(TransactionSettings())]
    (found,) = plan(surveys, archives or {}, partitions or {}, {each.name: each for each in journals})
    return found


def snapshot(end: int, epoch: int) -> Any:
    return SimpleNamespace(end_offset=end, version=SimpleNamespace(leader_epoch=epoch))


def test_the_last_epoch_counts_more_than_the_end() -> None:
    (state,) = decided(survey(1, log(3, 900)), survey(2, log(5, 200)), survey(3, log(5, 150))).states
    assert (state.leader, state.isr, state.replicas) == (NO_NODE, (2,), (2, 1, 3))
    assert state.leader_epoch == 6, "above every epoch that was used"


def test_a_log_that_lost_its_records_leads_only_if_there_is_no_other() -> None:
    (state,) = decided(survey(1, log(5, 900, emptied=True)), survey(2, log(5, 200))).states
    assert state.isr == (2,)
    (state,) = decided(survey(1, log(5, 900, emptied=True))).states
    assert state.isr == (1,)


def test_a_damaged_log_is_not_given_up_for_an_older_one() -> None:
    found = decided(survey(1, log(5, 900, damaged=True)), survey(2, log(4, 200)))
    assert found.states[0].isr == (1,)
    found = decided(survey(1, log(5, 900, damaged=True)), survey(2, log(5, 900, damaged=True)))
    assert "partitions [0] miss something at every broker" in found.notes


def test_partitions_that_nobody_wrote_to_are_made_empty() -> None:
    found = decided(survey(1, log(2, 5, partition=1)), survey(2, log(2, 5, partition=1)), partitions={"orders": 4})
    assert found.topic is not None and found.topic.partitions == 4 == len(found.states)
    assert found.states[0] == initial_state([NodeId(1), NodeId(2)])
    assert found.states[3] == initial_state([NodeId(2), NodeId(1)])


def test_what_is_not_described_keeps_everything() -> None:
    found = decided(survey(1, log(0, 5)))
    assert found.topic is not None and found.topic.config == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert "its settings are not known" in found.notes[0]


def test_what_the_bucket_describes_has_its_settings() -> None:
    described = TopicDescription("orders", ORDERS, 3, 3, {"retention.ms": "5"}, 0)
    archive = Archive(described, {0: snapshot(40, 9)})
    found = decided(survey(1, log(2, 50)), archives={ORDERS: archive})
    assert found.topic is not None and found.topic.config == {"retention.ms": "5"}
    assert found.topic.partitions == 3 and not found.notes
    assert found.states[0].leader_epoch == LeaderEpoch(10), "above what the archive knows, too"


def test_a_log_that_ends_before_its_archive_is_left_out() -> None:
    found = decided(survey(1, log(2, 39)), archives={ORDERS: Archive(None, {0: snapshot(40, 1)})})
    assert found.topic is None
    assert "archived up to offset 40, and its log ends at 39" in found.notes[0]


@pytest.mark.parametrize(("name", "partitions"), [("__consumer_offsets", 8), ("__transaction_state", 50)])
def test_journals_of_coordinators_are_topics_of_the_service(name: str, partitions: int) -> None:
    topic = decided(survey(1, log(2, 5, partition=3, topic=name))).topic
    assert topic is not None and topic.internal and topic.partitions == partitions
    assert topic.config["cleanup.policy"] == "compact"


def test_two_topics_of_one_name_are_for_a_person_to_decide() -> None:
    found = plan([survey(1, log(1, 5), log(1, 5, topic_id=UUID(int=8)))], {}, {}, {})
    assert [each.topic for each in found] == [None, None]


def test_a_survey_is_read_as_it_was_written() -> None:
    written = survey(2, log(3, 4), log(0, 0, partition=1, damaged=True))
    assert Survey.of(json.loads(json.dumps(written.document())), "file") == written
    with pytest.raises(CorruptMetadata, match="not a survey"):
        Survey.of({"logs": [{}]}, "file")


async def test_a_survey_does_not_forget_what_is_missing(tmp_path: Path) -> None:
    async def opened() -> tuple[LogManager, PartitionLog]:
        manager = LogManager(str(tmp_path), LogSettings(min_free_bytes=0))
        await manager.open(background=False)
        return manager, manager.log("orders", ORDERS, 0, TopicConfig())

    manager, written = await opened()
    append(written, batch(b"a"))
    written.flush()
    os.close(manager._lock_fd)
    for file in Path(written.directory).iterdir():
        file.unlink()
    write_identity(str(tmp_path), Identity("5e" * 16, 1))
    assert (await take(str(tmp_path), NodeId(1))).logs == ()
    manager, found = await opened()
    assert (found.log_start_offset, found.log_end_offset) == (0, 1)
    with pytest.raises(CorruptLog):
        found.locate(0, 100, 1)
    await manager.close()
