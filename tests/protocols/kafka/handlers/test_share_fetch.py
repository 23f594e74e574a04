"""ShareFetch: sessions, leases, what comes along, and waiting."""

import asyncio
import time

from posthouse.protocols.kafka.codec.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.share_wire import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    beat,
    joined,
    lag,
    set_config,
    set_defaults,
)
from tests.protocols.kafka.wire import Wire, batch


async def test_records_are_leased_and_accepted(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a", b"b", b"c"))
    answer = await member.ask_fetch(0)
    assert answer.acquisition_lock_timeout_ms == 30_000
    [got] = answer.responses[0].partitions
    assert [(run.first_offset, run.last_offset, run.delivery_count) for run in got.acquired_records] == [
        (0, 2, 1)
    ]
    assert await member.take() is None
    assert await member.acknowledge({0: [(0, 2, [ACCEPT])]}) == {0: 0}
    assert await lag(wire) == {0: (3, 0)}
    await wire.produce(member.topic, batch(b"d"))
    later = await member.take()
    assert later is not None
    assert (later.runs, later.values) == ([(3, 3, 1)], [b"d"])


async def test_no_record_goes_to_two_members(wire: Wire) -> None:
    first = await joined(wire)
    await beat(wire, "n")
    second = Member(wire, first.topic, "n")
    for value in (b"a", b"b", b"c", b"d"):
        await wire.produce(first.topic, batch(value))
    one = await first.take(max_records=1)
    two = await second.take(max_records=2)
    three = await first.take()
    assert one and two and three
    assert (one.values, two.values, three.values) == ([b"a"], [b"b", b"c"], [b"d"])
    assert await first.acknowledge({0: [(1, 1, [ACCEPT])]}) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert await second.acknowledge({0: [(1, 2, [ACCEPT])]}) == {0: 0}
    assert await second.acknowledge({0: [(1, 2, [ACCEPT])]}) == {0: ErrorCode.INVALID_RECORD_STATE}


async def test_whole_batches_unless_the_limit_is_strict(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(*[b"v"] * 10))
    await wire.produce(member.topic, batch(*[b"w"] * 10))
    whole = await member.take(max_records=3, batch_size=4)
    assert whole is not None
    assert whole.runs == [(0, 3, 1), (4, 7, 1), (8, 9, 1)]
    strict = await member.take(max_records=3, share_acquire_mode=1)
    assert strict is not None
    assert (strict.runs, strict.values) == ([(10, 12, 1)], [b"w"] * 3)
    rest = await member.take(max_records=100, share_acquire_mode=1)
    assert rest is not None
    assert (rest.runs, rest.values) == ([(13, 19, 1)], [b"w"] * 7)


async def test_bytes_are_limited_but_one_batch_always_comes(wire: Wire) -> None:
    member = await joined(wire)
    for value in (b"a" * 1000, b"b" * 1000, b"c" * 1000):
        await wire.produce(member.topic, batch(value))
    one = await member.take(max_bytes=1)
    two = await member.take(max_bytes=2200)
    assert one and two
    assert (one.runs, two.runs) == ([(0, 0, 1)], [(1, 2, 1)])


async def test_verdicts(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a", b"b", b"c", b"d", b"e"))
    await member.take()
    said = [(0, 3, [ACCEPT, RELEASE, REJECT, GAP])]
    again = (await member.fetch(said={0: said}))[0]
    assert again.data.acknowledge_error_code == 0
    assert (again.runs, again.values) == ([(1, 1, 2)], [b"b"])
    assert await lag(wire) == {0: (1, 2)}
    assert await member.acknowledge({0: [(1, 1, [ACCEPT]), (4, 4, [ACCEPT])]}) == {0: 0}
    assert await lag(wire) == {0: (5, 0)}


async def test_a_record_is_delivered_five_times(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"bad", b"good"))
    for delivery in range(1, 6):
        got = await member.take()
        assert got is not None
        assert got.runs[0] == (0, 0 if delivery > 1 else 1, delivery)
        assert await member.acknowledge({0: [(0, 0, [RELEASE])]}) == {0: 0}
    assert await member.take() is None
    assert await lag(wire) == {0: (1, 1)}


async def test_the_delivery_limit_is_a_setting_of_the_group(wire: Wire) -> None:
    member = await joined(wire, delivery_count_limit="2")
    await wire.produce(member.topic, batch(b"bad"))
    for delivery in (1, 2):
        got = await member.take()
        assert got is not None
        assert got.runs == [(0, 0, delivery)]
        await member.acknowledge({0: [(0, 0, [RELEASE])]})
    assert await member.take() is None


async def test_leases_expire_and_can_be_renewed(broker: AsyncBroker, wire: Wire) -> None:
    set_defaults(broker, share_record_lock_duration_ms=3000)
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a", b"b"))
    await member.take()
    await beat(wire, "n")
    other = Member(wire, member.topic, "n")
    await asyncio.sleep(1.5)
    renewed = await member.ask_acknowledge({0: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert (renewed.error_code, renewed.acquisition_lock_timeout_ms) == (0, 3000)
    assert renewed.responses[0].partitions[0].error_code == 0
    started = time.monotonic()
    got = await other.take(max_wait_ms=30_000)
    assert got is not None
    assert (got.runs, got.values) == ([(1, 1, 2)], [b"b"])
    assert time.monotonic() - started < 20, "it did not wait to the end"
    assert await member.acknowledge({0: [(0, 0, [ACCEPT])]}) == {0: 0}
    assert await member.acknowledge({0: [(1, 1, [ACCEPT])]}) == {0: ErrorCode.INVALID_RECORD_STATE}
    assert await other.acknowledge({0: [(1, 1, [ACCEPT])]}) == {0: 0}


async def test_renewing_needs_to_be_announced_and_fetches_nothing(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    await wire.produce(member.topic, batch(b"b"))
    assert await member.acknowledge({0: [(0, 0, [RENEW])]}) == {0: ErrorCode.INVALID_REQUEST}
    refused = await member.ask_fetch(said={0: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    nothing = {"min_bytes": 0, "max_bytes": 0, "max_records": 0}
    renewed = (await member.fetch(said={0: [(0, 0, [RENEW])]}, is_renew_ack=True, **nothing))[0]
    assert (renewed.data.acknowledge_error_code, renewed.runs) == (0, [])


async def test_senseless_acknowledgements(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a", b"b", b"c"))
    await member.take()
    senseless: list[list[tuple[int, int, list[int]]]] = [
        [(2, 1, [ACCEPT])],
        [(0, 1, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])],
        [(0, 1, [ACCEPT]), (1, 2, [ACCEPT])],
    ]
    for said in senseless:
        assert await member.acknowledge({0: said}) == {0: ErrorCode.INVALID_REQUEST}, said
    for said in ([(0, 3, [ACCEPT])], [(-2, 0, [ACCEPT])], [(7, 2**62, [RELEASE])]):
        code = (await member.acknowledge({0: said}))[0]
        assert code in (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST), said
    assert await member.acknowledge({1: [(0, 0, [ACCEPT])]}) == {1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await member.acknowledge({0: [(0, 2, [ACCEPT])]}) == {0: 0}


async def test_sessions(wire: Wire) -> None:
    member = await joined(wire)
    assert (await member.ask_fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert (await member.ask_fetch(epoch=-1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    early = await member.ask_fetch(said={0: [(0, 0, [ACCEPT])]})
    assert early.error_code == ErrorCode.INVALID_REQUEST
    unopened = await member.ask_acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=0)
    assert unopened.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    missing = await member.ask_acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=3)
    assert missing.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    await wire.produce(member.topic, batch(b"a"))
    assert await member.take() is not None
    assert (await member.ask_fetch(epoch=2)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    wrong = await member.ask_acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=7)
    assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert await member.acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=1) == {0: 0}
    assert await member.take(epoch=2) is None
    assert (await member.ask_fetch(epoch=-1)).error_code == 0
    assert (await member.ask_fetch(epoch=3)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_partitions_come_and_go(wire: Wire) -> None:
    member = await joined(wire, partitions=3)
    for index in range(3):
        await wire.produce(member.topic, batch(b"first"), partition=index)
    assert set(await member.fetch(0, 1)) == {0, 1}
    assert set(await member.fetch(2)) == {2}
    for index in range(3):
        await wire.produce(member.topic, batch(b"second"), partition=index)
    assert set(await member.fetch(forget=[1])) == {0, 2}
    assert set(await member.fetch(1)) == {1}


async def test_the_first_partition_does_not_starve_the_others(wire: Wire) -> None:
    member = await joined(wire, partitions=2)
    for _ in range(4):
        for index in (0, 1):
            await wire.produce(member.topic, batch(b"v"), partition=index)
    seen: set[int] = set(await member.fetch(0, 1, max_records=1))
    seen |= set(await member.fetch(max_records=1))
    assert seen == {0, 1}


async def test_what_does_not_exist(wire: Wire) -> None:
    member = await joined(wire)
    nobody = Member(wire, member.topic, group="nobody")
    assert (await nobody.ask_fetch(0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await Member(wire, member.topic, group="").ask_fetch(0)).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await Member(wire, member.topic, name="").ask_fetch(0)).error_code == ErrorCode.INVALID_REQUEST
    got = await member.fetch(0, 5, max_wait_ms=5000)
    assert got[5].data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    lost = Member(wire, b"?" * 16, "x")
    assert (await lost.fetch(0))[0].data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_a_fetch_waits_for_records(wire: Wire, broker: AsyncBroker) -> None:
    member = await joined(wire)
    assert await member.take() is None
    started = time.monotonic()
    assert await member.take(max_wait_ms=200) is None
    assert 0.15 < time.monotonic() - started < 10
    waiting = asyncio.ensure_future(member.take(max_wait_ms=10_000))
    async with Wire(broker.kafka) as producer:
        await asyncio.sleep(0.05)
        await producer.produce(member.topic, batch(b"a"))
    got = await waiting
    assert got is not None
    assert got.values == [b"a"]


async def test_nothing_is_held_while_it_waits_for_more_bytes(wire: Wire, broker: AsyncBroker) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    await member.fetch(0, max_records=0)
    waiting = asyncio.ensure_future(member.take(max_wait_ms=10_000, min_bytes=5000))
    async with Wire(broker.kafka) as second:
        await asyncio.sleep(0.05)
        await beat(second, "n")
        other = Member(second, member.topic, "n")
        got = await other.take()
        assert got is not None
        assert got.values == [b"a"]
        await second.produce(member.topic, batch(b"b" * 6000))
    late = await waiting
    assert late is not None
    assert late.values == [b"b" * 6000]


async def test_a_release_wakes_who_waits(wire: Wire, broker: AsyncBroker) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    async with Wire(broker.kafka) as second:
        await beat(second, "n")
        other = Member(second, member.topic, "n")
        waiting = asyncio.ensure_future(other.take(max_wait_ms=10_000))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        await member.acknowledge({0: [(0, 0, [RELEASE])]})
        got = await waiting
    assert got is not None
    assert got.runs == [(0, 0, 2)]
    assert time.monotonic() - started < 8, "it did not wait to the end"


async def test_the_number_of_leases_is_limited(broker: AsyncBroker, wire: Wire) -> None:
    set_defaults(broker, share_partition_max_record_locks=3)
    member = await joined(wire)
    await wire.produce(member.topic, batch(*[b"v"] * 5))
    first = await member.take()
    assert first is not None
    assert first.runs == [(0, 2, 1)]
    assert await member.take() is None
    then = (await member.fetch(said={0: [(1, 1, [ACCEPT])]}))[0]
    assert then.runs == [(3, 3, 1)]


async def test_who_ends_its_session_gives_everything_back(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a", b"b"))
    await member.take()
    await beat(wire, "n")
    other = Member(wire, member.topic, "n")
    assert await other.take() is None
    closed = await member.ask_acknowledge({0: [(0, 0, [ACCEPT])]}, epoch=-1)
    assert (closed.error_code, closed.responses[0].partitions[0].error_code) == (0, 0)
    got = await other.take()
    assert got is not None
    assert got.runs == [(1, 1, 1)]  # it was not worked on, so that it does not count


async def test_who_leaves_the_group_gives_everything_back(wire: Wire) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    await member.take()
    await wire.produce(member.topic, batch(b"b"))
    await member.take()
    await beat(wire, "n")
    assert (await beat(wire, "m", -1)).error_code == 0
    await wire.produce(member.topic, batch(b"c"))
    assert await member.take(max_wait_ms=5000) is None  # it gets no more, but may say what it did
    assert await member.acknowledge({0: [(1, 1, [ACCEPT])]}) == {0: 0}
    other = Member(wire, member.topic, "n")
    first = await other.take()
    then = await other.take(max_wait_ms=5000)
    assert first and then
    assert (first.runs, then.runs) == ([(2, 2, 1)], [(0, 0, 1)])
    assert (await member.ask_fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


async def test_a_lost_connection_gives_everything_back(wire: Wire, broker: AsyncBroker) -> None:
    member = await joined(wire)
    await wire.produce(member.topic, batch(b"a"))
    async with Wire(broker.kafka) as crashing:
        await beat(crashing, "n")
        assert await Member(crashing, member.topic, "n").take() is not None
    got = await member.take(max_wait_ms=5000)
    assert got is not None
    assert got.runs == [(0, 0, 2)]  # it may be the record that crashed it


async def test_a_group_begins_at_the_end_where_not_told_otherwise(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    await wire.produce(topic, batch(b"before"))
    await beat(wire, "m")
    await wire.produce(topic, batch(b"after"))
    got = await Member(wire, topic).take()
    assert got is not None
    assert (got.runs, got.values) == ([(1, 1, 1)], [b"after"])


async def test_a_group_can_begin_some_time_ago(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    now = int(time.time() * 1000)
    await wire.produce(topic, batch(b"old", timestamp=now - 7_200_000))
    await wire.produce(topic, batch(b"young", timestamp=now - 60_000))
    await set_config(wire, auto_offset_reset="by_duration:PT1H")
    await beat(wire, "m")
    got = await Member(wire, topic).take()
    assert got is not None
    assert got.values == [b"young"]


async def test_the_log_may_start_later(wire: Wire) -> None:
    member = await joined(wire)
    for value in (b"a", b"b", b"c"):
        await wire.produce(member.topic, batch(value))
    first = await member.take(max_records=1)
    assert first is not None
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    request = DeleteRecordsRequest(
        timeout_ms=1000, topics=[DeleteRecordsTopic(name="t", partitions=[partition])]
    )
    await wire.ask(request, DeleteRecordsResponse)
    assert await member.acknowledge({0: [(0, 0, [RELEASE])]}) == {0: 0}
    got = await member.take()
    assert got is not None
    assert (got.runs, got.values) == ([(2, 2, 1)], [b"c"])
    assert await lag(wire) == {0: (2, 1)}
