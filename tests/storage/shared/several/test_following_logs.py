"""What one broker writes is read at the others, in order, whoever wrote it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from posthouse.broker.long_poll import LongPoll
from posthouse.model.errors import OffsetOutOfRange, UnknownPartition
from posthouse.model.ids import PartitionId
from posthouse.storage.bounds import Bounds
from posthouse.storage.log_news import LogNews
from posthouse.storage.operations import Trim
from posthouse.storage.shared.commits.commit_group import Answer
from posthouse.storage.shared.engine import SharedStorage
from tests.storage.batches import append, make_topic, read_all, values_in
from tests.storage.compacted import Writer, marker, put
from tests.storage.shared.several.brokers import Brokers, read_committed, until


@pytest.fixture
async def partition(brokers: Brokers) -> PartitionId:
    topic = make_topic()
    await brokers.create(topic)
    return topic.partition(0)


async def test_all_read_what_all_write(brokers: Brokers, partition: PartitionId) -> None:
    expected = []
    for number in range(30):
        value = b"%d" % number
        [outcome] = await brokers[number * 7 % 3].commit([append(partition, value)])
        assert outcome.base_offset == number
        expected.append(value)
    for each in brokers:
        await each.refresh([partition])
        assert each.bounds(partition) == Bounds(0, 30, 30)
        assert list((await read_all(each, partition)).values()) == expected
        assert each.size(partition) == brokers.a.size(partition)


async def test_a_tail_with_a_gap_begins_again(brokers: Brokers, partition: PartitionId) -> None:
    a, b, _ = brokers
    for number in range(3):
        await b.commit([append(partition, b"b%d" % number)])
    await a.commit([append(partition, b"a")])
    await b.commit([append(partition, b"b3")])
    log = b._logs[partition]
    assert (log.tail_start, log.tail_end) == (4, 5)
    assert b.bounds(partition) == Bounds(0, 5, 5), "the outcome says that no transaction is open in the gap"
    assert list((await read_all(b, partition)).values()) == [b"b0", b"b1", b"b2", b"a", b"b3"]
    await b.refresh([partition])
    assert b.bounds(partition) == Bounds(0, 5, 5)


async def test_a_read_above_the_known_end_asks_first(brokers: Brokers, partition: PartitionId) -> None:
    a, b, c = brokers
    for number in range(3):
        await b.commit([append(partition, b"%d" % number)])
    assert c.bounds(partition).end == 0
    assert values_in((await c.read(partition, 1, 1000)).data) == {1: b"1", 2: b"2"}
    await b.commit([append(partition, b"3")])
    assert not len((await a.read(partition, 4, 1000)).data)
    with pytest.raises(OffsetOutOfRange, match="0 to 4"):
        await c.read(partition, 5, 1000)


async def test_readers_that_wait_hear_of_other_brokers(brokers: Brokers, partition: PartitionId) -> None:
    """Without hints: within a few looks into the database."""
    loop = asyncio.get_running_loop()
    took = []
    for reader, writer in ((brokers.b, brokers.a), (brokers.a, brokers.b), (brokers.b, brokers.c)):
        poll = LongPoll(reader, reader.subscribe)
        for number in range(3):
            await reader.refresh([partition])
            waiting = asyncio.create_task(poll.wait([partition], 1, 30, stable_only=number % 2 == 0))
            await asyncio.sleep(0)
            await writer.commit([append(partition, b"news")])
            began = loop.time()
            await waiting
            took.append(loop.time() - began)
            assert reader.bounds(partition).end == writer.bounds(partition).end
    assert sorted(took)[len(took) // 2] < 0.3, "the median: the machine may be busy"


async def test_bytes_of_other_brokers_are_counted(brokers: Brokers, partition: PartitionId) -> None:
    a, b, _ = brokers
    sizes: list[int] = []
    b.subscribe(lambda _, size: sizes.append(size), lambda: [partition])
    batches = [append(partition, bytes(1000)) for _ in range(3)]
    await a.commit(batches)
    await until(lambda: b.bounds(partition).end == 3)
    assert sum(sizes) == sum(each.header.length for each in batches)


async def test_a_log_that_was_read_at_its_end_is_followed(brokers: Brokers, partition: PartitionId) -> None:
    a, b, c = brokers
    await c.read(partition, 0, 100)
    await a.commit([append(partition, b"x")])
    await until(lambda: c.bounds(partition).end == 1)
    assert b.bounds(partition).end == 0, "nothing asked for it there"
    assert c._follower._followed()


async def test_hints_come_at_once_and_go_never_back(brokers: Brokers, partition: PartitionId) -> None:
    _, b, c = brokers
    told: list[LogNews] = []

    def tell(news: Sequence[LogNews]) -> None:
        told.extend(news)
        c.hinted(news)

    b.grown(tell)
    arrived: list[int] = []
    c.subscribe(lambda _, size: arrived.append(size))
    await asyncio.gather(*(b.commit([append(partition, b"%d" % number)]) for number in range(3)))
    await until(lambda: len(told) > 0)
    assert told[-1][1:] == (0, 3, 3)
    assert c.bounds(partition) == Bounds(0, 3, 3)
    assert sum(arrived) >= 3
    c.hinted([LogNews(told[0].log, 0, 1, 1)])
    assert c.bounds(partition) == Bounds(0, 3, 3)
    c.hinted([LogNews(10**6, 0, 1, 1)])  # of a topic that it does not know yet
    assert list((await read_all(c, partition)).values()) == [b"0", b"1", b"2"]


async def test_transactions_hold_back_readers_at_every_broker(
    brokers: Brokers, partition: PartitionId
) -> None:
    a, b, c = brokers
    await b.commit([append(partition, b"before")])
    await a.commit([put(partition, (None, b"undecided"), writer=Writer(1, 0))])
    await c.commit([append(partition, b"behind")])
    for each in brokers:
        await each.refresh([partition])
        assert each.bounds(partition) == Bounds(0, 3, 1)
        assert await read_committed(each, partition) == {0: b"before"}
    await a.commit([marker(partition, 1, commit=False)])
    await b.commit([append(partition, b"after")])
    for each in brokers:
        assert await read_committed(each, partition) == {0: b"before", 2: b"behind", 4: b"after"}
        assert each.bounds(partition) == Bounds(0, 5, 5)


@pytest.mark.parametrize("at", ["a", "b"])
async def test_an_outcome_that_comes_behind_news_of_it(
    brokers: Brokers, partition: PartitionId, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: SharedStorage = getattr(brokers, at)
    call = storage._committer._inline.call
    commit = call.commit
    seen: list[Bounds] = []

    async def answered_late(*arguments: Any, **named: Any) -> Answer:
        answer = await commit(*arguments, **named)
        await brokers.c.commit([append(partition, b"c")])
        await storage.refresh([partition])
        seen.append(storage.bounds(partition))
        return answer

    monkeypatch.setattr(call, "commit", answered_late)
    for number in range(3):
        await storage.commit([append(partition, b"%d" % number)])
        assert storage.bounds(partition) == seen[-1] == Bounds(0, 2 * number + 2, 2 * number + 2)
    expected = [b"0", b"c", b"1", b"c", b"2", b"c"]
    assert list((await read_all(storage, partition)).values()) == expected
    size = storage.size(partition)
    await storage.refresh([partition])
    assert storage.size(partition) == size == 6 * append(partition, b"c").header.length


async def test_a_transaction_whose_outcomes_come_behind_news_of_it(
    brokers: Brokers, partition: PartitionId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the outcome of its batch and that of its marker the database has said that it is decided."""
    a = brokers.a
    call = a._committer._inline.call
    commit = call.commit
    read: list[dict[int, bytes | None]] = []

    async def answered_late(*arguments: Any, **named: Any) -> Answer:
        answer = await commit(*arguments, **named)
        before = a.bounds(partition)
        read.append(await read_committed(a, partition))
        assert a.bounds(partition).stable >= before.stable
        return answer

    monkeypatch.setattr(call, "commit", answered_late)
    await a.commit([append(partition, b"0")])
    await a.commit([put(partition, (None, b"1"), writer=Writer(1, 0))])
    await a.commit([marker(partition, 1, commit=False)])
    await a.commit([put(partition, (None, b"3"), writer=Writer(1, 1)), marker(partition, 1, commit=True)])
    assert read == [{0: b"0"}, {0: b"0"}, {0: b"0"}, {0: b"0", 3: b"3"}]
    assert await read_committed(a, partition) == {0: b"0", 3: b"3"}
    assert a.bounds(partition) == Bounds(0, 5, 5)


