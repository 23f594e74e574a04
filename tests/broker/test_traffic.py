"""Records and bytes in and out of topics."""

from posthouse.broker.appending import Produced
from posthouse.broker.topics import NewTopic
from posthouse.broker.traffic import Traffic, count_records
from posthouse.model.topics import Topic
from posthouse.records.builder import BatchBuilder
from tests.broker.queues.rig import running


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
        traffic = rig.broker.traffic["orders"]
        assert (traffic.records_in, traffic.bytes_in) == (1, len(data))
        await rig.broker.delete_topics([topic])
        assert "orders" not in rig.broker.traffic
