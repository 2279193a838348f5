"""What breaks at one broker: its disk, its way to the others or to the metadata store. The others go on."""

import asyncio

import pytest

from hot_tier.clock import steady_ms
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import Put
from hot_tier.errors import MetadataAnswerLost, NotLeader, StorageFailure
from hot_tier.ids import NodeId, Offset
from hot_tier.replication.settings import ReplicationSettings
from tests.gateway.kafka.members import Member, cut_off, members
from tests.support.waiting import until

DEADLINE_S = 20


async def committed(member: Member, end: int) -> None:
    future = member.partition().when_committed(Offset(end))
    if future is not None:
        async with asyncio.timeout(DEADLINE_S):
            await future


async def test_a_leader_whose_disk_fails_hands_over(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"before"))
        before = cluster.state()
        cluster[1].log().sync.fail(StorageFailure("cannot sync: Input/output error"))
        await until(lambda: cluster.state().leader in (2, 3))
        state = cluster.state()
        assert state.leader_epoch > before.leader_epoch
        assert set(state.isr) == {2, 3}, "nobody waits for a disk that takes no more"
        leader = cluster[state.leader]
        await until(lambda: leader.table.find("t", 0) is not None)
        await committed(leader, leader.append(b"after"))


PATIENT = ReplicationSettings(lag_time_max_ms=30_000, fetch_wait_max_ms=100)


async def test_a_leader_that_no_follower_reaches_hands_over(tmp_path):
    async with members(tmp_path, 1, 2, 3, settings=PATIENT) as cluster:
        await cluster.create(1, 2, 3, **{"min.insync.replicas": "2"})
        await committed(cluster[1], cluster[1].append(b"all three"))
        epoch = cluster.state().leader_epoch
        cut_off(cluster, 1)
        cluster[1].append(b"only here")
        await until(lambda: cluster.state().leader == 2)
        assert cluster.state().leader_epoch == epoch + 1
        await until(lambda: cluster[2].table.find("t", 0) is not None)
        await committed(cluster[2], cluster[2].append(b"the two others"))
        assert cluster[1].log().log_end_offset == 2, "what it has alone is cut off when it hears of this"


async def test_a_leader_stays_where_the_others_are_too_few_without_it(tmp_path):
    async with members(tmp_path, 1, 2, settings=PATIENT) as cluster:
        await cluster.create(1, 2, **{"min.insync.replicas": "2"})
        await committed(cluster[1], cluster[1].append(b"both"))
        cut_off(cluster, 1)
        await until(lambda: cluster[1].isr._silence(steady_ms()).nodes >= {2})
        await asyncio.sleep(0.5)
        assert cluster.state().leader == 1


async def test_a_stranded_leader_that_cannot_hand_over_says_so_until_it_is_heard_again(tmp_path, monkeypatch):
    async with members(tmp_path, 1, 2, 3, settings=PATIENT) as cluster:
        await cluster.create(1, 2, 3, **{"min.insync.replicas": "2"})
        await committed(cluster[1], cluster[1].append(b"all three"))

        async def unanswered(compares, writes):
            await asyncio.Event().wait()

        monkeypatch.setattr(cluster.store, "transact", unanswered)
        heal = cut_off(cluster, 1)
        with pytest.raises(NotLeader):
            await committed(cluster[1], cluster[1].append(b"waits"))
        with pytest.raises(NotLeader):
            cluster[1].append(b"comes later")
        heal()
        await until(lambda: cluster[1].partition().high_watermark == 2)
        await committed(cluster[1], cluster[1].append(b"all three again"))
        monkeypatch.undo()


async def test_a_follower_that_does_not_reach_its_leader_holds_nobody_up(tmp_path):
    async with members(tmp_path, 1, 2, 3, settings=PATIENT) as cluster:
        await cluster.create(1, 2, 3, partitions=3, **{"min.insync.replicas": "2"})
        await committed(cluster[1], cluster[1].append(b"all three"))
        heal = cut_off(cluster, 3)
        await committed(cluster[1], cluster[1].append(b"two"))
        await until(lambda: all(set(cluster.state(index).isr) == {1, 2} for index in range(3)))
        assert cluster.state().leader == 1
        heal()
        await until(lambda: all(set(cluster.state(index).isr) == {1, 2, 3} for index in range(3)))
        assert await cluster[3].bytes() == await cluster[1].bytes()


async def test_a_broker_that_has_just_registered_is_not_silent_yet(tmp_path):
    async with members(tmp_path, 1, settings=PATIENT) as cluster:
        isr = cluster[1].isr
        await until(lambda: isr._silence(steady_ms()).nodes)
        await cluster.write(
            Put(model.broker_key(NodeId(2)), model.encode(BrokerInfo(NodeId(2), simple_endpoints("h", 1), lease=7)))
        )
        assert 2 not in isr._silence(steady_ms()).nodes
        await until(lambda: 2 in isr._silence(steady_ms()).nodes)


async def test_a_follower_whose_disk_fails_leaves_the_in_sync_set(tmp_path):
    async with members(tmp_path, 1, 2, 3) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"all three"))
        cluster[3].log().sync.fail(StorageFailure("cannot sync: Input/output error"))
        await committed(cluster[1], cluster[1].append(b"two"))
        assert set(cluster.state().isr) == {1, 2}


@pytest.mark.parametrize("error", [MetadataAnswerLost("no answer"), RuntimeError("a mistake of ours")])
@pytest.mark.parametrize("written", [True, False])
async def test_an_in_sync_set_without_an_answer_is_settled_all_the_same(tmp_path, monkeypatch, error, written):
    async with members(tmp_path, 1, 2, 3, settings=PATIENT) as cluster:
        await cluster.create(1, 2, 3)
        await committed(cluster[1], cluster[1].append(b"all three"))
        transact, failed = cluster.store.transact, []

        async def fails_once(compares, writes):
            if failed or not any(write.key.startswith(model.PARTITIONS_PREFIX) for write in writes):
                return await transact(compares, writes)
            failed.append(error)
            if written:
                await transact(compares, writes)
            raise error

        monkeypatch.setattr(cluster.store, "transact", fails_once)
        await cluster.stop(3)
        await committed(cluster[1], cluster[1].append(b"two"))
        assert failed and set(cluster.state().isr) == {1, 2}
        await cluster.start(3)
        await until(lambda: set(cluster.state().isr) == {1, 2, 3})
        await committed(cluster[1], cluster[1].append(b"three again"))
        assert await cluster[3].bytes() == await cluster[1].bytes()