async def test_trims_are_seen_at_every_broker(brokers: Brokers, partition: PartitionId) -> None:
    a, b, c = brokers
    for number in range(4):
        await b.commit([append(partition, b"%d" % number)])
    await a.commit([Trim(partition, 3)])
    for each in (b, c):
        await each.refresh([partition])
        assert each.bounds(partition) == Bounds(3, 4, 4)
        with pytest.raises(OffsetOutOfRange):
            await each.read(partition, 2, 100)
    await c.commit([append(partition, b"4")])
    await a.commit([Trim(partition, 5)])
    assert a.bounds(partition) == Bounds(5, 5, 5), "it has learned of the end by the trim"
    [outcome] = await b.commit([append(partition, b"5")])
    assert (outcome.base_offset, outcome.log_start) == (5, 5)
    assert b.bounds(partition).start == 5


async def test_other_brokers_are_told_of_a_trim(brokers: Brokers, partition: PartitionId) -> None:
    a, b, _ = brokers
    for number in range(4):
        await b.commit([append(partition, b"%d" % number)])
    a.grown(b.hinted)
    await a.commit([Trim(partition, 3)])
    await until(lambda: b.bounds(partition).start == 3)
    with pytest.raises(OffsetOutOfRange):
        await b.read(partition, 2, 100)


