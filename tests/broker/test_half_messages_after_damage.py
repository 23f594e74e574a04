"""The journal lost decisions, and segments kept the messages: none becomes visible again."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from posthouse.broker.half_messages.half_message import FullName
from posthouse.broker.half_messages.half_messages import HalfMessages
from posthouse.model.clock import ManualClock
from posthouse.model.errors import AlreadyDecided, DataDamaged, PosthouseError, Unavailable
from posthouse.model.ids import PartitionId
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.header_section import encode_section
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.journal.head import SLOT, encode_slot, read_head
from posthouse.storage.files.journal.journal import head_path
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.operations import Append, Operation, Put
from posthouse.storage.spaces import Space
from tests.broker.queues.rig import Rig, running
from tests.broker.test_half_messages import HEADERS, decide, new_topic, prepare, refusing, values
from tests.broker.test_lost_commits import zero_frames
from tests.storage.batches import append
from tests.storage.stores import crash_copy, file_storage


def opened(data: Path) -> FileStorage:
    return file_storage(data, clock=ManualClock())


def storage_of(rig: Rig) -> FileStorage:
    assert isinstance(rig.storage, FileStorage)
    return rig.storage


def frames(rig: Rig) -> int:
    return storage_of(rig)._checkpoints.frame


def undecided(rig: Rig) -> list[int]:
    return list(rig.broker.half_messages)


async def another(rig: Rig, topic: Topic) -> None:
    """A frame of records alone, which is damaged later."""
    await rig.storage.commit([append(topic.partition(1), b"acknowledged")])


def forged_record(
    topic: Topic, partition: int, value: bytes, headers: list[tuple[bytes, bytes | None]]
) -> Append:
    builder = BatchBuilder()
    builder.add_raw(None, value, encode_section(headers), 0)
    batch = memoryview(builder.build())
    return Append(topic.partition(partition), batch, parse_header(batch))


def forget_last_frame(data: Path) -> None:
    """The broker died when the segments had it, and the journal had nothing of it."""
    path = head_path(str(data / "journal"))
    head = read_head(OsDisk(), path)
    assert head is not None
    last = head.written - 1
    slot = encode_slot(2**40, head.salt, head.first, head.file_bytes, last, last)
    assert len(slot) == SLOT.size
    content = bytearray(Path(path).read_bytes())
    content[: len(slot)] = slot
    Path(path).write_bytes(content)


def leave(data: Path) -> None:
    """The frame was acknowledged."""


@pytest.mark.parametrize("died", [forget_last_frame, leave], ids=["under way", "acknowledged"])
async def test_a_commit_whose_frame_is_missing_counts(tmp_path: Path, died: Callable[[Path], None]) -> None:
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        first, second = await prepare(rig, topic, b"same"), await prepare(rig, topic, b"same")
        intact = frames(rig)
        await another(rig, topic)
        await decide(rig, second, commit=True)
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    died(data)
    zero_frames(data, intact)
    async with running(storage=opened(data)) as rig:
        assert undecided(rig) == [first]
        await decide(rig, second, commit=True)
        with pytest.raises(AlreadyDecided):
            await decide(rig, second, commit=False)
        assert await values(rig, topic) == [b"same"]
        await decide(rig, first, commit=True)
        assert await values(rig, topic) == [b"same", b"same"]
    async with running(storage=opened(data)) as rig:
        assert not undecided(rig)
        assert not rig.storage.take_state(Space.SALVAGED)


async def test_a_commit_between_frames_that_are_there_counts(tmp_path: Path) -> None:
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"paid")
        intact = frames(rig)
        await decide(rig, id, commit=True)
        behind = frames(rig)
        await rig.storage.commit([append(topic.partition(0), b"behind")])
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, intact, behind)
    async with running(storage=opened(data)) as rig:
        await decide(rig, id, commit=True)
        assert await values(rig, topic) == [b"paid", b"behind"]


async def test_the_name_of_such_a_message_stays_known(tmp_path: Path) -> None:
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        stored: asyncio.Future[int | PosthouseError] = asyncio.get_running_loop().create_future()
        rig.broker.half_messages.prepare(
            topic, 0, b"k", b"paid", HEADERS, group="g", name="order-7", stored=stored.set_result
        )
        await stored
        await another(rig, topic)
        intact = frames(rig)
        await decide(rig, rig.broker.half_messages.id_of(FullName("/", "g", "order-7")), commit=True)
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, intact)
    async with running(storage=opened(data)) as rig:
        assert not undecided(rig)
        id = rig.broker.half_messages.id_of(FullName("/", "g", "order-7"))
        await decide(rig, id, commit=True)
        assert await values(rig, topic) == [b"paid"]


async def test_a_start_that_fails_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start has made a checkpoint: the second one finds no damage."""
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"paid")
        intact = frames(rig)
        await decide(rig, id, commit=True)
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, intact)

    async def fail(self: HalfMessages) -> None:
        raise Unavailable("the disk is slow")

    with monkeypatch.context() as patches, pytest.raises(Unavailable):
        patches.setattr(HalfMessages, "load", fail)
        async with running(storage=(failed := opened(data))):
            pass
    await failed.close()
    async with running(storage=opened(data)) as rig:
        await decide(rig, id, commit=True)
        assert await values(rig, topic) == [b"paid"]


