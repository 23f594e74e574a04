"""The records of a topic, as a consumer gets them."""

from posthouse.broker.broker import Broker
from posthouse.records.record import Record, iter_records


async def stored(broker: Broker, topic: str = "orders") -> list[Record]:
    """In the order of partitions and offsets."""
    found: list[Record] = []
    known = broker.topic(topic)
    for partition in range(known.partitions):
        offset, end = 0, broker.bounds(known, partition).end
        while offset < end:
            read = await broker.read(known, partition, offset, 1_000_000)
            records = [each for each in iter_records(read.data) if each.offset >= offset]
            found += records
            offset = records[-1].offset + 1
    return found
