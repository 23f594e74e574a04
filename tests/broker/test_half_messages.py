"""Half messages: visible when they are committed, asked about until they are decided, never lost."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from posthouse.broker.half_messages import half_messages, names, recent_messages
from posthouse.broker.half_messages.checks import CHECK_SECONDS, MOST_CHECKS
from posthouse.broker.half_messages.decisions import BLOCK, KEPT
from posthouse.broker.half_messages.half_log import TOPIC_NAME
from posthouse.broker.half_messages.half_message import FullName, HalfMessage, decode
from posthouse.broker.half_messages.parking import PARKED_TOPIC
from posthouse.broker.half_messages.proofs import with_proof
from posthouse.broker.queues.envelope import Envelope
from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.topics import NewTopic
from posthouse.model.clock import ManualClock
from posthouse.model.errors import (
    AlreadyDecided,
    DataDamaged,
    InvalidTimestamp,
    MissingKeys,
    NameTaken,
    PosthouseError,
    RecordTooLarge,
    Unavailable,
    UnknownExchange,
    UnknownPartition,
    UnknownTopic,
    UnknownTransaction,
)
from posthouse.model.topics import Topic
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.raw import RawRecord
from posthouse.storage.operations import Operation
from posthouse.storage.spaces import Space
from tests.broker.queues.rig import PLAIN, Rig, running, settle_turns, values_of
from tests.broker.test_record_waves import batches

HEADERS = encode_section([(b"TAGS", b"red")])


async def new_topic(rig: Rig, name: str = "t", partitions: int = 3, **overrides: str) -> Topic:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    [topic] = await rig.broker.create_topics([NewTopic(name=name, partitions=partitions, overrides=settings)])
    assert isinstance(topic, Topic)
    return topic


async def prepare(
    rig: Rig,
    topic: Topic,
    value: bytes,
    *,
    partition: int = 0,
    key: bytes | None = None,
    group: str = "g",
    first_check_seconds: int = 6,
) -> int:
    """The id, when it is durable."""
    stored: asyncio.Future[int | PosthouseError] = asyncio.get_running_loop().create_future()
    rig.broker.half_messages.prepare(
        topic,
        partition,
        key,
        value,
        HEADERS,
        group=group,
        first_check_seconds=first_check_seconds,
        stored=stored.set_result,
    )
    id = await stored
    assert isinstance(id, int), id
    return id


async def prepare_routed(
    rig: Rig,
    value: bytes,
    *,
    name: str,
    exchange: str = "",
    key: bytes = b"q",
    envelope: Envelope = PLAIN,
    first_check_seconds: int = 6,
) -> int:
    """The same for an exchange."""
    stored: asyncio.Future[int | PosthouseError] = asyncio.get_running_loop().create_future()
    rig.broker.half_messages.prepare_routed(
        rig.namespace,
        exchange,
        key,
        value,
        envelope,
        group="g",
        name=name,
        first_check_seconds=first_check_seconds,
        stored=stored.set_result,
    )
    id = await stored
    assert isinstance(id, int), id
    return id


async def decide(rig: Rig, id: int, *, commit: bool, group: str = "g") -> None:
    await rig.broker.half_messages.decide(id, group=group, commit=commit)


async def values(rig: Rig, topic: Topic, partition: int = 0) -> list[bytes]:
    return [record.value for batch in await batches(rig, topic, partition) for record in batch]


def refusing(operations: Sequence[Operation]) -> "asyncio.Future[object]":
    """A commit that fails."""
    failed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    failed.set_exception(Unavailable("the disk is full"))
    return failed


class Producers:
    """Those that are asked, and what they were asked about."""

    def __init__(self, rig: Rig, *groups: str) -> None:
        self.groups = set(groups)
        self.asked: list[tuple[int, HalfMessage]] = []
        rig.broker.half_messages.ask_by(self.ask)

    def ask(self, id: int, message: HalfMessage) -> bool:
        if message.group not in self.groups:
            return False
        self.asked.append((id, message))
        return True

    @property
    def ids(self) -> list[int]:
        return [id for id, _ in self.asked]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_message_is_visible_when_it_is_committed(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        committed = await prepare(rig, topic, b"yes", partition=1, key=b"k")
        rolled_back = await prepare(rig, topic, b"no", partition=1)
        waiting = await prepare(rig, topic, b"perhaps", partition=1)
        assert await values(rig, topic, 1) == []
        await decide(rig, committed, commit=True)
        await decide(rig, rolled_back, commit=False)
        [[record]] = await batches(rig, topic, 1)
        assert (record.key, record.value, record.headers) == (b"k", b"yes", with_proof(HEADERS, committed))
        assert record.timestamp == clock.now_ms()
        assert len(rig.broker.half_messages) == 1
        await decide(rig, waiting, commit=True)
        assert await values(rig, topic, 1) == [b"yes", b"perhaps"]
        assert len(rig.broker.half_messages) == 0


async def test_decisions_of_one_turn_share_a_batch() -> None:
    async with running() as rig:
        topic = await new_topic(rig)
        ids = await asyncio.gather(*(prepare(rig, topic, b"%d" % number) for number in range(10)))
        assert ids == list(range(10))
        await asyncio.gather(*(decide(rig, id, commit=id % 3 != 0) for id in ids))
        assert [[record.value for record in batch] for batch in await batches(rig, topic)] == [
            [b"1", b"2", b"4", b"5", b"7", b"8"]
        ]


async def test_what_was_decided_stays_so() -> None:
    async with running() as rig:
        topic = await new_topic(rig)
        yes, no = await prepare(rig, topic, b"yes"), await prepare(rig, topic, b"no")
        first = rig.broker.half_messages.decide(yes, group="g", commit=True)
        with pytest.raises(AlreadyDecided, match="half message 0 was committed before"):
            rig.broker.half_messages.decide(yes, group="g", commit=False)  # while it is written
        assert rig.broker.half_messages.decide(yes, group="g", commit=True) is first
        await first
        await decide(rig, no, commit=False)
        await decide(rig, yes, commit=True)
        await decide(rig, no, commit=False)
        with pytest.raises(AlreadyDecided, match="half message 0 was committed before"):
            await decide(rig, yes, commit=False)
        with pytest.raises(AlreadyDecided, match="half message 1 was rolled back, or parked before"):
            await decide(rig, no, commit=True)
        assert await values(rig, topic) == [b"yes"]


async def test_whoever_decides_may_be_gone_when_it_is_durable() -> None:
    async with running() as rig:
        topic = await new_topic(rig)
        yes, other = await prepare(rig, topic, b"yes"), await prepare(rig, topic, b"other")
        rig.broker.half_messages.decide(yes, group="g", commit=True).cancel()
        await decide(rig, other, commit=True)
        assert await values(rig, topic) == [b"yes", b"other"]
        await decide(rig, yes, commit=True)


async def test_what_nobody_can_decide() -> None:
    async with running() as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"v")
        with pytest.raises(UnknownTransaction, match="is of another group than 'other'"):
            await decide(rig, id, commit=True, group="other")
        with pytest.raises(UnknownTransaction, match="nothing is known of half message 7"):
            await decide(rig, 7, commit=True)
        assert len(rig.broker.half_messages) == 1


async def test_what_cannot_be_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as rig:
        topic = await new_topic(rig, max_message_bytes="1000", cleanup_policy="compact")
        with pytest.raises(UnknownPartition):
            await prepare(rig, topic, b"v", partition=3, key=b"k")
        with pytest.raises(RecordTooLarge):
            await prepare(rig, topic, b"x" * 1000, key=b"k")
        with pytest.raises(MissingKeys):
            await prepare(rig, topic, b"v")
        await prepare(rig, topic, b"v", key=b"k")
        monkeypatch.setattr(half_messages, "MOST_UNDECIDED", 1)
        with pytest.raises(Unavailable, match="1 half messages are undecided"):
            await prepare(rig, topic, b"v", key=b"k")


@pytest.mark.parametrize("is_cached", [True, False])
async def test_a_restart(
    tmp_path: Path, clock: ManualClock, is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_cached:
        monkeypatch.setattr(recent_messages, "CACHED_BYTES", 0)
    async with running(tmp_path, clock) as rig:
        topic = await new_topic(rig)
        ids = [await prepare(rig, topic, b"%d" % number, partition=number % 3) for number in range(6)]
        await decide(rig, ids[0], commit=True)
        await decide(rig, ids[1], commit=False)
    async with running(tmp_path, clock) as rig:
        topic = rig.broker.topic("t")
        assert len(rig.broker.half_messages) == 4
        producers = Producers(rig, "g")
        clock.advance(6)
        await rig.broker.half_messages.check()
        assert producers.ids == ids[2:]
        assert [message.content.value for _, message in producers.asked] == [b"2", b"3", b"4", b"5"]
        await decide(rig, ids[0], commit=True)
        with pytest.raises(AlreadyDecided):
            await decide(rig, ids[1], commit=True)
        await decide(rig, ids[3], commit=True)
        assert await values(rig, topic, 0) == [b"0", b"3"]
        assert await values(rig, topic, 1) == []
        following = await prepare(rig, topic, b"6")
        assert following == 6


async def test_producers_are_asked_until_they_decide(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        producers = Producers(rig, "g")
        late = await prepare(rig, topic, b"late", first_check_seconds=60)
        id = await prepare(rig, topic, b"v", partition=2, key=b"k")
        decided = await prepare(rig, topic, b"decided")
        await decide(rig, decided, commit=True)
        clock.advance(5)
        await rig.broker.half_messages.check()
        assert producers.ids == []
        clock.advance(1)
        await rig.broker.half_messages.check()
        await rig.broker.half_messages.check()
        assert producers.ids == [id]
        [(_, message)] = producers.asked
        content = message.content
        assert (content.exchange, content.partition, content.key) == ("t", 2, b"k")
        assert (content.value, content.headers, message.group) == (b"v", HEADERS, "g")
        clock.advance(CHECK_SECONDS)
        await rig.broker.half_messages.check()
        assert producers.ids == [id, id]
        await decide(rig, id, commit=True)
        clock.advance(CHECK_SECONDS)
        await rig.broker.half_messages.check()
        assert producers.ids == [id, id, late]


async def test_checks_that_reach_nobody_do_not_count(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"v")
        producers = Producers(rig, "others")
        for _ in range(2 * MOST_CHECKS):
            clock.advance(CHECK_SECONDS)
            await rig.broker.half_messages.check()
        assert (producers.ids, len(rig.broker.half_messages)) == ([], 1)
        producers.groups.add("g")
        for _ in range(MOST_CHECKS):
            clock.advance(CHECK_SECONDS)
            await rig.broker.half_messages.check()
        assert producers.ids == [id] * MOST_CHECKS
        await decide(rig, id, commit=True)


async def test_what_is_never_decided_is_parked(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        producers = Producers(rig, "g")
        id = await prepare(rig, topic, b"v", partition=2, key=b"k")
        for _ in range(MOST_CHECKS):
            clock.advance(CHECK_SECONDS)
            await rig.broker.half_messages.check()
        assert len(producers.ids) == MOST_CHECKS
        clock.advance(CHECK_SECONDS)
        with caplog.at_level(logging.WARNING):
            await rig.broker.half_messages.check()
        await until_decided(rig)
        assert len(producers.ids) == MOST_CHECKS
        assert f"half message {id} of group g is undecided for 480 s: it is parked" in caplog.text
        assert await values(rig, topic, 2) == []
        [[record]] = await batches(rig, rig.broker.topic(PARKED_TOPIC))
        assert (record.key, record.value) == (b"k", b"v")
        assert decode_section(record.headers) == [
            (b"posthouse.half-topic", b"t"),
            (b"posthouse.half-partition", b"2"),
            (b"posthouse.half-group", b"g"),
            (b"TAGS", b"red"),
        ]
        assert rig.broker.half_messages.parked == 1
        with pytest.raises(AlreadyDecided, match="rolled back, or parked"):
            await decide(rig, id, commit=True)


async def until_decided(rig: Rig) -> None:
    async with asyncio.timeout(10):
        while len(rig.broker.half_messages):
            await asyncio.sleep(0)


async def test_without_producers_a_message_is_parked_after_three_days(clock: ManualClock) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        await prepare(rig, topic, b"v")
        clock.advance(72 * 3600 - 1)
        await rig.broker.half_messages.check()
        await settle_turns()
        assert len(rig.broker.half_messages) == 1
        clock.advance(CHECK_SECONDS)
        await rig.broker.half_messages.check()
        await until_decided(rig)
        assert await values(rig, rig.broker.topic(PARKED_TOPIC)) == [b"v"]


async def test_a_producer_that_comes_is_asked_at_once(clock: ManualClock) -> None:
    """About what was due before, and about nothing twice."""
    asked: list[int] = []
    is_there = False

    def ask(id: int, message: HalfMessage) -> bool:
        if is_there:
            asked.append(id)
        return is_there

    async with running(clock=clock) as rig:
        half_messages = rig.broker.half_messages
        half_messages.ask_by(ask)
        topic = await new_topic(rig)
        due, decided = await prepare(rig, topic, b"1"), await prepare(rig, topic, b"2")
        later = await prepare(rig, topic, b"3", first_check_seconds=60)
        clock.advance(6)
        await half_messages.check()
        await decide(rig, decided, commit=True)
        is_there = True
        half_messages.producer_came("another group")
        await half_messages.check()
        assert asked == []
        half_messages.producer_came("g")
        await half_messages.check()
        assert asked == [due]
        half_messages.producer_came("g")
        clock.advance(CHECK_SECONDS - 1)
        await half_messages.check()
        assert asked == [due], "the next check is 30 s after the one before"
        clock.advance(1)
        await half_messages.check()
        assert asked == [due, due]
        clock.advance(60)
        await half_messages.check()
        assert sorted(asked) == [due, due, due, later]
        assert half_messages._checks._unasked == {}


async def test_a_commit_that_fails_leaves_it_undecided(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        ids = [await prepare(rig, topic, b"%d" % number) for number in range(2)]
        commit = rig.storage.commit

        monkeypatch.setattr(rig.storage, "commit", refusing)
        with pytest.raises(Unavailable, match="the disk is full"):
            await decide(rig, ids[0], commit=True)
        monkeypatch.setattr(rig.storage, "commit", commit)
        await decide(rig, ids[1], commit=True)
        assert await values(rig, topic) == [b"1"]
        await decide(rig, ids[0], commit=False)
        assert await values(rig, topic) == [b"1"]


async def test_a_message_whose_topic_is_gone_does_not_hold_up_others() -> None:
    async with running() as rig:
        topic, gone = await new_topic(rig), await new_topic(rig, "gone")
        lost, good = await prepare(rig, gone, b"lost"), await prepare(rig, topic, b"good")
        await rig.broker.delete_topics([gone])
        results = await asyncio.gather(
            decide(rig, lost, commit=True), decide(rig, good, commit=True), return_exceptions=True
        )
        assert isinstance(results[0], UnknownTopic)
        assert results[1] is None
        assert await values(rig, topic) == [b"good"]
        await new_topic(rig, "gone")
        await decide(rig, lost, commit=True)
        assert await values(rig, rig.broker.topic("gone")) == [b"lost"]


async def test_queues_that_the_topic_feeds_get_what_is_committed() -> None:
    async with running() as rig:
        queue = await rig.queue("t")
        topic = await new_topic(rig)
        yes, no = await prepare(rig, topic, b"yes"), await prepare(rig, topic, b"no")
        await decide(rig, no, commit=False)
        await decide(rig, yes, commit=True)
        await settle_turns()
        assert await values_of(queue) == [b"yes"]


async def test_what_is_decided_is_freed(tmp_path: Path) -> None:
    count = (KEPT + 3) * BLOCK
    async with running(tmp_path) as rig:
        topic = await new_topic(rig, partitions=1)
        oldest = await prepare(rig, topic, b"oldest")
        for first in range(0, count, 4 * BLOCK):
            ids = await asyncio.gather(*(prepare(rig, topic, b"v") for _ in range(4 * BLOCK)))
            await asyncio.gather(*(decide(rig, id, commit=False) for id in ids))
            assert ids[0] == first + 1
        half_log = rig.broker.half_messages._log
        assert half_log.start == 0
        await decide(rig, oldest, commit=True)
        async with asyncio.timeout(10):
            while len(rig.broker.half_messages._decisions._blocks) > KEPT + 2:
                await asyncio.sleep(0)
        assert half_log.start == half_log.end
    async with running(tmp_path) as rig:
        assert len(rig.broker.half_messages._decisions._blocks) <= KEPT + 2
        with pytest.raises(UnknownTransaction):
            await decide(rig, oldest, commit=True)
        with pytest.raises(AlreadyDecided):
            await decide(rig, half_log.end - 1, commit=True)


async def test_messages_for_exchanges_are_routed_when_they_are_committed(
    tmp_path: Path, clock: ManualClock
) -> None:
    """With all that they have, also after a restart: delays and times to live begin with the commit."""
    envelope = replace(PLAIN, expires_in_ms=1000, priority=2)
    late = replace(PLAIN, headers=HEADERS, delay_ms=5000, headers_when_due=PLAIN.headers)
    async with running(tmp_path, clock) as rig:
        await rig.queue("q", max_priority=3)
        await rig.queue("delayed")
        await rig.exchange("x", delayed=True)
        await rig.bind("x", "delayed")
        await prepare_routed(rig, b"mortal", name="mortal", envelope=envelope)
        await prepare_routed(rig, b"late", name="late", exchange="x", envelope=late)
        assert rig.broker.half_messages.topics_of(1) == ("x",)
    clock.advance(60)
    async with running(tmp_path, clock) as rig:
        for id in range(2):
            assert await rig.broker.half_messages.decide(id, group="g", commit=True)
        [message] = await rig.found("q").peek(10)
        assert (message.value, message.lane) == (b"mortal", rig.found("q").lane_for(2))
        clock.advance(1)
        assert await rig.found("q").get() is None, "expired a second after it was committed"
        assert await rig.found("delayed").peek(10) == []
        clock.advance(4)
        async with asyncio.timeout(30):
            while not (found := await rig.found("delayed").peek(10)):
                await asyncio.sleep(0.01)
        assert [(each.value, each.headers) for each in found] == [(b"late", PLAIN.headers)]


async def test_a_message_that_can_never_be_published_is_not_prepared() -> None:
    async with running() as rig:
        await rig.exchange("x", delayed=True)
        with pytest.raises(InvalidTimestamp):
            await prepare_routed(rig, b"v", name="n", exchange="x", envelope=replace(PLAIN, delay_ms=2**60))
        with pytest.raises(UnknownExchange):
            await prepare_routed(rig, b"v", name="n", exchange="missing")
        with pytest.raises(UnknownTransaction, match="group 'g' has no half message 'n'"):
            rig.broker.half_messages.id_of(FullName("/", "g", "n"))


async def test_a_commit_tells_whether_a_queue_has_got_it() -> None:
    async with running() as rig:
        id = await prepare_routed(rig, b"v", name="n", key=b"nowhere")
        assert not await rig.broker.half_messages.decide(id, group="g", commit=True)


async def test_names_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        await rig.queue("q")
        for name in ("open", "decided"):
            await prepare_routed(rig, b"v", name=name)
        await decide(rig, 1, commit=True)
    async with running(tmp_path) as rig:
        half = rig.broker.half_messages
        assert [half.id_of(FullName("/", "g", name)) for name in ("open", "decided")] == [0, 1]
        assert await prepare_routed(rig, b"v", name="open") == 0
        with pytest.raises(NameTaken, match="group 'g' has another half message with the name 'open'"):
            await prepare_routed(rig, b"other", name="open")
        with pytest.raises(AlreadyDecided, match="'decided' was committed before"):
            await prepare_routed(rig, b"v", name="decided")
        await decide(rig, 1, commit=True)
        with pytest.raises(AlreadyDecided):
            await decide(rig, 1, commit=False)
        assert len(half) == 1


async def test_a_name_whose_message_is_being_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as rig:
        await rig.queue("q")
        half = rig.broker.half_messages
        first = asyncio.create_task(prepare_routed(rig, b"v", name="n"))
        await asyncio.sleep(0)
        with pytest.raises(UnknownTransaction, match="is not on disk yet"):
            half.id_of(FullName("/", "g", "n"))
        again = asyncio.create_task(prepare_routed(rig, b"v", name="n"))
        with pytest.raises(NameTaken):
            await prepare_routed(rig, b"other", name="n")
        assert set(await asyncio.gather(first, again)) == {0}
        commit = rig.storage.commit
        monkeypatch.setattr(rig.storage, "commit", refusing)
        first = asyncio.create_task(prepare_routed(rig, b"v", name="m"))
        await asyncio.sleep(0)
        again = asyncio.create_task(prepare_routed(rig, b"v", name="m"))
        results = await asyncio.gather(first, again, return_exceptions=True)
        assert all("the disk is full" in str(each) for each in results)
        monkeypatch.setattr(rig.storage, "commit", commit)
        assert await prepare_routed(rig, b"other", name="m") == 1, "the name is free again"


async def test_names_of_messages_that_were_decided_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "MOST_DECIDED", 2)
    async with running() as rig:
        await rig.queue("q")
        for number in range(3):
            await decide(rig, await prepare_routed(rig, b"v", name=f"n{number}"), commit=False)
        half = rig.broker.half_messages
        assert half.id_of(FullName("/", "g", "n1")) == 1
        with pytest.raises(UnknownTransaction):
            half.id_of(FullName("/", "g", "n0"))


async def test_a_decision_that_fails_does_not_end_the_checks(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(clock=clock) as rig:
        topic = await new_topic(rig)
        producers = Producers(rig, "g")
        id = await prepare(rig, topic, b"v")
        with monkeypatch.context() as patch:
            patch.setattr(rig.storage, "commit", refusing)
            deciding = rig.broker.half_messages.decide(id, group="g", commit=True)
            clock.advance(6)
            await rig.broker.half_messages.check()
            with pytest.raises(Unavailable):
                await deciding
        assert producers.ids == []
        clock.advance(CHECK_SECONDS)
        await rig.broker.half_messages.check()
        assert producers.ids == [id]


def test_messages_of_the_first_version() -> None:
    """As brokers before exchanges and names have written them."""
    stored = bytes.fromhex("0101000000020000003c0000000100000001000000026774") + b"k1" + b"value"
    message = decode(RawRecord(7, 1000, None, stored, HEADERS))
    assert message == HalfMessage(
        group="g",
        content=Scheduled(
            due_ms=1000, namespace="/", exchange="t", partition=2, key=b"k1", value=b"value", headers=HEADERS
        ),
        first_check_s=60,
    )
    keyless = decode(RawRecord(7, 1000, None, b"\x01\x00" + stored[2:18] + bytes(4) + b"gtvalue", HEADERS))
    assert not keyless.content.has_key and keyless.content.value == b"value"
    again = decode(RawRecord(7, 1000, None, message.encode(), b"\x00"))
    assert again == message and again.fingerprint == message.fingerprint


@pytest.mark.parametrize("cut", [0, 1, 20, 40, 60])
def test_damaged_messages(cut: int) -> None:
    message = HalfMessage(
        group="g",
        name="n",
        content=Scheduled(due_ms=0, namespace="/", exchange="x", key=b"key", value=b""),
        first_check_s=6,
        headers_when_due=HEADERS,
        delay_ms=7,
    )
    encoded = message.encode()
    assert decode(RawRecord(0, 0, None, encoded, b"\x00")) == message
    assert cut < len(encoded)
    with pytest.raises(DataDamaged):
        decode(RawRecord(0, 0, None, encoded[:cut], b"\x00"))
    with pytest.raises(DataDamaged, match="unknown version 9"):
        decode(RawRecord(0, 0, None, b"\x09" + encoded[1:], b"\x00"))


async def test_no_log_before_the_first_message() -> None:
    async with running() as rig:
        assert TOPIC_NAME not in {topic.name for topic in rig.broker.stored_topics()}
        topic = await new_topic(rig)
        await asyncio.gather(*(prepare(rig, topic, b"v") for _ in range(3)))
        assert TOPIC_NAME in {topic.name for topic in rig.broker.stored_topics()}
        assert TOPIC_NAME not in {topic.name for topic in rig.broker.topics}


async def test_a_log_that_cannot_be_created(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as rig:
        topic = await new_topic(rig)

        async def fail(topics: Sequence[Topic]) -> None:
            raise Unavailable("no space for topics")

        with monkeypatch.context() as patch:
            patch.setattr(rig.storage, "create_topics", fail)
            with pytest.raises(AssertionError, match="no space for topics"):
                await prepare(rig, topic, b"v")
        assert await prepare(rig, topic, b"v") == 0


def test_the_space_of_decisions_has_an_owner() -> None:
    """Storage that brokers share asks for one of every key."""
    from posthouse.storage.owners import owner_of

    assert owner_of(Space.HALF_MESSAGES, bytes(8)) == b""
