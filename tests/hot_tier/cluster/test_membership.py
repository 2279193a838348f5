"""Coming, staying and going: who is counted, and what a broker may still vouch for when it comes back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.model import NO_NODE
from hot_tier.cluster.probe import Answer
from hot_tier.cluster.restart_isr import disown
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import Compare, Delete, Put, Revision
from hot_tier.errors import DataLost, NodeIdTaken
from hot_tier.ids import NodeId
from hot_tier.log.config import TopicConfig
from tests.hot_tier.cluster.members import RUNS, SETTINGS, Member

REPLICAS = {0: [1, 2, 3]}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def three(store: SqliteStore) -> AsyncIterator[list[Member]]:
    """Brokers 1, 2 and 3 with the topic t, led by 1, in sync on all; nobody governs."""
    members = [await Member(store, node).join(govern=False) for node in (1, 2, 3)]
    await members[0].admin.create_topic("t", assignment=REPLICAS)
    yield members
    for member in members:
        await member.die()


async def write_state(member: Member, topic: str = "t", **changes: object) -> None:
    before = member.state(topic)
    key = model.partition_key(member.image.topic(topic).id, 0)
    after = replace(before, **changes)  # type: ignore[arg-type]
    revision = await member.store.transact([Compare(key, before.version)], [Put(key, model.encode(after))])
    assert revision is not None
    await member.image.reached(revision)


async def test_brokers_see_each_other(three: list[Member]) -> None:
    for member in three:
        await member.image.reached(three[-1].membership.registration_epoch)
        assert [broker.id for broker in member.image.brokers()] == [1, 2, 3]
        mine = member.image.broker(member.membership.info.id)
        assert mine is not None
        assert mine.epoch == member.membership.registration_epoch


async def test_a_killed_broker_that_is_back_at_once_takes_the_place_of_its_registration(
    store: SqliteStore, three: list[Member]
) -> None:
    await three[0].die()
    again = await Member(store, 1).join(govern=False)
    assert again.membership.registration_epoch > three[0].membership.registration_epoch
    state = again.state("t")
    assert state.leader == 2, "its old epoch is over; another one in sync goes on"
    assert state.leader_epoch == 1
    assert state.isr == (1, 2, 3), "the same disk, synced: it still has everything"
    await again.die()


async def test_alone_it_leads_again_in_a_new_epoch(store: SqliteStore) -> None:
    first = await Member(store, 1).join(govern=False)
    await first.admin.create_topic("t", assignment={0: [1]})
    await first.leave()
    again = await Member(store, 1).join(govern=False)
    assert again.state("t").leader == 1
    assert again.state("t").leader_epoch == 1
    await again.leave()


async def test_a_number_that_is_taken(store: SqliteStore) -> None:
    settings = replace(SETTINGS, lease_ttl_ms=1000)
    first = await Member(store, 1, settings=settings).join(govern=False)
    with pytest.raises(NodeIdTaken, match="broker 1 runs already"):
        await Member(store, 1, data_id="another disk", settings=settings).join()
    assert [broker.data_id for broker in first.image.brokers()] == ["disk-1"]
    await first.leave()


async def test_a_number_that_is_taken_while_it_starts(store: SqliteStore) -> None:
    late = Member(store, 1, data_id="another disk")
    await late.membership.prepare(stopped_cleanly=True)
    await late.image.open()
    first = await Member(store, 1).join(govern=False)
    with pytest.raises(NodeIdTaken):
        await late.membership.register(late.image)
    await late.leave()
    assert first.image.broker(NodeId(1)) is not None, "it gave up nothing but its own"
    await first.leave()


async def test_a_copy_of_a_disk_in_use(store: SqliteStore) -> None:
    settings = replace(SETTINGS, lease_ttl_ms=1000)
    first = await Member(store, 1, settings=settings).join(govern=False)
    with pytest.raises(NodeIdTaken, match="broker 1 runs already"):
        await Member(store, 1, settings=settings).join()
    assert first.image.broker(NodeId(1)) is not None
    await first.leave()


async def test_a_disk_that_moved_to_another_machine(
    store: SqliteStore, three: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers at the old address, and the lease has long to go: the lock on the disk says that it is dead."""

    async def silence(host: str, port: int) -> Answer:
        return Answer.SILENCE

    await three[0].die()
    monkeypatch.setattr("hot_tier.cluster.membership.knock", silence)
    again = await Member(store, 1).join(govern=False)
    assert again.state("t").isr == (1, 2, 3)
    await again.die()


async def test_an_exchanged_disk_vouches_for_nothing(store: SqliteStore, three: list[Member]) -> None:
    await three[0].die()
    again = await Member(store, 1, data_id="new disk").join(govern=False)
    state = again.state("t")
    assert (state.leader, state.isr) == (2, (2, 3))
    assert state.replicas == (1, 2, 3)
    await again.die()


