"""Records that a subscription gives up are kept in the topic of its dead letters."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.groups.config import GroupConfig
from posthouse.broker.subscriptions.batches import raw_records
from posthouse.broker.subscriptions.dead_letters import HEADERS
from posthouse.broker.subscriptions.leases import LeasedRun, Verdict
from posthouse.broker.topics import NewTopic
from posthouse.model.errors import InvalidConfig, NotLeased, Unavailable
from posthouse.model.topics import Topic
from posthouse.records.batch import HEADER_SIZE
from posthouse.records.header_section import decode_section
from tests.broker.subscriptions.bench import ANN, BOB, NAME, Bench, damaged

TOPIC = "dlq.workers"


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.start()
    await bench.broker.group_configs.replace(
        NAME, {"errors.deadletterqueue.topic.name": TOPIC, "share.delivery.count.limit": "2"}
    )
    yield bench
    await bench.broker.stop()


async def dead(bench: Bench) -> list[tuple[bytes | None, bytes, list[bytes | None]]]:
    topic = bench.broker.topics.find(TOPIC)
    if topic is None:
        return []
    part = await bench.broker.read(topic, 0, 0, 2**20)
    records, _ = raw_records(part.data, 0, 2**62)
    return [
        (each.key, each.value, [dict(decode_section(each.headers))[name] for name in HEADERS])
        for each in records
    ]


def floor(bench: Bench) -> int:
    return bench.subscriptions.progress(NAME)[bench.partition].progress.floor


async def test_what_is_rejected(bench: Bench) -> None:
    await bench.produce(b"a", b"b", b"c", key=b"k")
    await bench.fetch(ANN)
    assert await bench.say(ANN, 0, 0, Verdict.ACCEPT) is None
    assert await bench.say(ANN, 1, 2, Verdict.REJECT) is None
    assert await dead(bench) == [
        (b"k", b"b", [b"workers", b"t", b"0", b"1"]),
        (b"k", b"c", [b"workers", b"t", b"0", b"2"]),
    ]
    assert floor(bench) == 3


async def test_what_is_delivered_too_often(bench: Bench) -> None:
    await bench.produce(b"a", b"b")
    for deliveries in (1, 2):
        assert await bench.fetch(ANN) == [LeasedRun(0, 1, deliveries)]
        assert await bench.say(ANN, 0, 1, Verdict.RELEASE) is None
    assert await dead(bench) == []
    assert await bench.fetch(BOB) == []
    assert [value for _, value, _ in await dead(bench)] == [b"a", b"b"]
    assert floor(bench) == 2


async def test_nothing_is_lost_while_they_cannot_be_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(b"a")
    create = bench.broker.create_topics
    await bench.fetch(ANN)

    async def refuse(*_: object, **__: object) -> list[Unavailable]:
        return [Unavailable("not now")]

    monkeypatch.setattr(bench.subscriptions._dead_letters, "_create_topics", refuse)
    assert isinstance(await bench.say(ANN, 0, 0, Verdict.REJECT), Unavailable)
    bench.subscriptions.release(NAME, ANN, count=True)
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 2)]
    bench.subscriptions.release(NAME, ANN, count=True)
    assert await bench.fetch(ANN) == [] and floor(bench) == 0
    monkeypatch.setattr(bench.subscriptions._dead_letters, "_create_topics", create)
    bench.clock.advance(11)
    assert await bench.fetch(ANN) == [] and floor(bench) == 1
    assert [value for _, value, _ in await dead(bench)] == [b"a"]


async def test_what_cannot_be_copied_is_not_tried_again_at_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    small = NewTopic(name=TOPIC, partitions=1, overrides={"max.message.bytes": "200"})
    [topic] = await bench.broker.create_topics([small])
    assert isinstance(topic, Topic)
    await bench.produce(b"x" * 1000)
    for _ in range(2):
        await bench.fetch(ANN)
        bench.subscriptions.release(NAME, ANN, count=True)
    assert await bench.fetch(ANN, seconds=0.3) == []
    assert caplog.text.count("cannot be made dead letters") == 1
    assert await bench.fetch(BOB) == [], "the others are not delivered it again, either"


async def test_a_member_that_leaves_while_dead_letters_are_copied_holds_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(b"dead")
    for _ in range(2):
        await bench.fetch(ANN)
        bench.subscriptions.release(NAME, ANN, count=True)
    await bench.produce(b"alive")
    copying = asyncio.Event()

    async def wait(*_: object) -> None:
        copying.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(bench.subscriptions._dead_letters, "copy", wait)
        fetching = asyncio.ensure_future(bench.fetch(ANN, lock_seconds=10_000))
        await copying.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
    assert await bench.fetch(BOB) == [LeasedRun(1, 1, 1)]
    assert [value for _, value, _ in await dead(bench)] == [b"dead"]


async def test_a_group_that_is_moved_while_dead_letters_are_copied_stays_there(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(b"a", b"b")
    await bench.fetch(ANN)
    copy = bench.subscriptions._dead_letters.copy

    async def move(*arguments: Any) -> None:
        await copy(*arguments)
        await bench.subscriptions.move(NAME, {bench.partition: 0})

    monkeypatch.setattr(bench.subscriptions._dead_letters, "copy", move)
    assert isinstance(await bench.say(ANN, 0, 1, Verdict.REJECT), NotLeased)
    monkeypatch.undo()
    assert await bench.fetch(BOB) == [LeasedRun(0, 1, 1)]


async def test_dead_letters_of_a_group_that_reads_them_are_not_copied_again(bench: Bench) -> None:
    await bench.produce(b"a")
    await bench.fetch(ANN)
    assert await bench.say(ANN, 0, 0, Verdict.REJECT) is None
    letters = bench.broker.topics.find(TOPIC)
    assert letters is not None
    bench.topic, bench.partition = letters, letters.partition(0)
    await bench.subscriptions.move(NAME, {bench.partition: 0})
    assert await bench.fetch(ANN) == [LeasedRun(0, 0, 1)]
    assert await bench.say(ANN, 0, 0, Verdict.REJECT) is None
    assert [value for _, value, _ in await dead(bench)] == [b"a"]
    assert await bench.fetch(ANN) == [] and floor(bench) == 1


async def test_only_those_that_are_held_are_copied(bench: Bench) -> None:
    await bench.produce(b"a")
    await bench.fetch(ANN)
    assert await bench.say(BOB, 0, 0, Verdict.REJECT) is not None
    assert await dead(bench) == []


async def test_their_topic_takes_every_record_of_the_source(bench: Bench) -> None:
    most = bench.topic.config.max_message_bytes
    await bench.produce(b"x" * (most - 200))
    await bench.fetch(ANN)
    assert await bench.say(ANN, 0, 0, Verdict.REJECT) is None
    topic = bench.broker.topics.find(TOPIC)
    assert isinstance(topic, Topic) and topic.config.max_message_bytes > most


@pytest.mark.parametrize("name", ["orders", "dlq.a b", "DLQ.x"])
def test_topics_that_are_none_of_dead_letters(name: str) -> None:
    with pytest.raises(InvalidConfig, match="begins with"):
        GroupConfig().with_overrides({"errors.deadletterqueue.topic.name": name})


async def test_a_lease_does_not_end_while_its_record_is_copied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record would be dead, and be delivered again."""
    await bench.produce(b"a")
    await bench.fetch(ANN, lock_seconds=1)
    copy = bench.subscriptions._dead_letters.copy

    async def slow(*arguments: Any) -> None:
        bench.clock.advance(2)
        await bench.subscriptions.tick()
        assert await bench.fetch(BOB) == []
        await copy(*arguments)

    monkeypatch.setattr(bench.subscriptions._dead_letters, "copy", slow)
    assert await bench.say(ANN, 0, 0, Verdict.REJECT) is None
    assert len(await dead(bench)) == 1 and floor(bench) == 1


async def test_a_longer_lease_stays_when_its_record_cannot_be_copied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.produce(b"a")
    await bench.fetch(ANN, lock_seconds=1000)

    async def fail(*_: object) -> None:
        raise Unavailable("on purpose")

    monkeypatch.setattr(bench.subscriptions._dead_letters, "copy", fail)
    assert isinstance(await bench.say(ANN, 0, 0, Verdict.REJECT), Unavailable)
    bench.clock.advance(900)
    assert await bench.fetch(BOB) == []


async def test_a_batch_that_cannot_be_decoded_is_one_dead_letter(bench: Bench) -> None:
    await bench.produce(b"good")
    batch = damaged(b"bad", b"worse")
    await bench.broker.append([Produced(bench.topic, 0, memoryview(batch))]).wait()
    await bench.produce(b"too")
    for _ in range(2):
        await bench.fetch(ANN)
        bench.subscriptions.release(NAME, ANN, count=True)
    assert await bench.fetch(BOB) == []
    values = [value for _, value, _ in await dead(bench)]
    assert (values[0], values[2:]) == (b"good", [b"too"])
    assert values[1].endswith(batch[HEADER_SIZE:]), "as it is stored"
    assert floor(bench) == 4