async def test_a_full_disk_is_no_reason_not_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"paid")
        intact = frames(rig)
        await decide(rig, id, commit=True)
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, intact)
    commit = FileStorage.commit

    def full(storage: FileStorage, operations: Sequence[Operation]) -> Any:
        is_about_it = any(isinstance(each, Put) and each.space == Space.SALVAGED for each in operations)
        return refusing(operations) if is_about_it else commit(storage, operations)

    with monkeypatch.context() as patches:
        patches.setattr(FileStorage, "commit", full)
        async with running(storage=opened(data)) as rig:
            assert not undecided(rig)
    async with running(storage=opened(data)) as rig:
        await decide(rig, id, commit=True)
        assert await values(rig, topic) == [b"paid"]


async def test_a_partition_that_cannot_be_read_is_searched_by_a_later_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"paid")
        intact = frames(rig)
        await decide(rig, id, commit=True)
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, intact)
    read = FileStorage.read

    async def unreadable(storage: FileStorage, partition: PartitionId, *where: Any) -> Any:
        if partition.topic == topic.id:
            raise DataDamaged("its segment is not in its place")
        return await read(storage, partition, *where)

    with monkeypatch.context() as patches:
        patches.setattr(FileStorage, "read", unreadable)
        async with running(storage=opened(data)) as rig:
            assert undecided(rig) == [id]
    async with running(storage=opened(data)) as rig:
        assert not undecided(rig)


async def test_the_catalog_may_be_lost_with_them(tmp_path: Path) -> None:
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"paid")
        intact = frames(rig)
        await decide(rig, id, commit=True)
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, intact)
    with closing(sqlite3.connect(data / "catalog.sqlite")) as catalog:
        catalog.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (data / "catalog.sqlite").write_bytes(b"no catalog" * 1000)
    async with running(storage=opened(data)) as rig:
        await decide(rig, id, commit=True)
        assert await values(rig, topic) == [b"paid"]


async def test_a_record_that_only_claims_to_be_a_half_message_proves_nothing(tmp_path: Path) -> None:
    """A client has forwarded a message with its headers, or made them up."""
    async with running(storage=opened(tmp_path / "data")) as rig:
        topic = await new_topic(rig)
        id = await prepare(rig, topic, b"paid")
        intact = frames(rig)
        headers: list[tuple[bytes, bytes | None]]
        headers = [(b"posthouse.half-message", b"%d" % id), (b"TAGS", b"red")]
        unreadable: list[tuple[bytes, bytes | None]] = [(b"posthouse.half-message", b"x" * 5000)]
        for forged in (headers, headers[:1], unreadable):
            await rig.storage.commit([forged_record(topic, 0, b"another", forged)])
        await rig.storage.commit([forged_record(topic, 1, b"paid", headers)])
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, intact)
    async with running(storage=opened(data)) as rig:
        assert undecided(rig) == [id]
        await decide(rig, id, commit=True)
        assert (await values(rig, topic))[-1] == b"paid"


async def test_a_message_for_queues_stays_undecided(tmp_path: Path) -> None:
    """Its record is there, but perhaps no queue refers to it: twice is better than never."""
    async with running(storage=opened(tmp_path / "data")) as rig:
        await rig.queue("q")
        await rig.publish(b"before")
        topic = rig.broker.topic("q")
        id = await prepare(rig, topic, b"paid")
        await storage_of(rig).checkpoint()
        intact = frames(rig)
        await decide(rig, id, commit=True)
        data = await crash_copy(storage_of(rig), tmp_path / "killed")
    zero_frames(data, 0)
    assert intact
    async with running(storage=opened(data)) as rig:
        assert undecided(rig) == [id]
        await decide(rig, id, commit=True)
        found = [message.value for message in await rig.found("q").peek(10)]
        assert found.count(b"paid") >= 1