async def test_an_older_copy_of_a_disk_vouches_for_nothing(store: SqliteStore, three: list[Member]) -> None:
    copied = RUNS["disk-1"]
    await three[0].leave()
    again = await Member(store, 1).join(govern=False)
    await again.die()
    restored = await Member(store, 1, runs=copied).join(govern=False)
    assert NodeId(1) not in restored.state("t").isr
    assert restored.membership.identity.data_id != "disk-1", (
        "from now on it is another disk than the one it was copied from"
    )
    await write_state(restored, isr=(NodeId(1), NodeId(2), NodeId(3)))
    await restored.die()
    original = await Member(store, 1).join(govern=False)
    assert NodeId(1) not in original.state("t").isr, "what the copy was given since then is not on it"
    await original.die()


async def test_a_start_that_was_cut_off_still_finds_the_disk_new(store: SqliteStore, three: list[Member]) -> None:
    await three[0].die()
    await Member(store, 1, data_id="new disk").membership.prepare(stopped_cleanly=False)
    await write_state(three[1], isr=(NodeId(1), NodeId(2)))
    again = await Member(store, 1, data_id="new disk").join(govern=False)
    assert again.state("t").isr == (2,)
    await again.die()


async def test_what_only_a_lost_disk_held_is_not_given_up_silently(store: SqliteStore) -> None:
    first = await Member(store, 1).join(govern=False)
    await first.admin.create_topic("t", assignment={0: [1]})
    await first.leave()
    with pytest.raises(DataLost, match="t-0"):
        await Member(store, 1, data_id="not mounted").join()
    mounted = await Member(store, 1).join(govern=False)
    assert mounted.state("t").leader == 1, "the mistake has cost nothing"
    await mounted.leave()
    accepted = replace(SETTINGS, accept_lost_data=True)
    emptied = await Member(store, 1, data_id="emptied", settings=accepted).join(govern=False)
    state = emptied.state("t")
    assert (state.leader, state.isr) == (1, (1,))
    await emptied.leave()


@pytest.mark.parametrize(
    ("cleanly", "boot", "flush", "in_sync"),
    [
        (False, "boot", "os", True),
        (False, "next boot", "os", False),
        (True, "next boot", "os", True),
        (False, "next boot", "commit", True),
        (False, "", "os", False),
    ],
)
async def test_a_power_cut_costs_the_unsynced_tail(
    store: SqliteStore, cleanly: bool, boot: str, flush: str, in_sync: bool
) -> None:
    defaults = TopicConfig(flush="os") if flush == "os" else TopicConfig()
    one, two = [await Member(store, node, boot_id=boot and "boot").join(govern=False) for node in (1, 2)]
    await one.admin.create_topic("t", assignment={0: [1, 2]})
    await two.die()
    again = await Member(store, 2, boot_id=boot, defaults=defaults).join(govern=False, stopped_cleanly=cleanly)
    assert (NodeId(2) in again.state("t").isr) is in_sync
    await again.die()
    await one.die()


async def test_a_damaged_log_is_whole_elsewhere(store: SqliteStore, three: list[Member]) -> None:
    await three[0].admin.create_topic("alone", assignment={0: [1]})
    await three[0].admin.create_topic("behind", assignment={0: [2, 1]})
    await write_state(three[0], "behind", isr=(NodeId(2),))
    damaged = {(three[0].image.topic(name).id, 0) for name in ("t", "alone", "behind")}
    await three[0].die()
    again = Member(store, 1)
    await again.membership.prepare(stopped_cleanly=False)
    await again.image.open()
    elsewhere = await disown(store, again.image, NodeId(1), {*damaged, (model.new_topic_id(), 0)})
    assert elsewhere == {(again.image.topic(name).id, 0) for name in ("t", "behind")}
    assert (again.state("t").leader, again.state("t").isr) == (2, (2, 3))
    assert again.state("alone").isr == (1,)
    await again.die()


async def test_a_damaged_log_is_all_there_is_while_the_others_are_down(store: SqliteStore, three: list[Member]) -> None:
    topic_id = three[0].image.topic("t").id
    for member in three:
        await member.die()
        await store.revoke_lease(member.membership.lease)
    again = Member(store, 1)
    await again.membership.prepare(stopped_cleanly=False)
    await again.image.open()
    assert await disown(store, again.image, NodeId(1), {(topic_id, 0)}) == set()
    assert again.state("t").isr == (1, 2, 3)
    await again.die()


async def test_an_emptied_log_waits_for_the_others_even_while_they_are_down(
    store: SqliteStore, three: list[Member]
) -> None:
    """It would begin where its lost records ended, and the others would delete theirs up to there."""
    await three[0].admin.create_topic("alone", assignment={0: [1]})
    emptied = {(three[0].image.topic(name).id, 0) for name in ("t", "alone")}
    for member in three:
        await member.die()
        await store.revoke_lease(member.membership.lease)
    again = Member(store, 1)
    await again.membership.prepare(stopped_cleanly=False)
    await again.image.open()
    assert await disown(store, again.image, NodeId(1), emptied, emptied) == {(again.image.topic("t").id, 0)}
    assert (again.state("t").leader, again.state("t").isr) == (model.NO_NODE, (2, 3))
    assert again.state("alone").isr == (1,)
    await again.die()