async def test_a_reader_of_memory_learns_of_a_trim_without_being_told(
    brokers: Brokers, partition: PartitionId
) -> None:
    a, b, _ = brokers
    for number in range(4):
        await b.commit([append(partition, b"%d" % number)])
    await a.commit([Trim(partition, 3)])
    assert values_in((await b.read(partition, 1, 1)).data) == {1: b"1"}
    await until(lambda: b.bounds(partition).start == 3)
    with pytest.raises(OffsetOutOfRange):
        await b.read(partition, 1, 1)


async def test_a_log_that_is_watched_is_followed(brokers: Brokers, partition: PartitionId) -> None:
    a, b, _ = brokers
    b.watch([partition, make_topic("deleted", id=None).partition(0)])
    await a.commit([append(partition, b"0")])
    await until(lambda: b.bounds(partition).end == 1)


async def test_producers_of_other_brokers_are_known_after_a_refresh(
    brokers: Brokers, partition: PartitionId
) -> None:
    a, b, c = brokers
    await b.commit([put(partition, (None, b"0"), writer=Writer(7, 0, transactional=False))])
    await a.commit([put(partition, (None, b"1"), writer=Writer(7, 1, transactional=False))])
    await c.commit([put(partition, (None, b"2"), writer=Writer(7, 2, transactional=False))])
    for each in brokers:
        await each.refresh([partition], with_producers=True)
        [producer] = each.producers(partition).values()
        assert [batch.base_offset for batch in producer.batches] == [0, 1, 2]


async def test_refreshing_a_partition_that_is_not_there(brokers: Brokers) -> None:
    with pytest.raises(UnknownPartition):
        await brokers.b.refresh([make_topic().partition(0)])


async def test_many_refreshes_are_few_queries(brokers: Brokers, partition: PartitionId) -> None:
    storage: SharedStorage = brokers.b
    before = storage._following.metrics.seconds.count
    await asyncio.gather(*(storage.refresh([partition]) for _ in range(100)))
    assert storage._following.metrics.seconds.count - before <= 5
