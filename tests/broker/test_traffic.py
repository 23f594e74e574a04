"""Records and bytes in and out of topics."""

import errno
from pathlib import Path

import pytest

from posthouse.broker.appending import Produced
from posthouse.broker.topics import NewTopic
from posthouse.broker.traffic import Traffic, count_records
from posthouse.model.clock import SystemClock
from posthouse.model.errors import StorageFull
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from posthouse.storage.files.engine import FileStorage
from tests.broker.queues.rig import running
from tests.storage.faults import FaultyDisk


def batch(records: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(records):
        builder.add_raw(b"key", b"value", b"\x00", 0)
    return bytes(builder.build())


def test_records_of_batches_are_counted() -> None:
    assert count_records(b"") == 0
    assert count_records(batch(3) + batch(4)) == 7


def test_records_behind_many_batches_are_estimated() -> None:
    assert count_records(batch(2) * 64) == 128
    assert count_records(batch(2) * 1000) == 2000


def test_a_read_counts_for_its_topic() -> None:
    traffic = Traffic()
    traffic.read("orders", data := batch(3))
    assert (traffic["orders"].records_out, traffic["orders"].bytes_out) == (3, len(data))


def test_looking_makes_no_entry() -> None:
    traffic = Traffic()
    assert traffic.of("orders").records_in == 0
    assert not traffic


def test_a_deleted_topic_is_forgotten() -> None:
    traffic = Traffic()
    traffic["orders"].records_in += 1
    traffic.forget(["orders", "others"])
    assert traffic.of("orders").records_in == 0


async def test_a_batch_counts_once_however_often_it_is_sent() -> None:
    async with running() as rig:
        [topic] = await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        assert isinstance(topic, Topic)
        for sequence in (0, 0, 7):  # new, sent again, refused: it does not follow the first
            builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
            builder.add(None, b"value", timestamp=rig.broker.now_ms())
            data = memoryview(builder.build())
            await rig.broker.append([Produced(topic, 0, data)]).wait()
        traffic = rig.broker.traffic.of("orders")
        assert (traffic.records_in, traffic.bytes_in) == (1, len(data))
        await rig.broker.delete_topics([topic])
        assert "orders" not in rig.broker.traffic


def produced(topic: Topic, records: int) -> list[Produced]:
    return [Produced(topic, 0, memoryview(bytearray(batch(records))))]


async def test_a_batch_counts_when_it_is_durable(tmp_path: Path) -> None:
    disk, clock = FaultyDisk(), SystemClock()
    async with running(storage=FileStorage(tmp_path, clock=clock, disk=disk)) as rig:
        [topic] = await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        assert isinstance(topic, Topic)
        disk.fail("write", "*/journal/*", errno.ENOSPC, for_ever=True)
        with pytest.raises(StorageFull):
            await rig.broker.append(produced(topic, 3)).wait()
        disk.heal()
        assert rig.broker.traffic.of("orders").records_in == 0
        disk.sync_gate.clear()
        first, second = (rig.broker.append(produced(topic, count)) for count in (3, 4))
        assert rig.broker.traffic.of("orders").records_in == 0, "both are under way"
        disk.sync_gate.set()
        await first.wait()
        await second.wait()
        assert rig.broker.traffic.of("orders").records_in == 7


async def test_a_batch_of_a_topic_that_is_deleted_meanwhile_is_forgotten_with_it(tmp_path: Path) -> None:
    async with running(tmp_path) as rig:
        [topic] = await rig.broker.create_topics([NewTopic(name="orders", partitions=1)])
        assert isinstance(topic, Topic)
        under_way = rig.broker.append(produced(topic, 3))
        rig.broker.traffic.forget(["orders"])
        await under_way.wait()
        assert rig.broker.traffic.of("orders").records_in == 0
        assert "orders" not in rig.broker.traffic
