"""Partitions to be filled by tests of any storage."""

from posthouse.model.ids import PartitionId
from posthouse.storage.contract import Storage
from tests.storage.batches import make_topic


async def partition_in(storage: Storage, **overrides: str) -> PartitionId:
    topic = make_topic("orders", 1, id=None, **overrides)
    await storage.create_topics([topic])
    return topic.partition(0)