async def test_a_leader_cannot_count_on_a_process_that_is_gone(store: SqliteStore, three: list[Member]) -> None:
    """It heard from the old process of 3 that it has caught up; 3 is back on an empty disk before it writes that."""
    await write_state(three[0], isr=(NodeId(1), NodeId(2)))
    heard = three[2].membership.registration_epoch
    await three[2].die()
    await Member(store, 3, data_id="empty").membership.prepare(stopped_cleanly=False)
    state = three[0].state("t")
    key = model.partition_key(three[0].image.topic("t").id, 0)
    grown = replace(state, isr=(NodeId(1), NodeId(2), NodeId(3)))
    compares = [Compare(key, state.version), Compare(model.broker_key(NodeId(3)), heard)]
    assert await store.transact(compares, [Put(key, model.encode(grown))]) is None


async def test_leaving_hands_over_first(three: list[Member]) -> None:
    led_by_one: list[bool] = []
    watching = three[1].image
    watching.subscribe(
        lambda _: led_by_one.append(watching.broker(NodeId(1)) is None and three[1].state("t").leader == 1)
    )
    await three[0].leave()
    async with asyncio.timeout(10):
        await watching.wait_for(lambda: watching.broker(NodeId(1)) is None)
    state = three[1].state("t")
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))
    assert not any(led_by_one), "at no time does a broker that is gone lead"


async def test_leaving_hands_over_many(three: list[Member]) -> None:
    await three[0].admin.create_topic("many", assignment={index: [1, 2] for index in range(300)})
    await three[0].leave()
    async with asyncio.timeout(10):
        await three[1].image.wait_for(lambda: three[1].image.broker(NodeId(1)) is None)
    assert {state.leader for state in three[1].image.partition_states(three[1].image.topic("many"))} == {2}


async def test_a_lost_lease_is_replaced(store: SqliteStore, three: list[Member]) -> None:
    before = three[0].membership.registration_epoch
    await store.revoke_lease(three[0].membership.lease)
    async with asyncio.timeout(10):
        await three[1].image.wait_for(
            lambda: (mine := three[1].image.broker(NodeId(1))) is not None and mine.epoch > before
        )
        await three[0].image.reached(three[1].image.revision)
    assert three[0].membership.registration_epoch > before


async def test_a_registration_that_is_seen_before_it_is_answered_is_the_last(
    store: SqliteStore, three: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd's watch may be quicker than its answer: the broker must not take its own registration for another's."""
    member, transact = three[0], store.transact

    async def answered_late(compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Revision | None:
        revision = await transact(compares, writes)
        if revision is not None:
            await member.image.reached(revision)
        return revision

    monkeypatch.setattr(store, "transact", answered_late)
    await store.revoke_lease(member.membership.lease)
    seen = {member.membership.registration_epoch}
    for _ in range(50):
        await asyncio.sleep(0.01)
        seen.add(member.membership.registration_epoch)
    assert len(seen) == 2
    mine = member.image.broker(NodeId(1))
    assert mine is not None
    assert (mine.lease, mine.epoch) == (member.membership.lease, member.membership.registration_epoch)


async def test_a_paused_broker_whose_number_was_taken_gives_up(store: SqliteStore, three: list[Member]) -> None:
    paused = three[2].membership
    three[2].image.unsubscribe(paused._image_changed)
    await store.revoke_lease(paused.lease)
    replacement = await Member(store, 3, data_id="new machine").join(govern=False)
    paused._registration_gone.set()
    with pytest.raises(NodeIdTaken):
        async with asyncio.timeout(10):
            await asyncio.shield(paused.failure)
    assert paused._image is not None
    await replacement.die()


async def test_a_broker_whose_process_is_gone_is_found_out_at_once(three: list[Member]) -> None:
    await three[2].die()
    three[0].membership.suspect(NodeId(3))
    async with asyncio.timeout(10):
        await three[0].image.wait_for(lambda: three[0].image.broker(NodeId(3)) is None)


async def test_a_broker_that_listens_is_not_suspected_for_long(three: list[Member]) -> None:
    three[0].membership.suspect(NodeId(3))
    (probe,) = three[0].membership._probes.values()
    await probe
    assert three[0].image.broker(NodeId(3)) is not None
    assert not three[0].membership._probes


async def test_an_incarnation_that_is_back_is_not_ended_by_late_suspicion(
    store: SqliteStore, three: list[Member]
) -> None:
    await three[2].die()
    three[0].image.unsubscribe(three[0].membership._image_changed)
    known = three[0].image.broker(NodeId(3))
    assert known is not None
    again = await Member(store, 3).join(govern=False)
    await three[0].membership._probe(known)
    assert await store.get(model.broker_key(NodeId(3))) is not None
    three[0].image.subscribe(three[0].membership._image_changed)
    await again.die()


async def test_nobody_leads_what_a_leaving_broker_alone_held(three: list[Member]) -> None:
    await three[0].admin.create_topic("alone", assignment={0: [1]})
    three[1].controller.start()
    await three[0].leave()
    state = await three[1].until("alone", NO_NODE)
    assert state.isr == (1,)
