"""Searches by key in a topic of millions of records, with the index and without: `python -m bench.key_index`.

In one process, without a protocol: what is measured is the index and the reading of the log. Every record has
a key of its own, batches have a hundred records of about 120 bytes. Searched keys are drawn at random.
"""

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path

from posthouse.broker.key_index.files import DiskFiles
from posthouse.broker.key_index.key_index import KeyIndex
from posthouse.broker.key_index.key_search import KeySearch, SearchLimits
from posthouse.broker.key_index.names import NameQuery
from posthouse.broker.log_reader import LogReader
from posthouse.broker.long_poll import LongPoll
from posthouse.model.clock import SystemClock
from posthouse.model.ids import new_topic_id
from posthouse.model.topic_config import TopicConfig
from posthouse.model.topics import Topic
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.record_names import Name, NameKind
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.system.disk import OsDisk
from posthouse.storage.operations import Append

_BATCH = 100
_AT_ONCE = 64
_SEARCHES = 300
_SCANS = 3
_LIMITS = SearchLimits(records=10, read_bytes=1 << 40, seconds=3600)


async def measure(directory: Path, records: int) -> None:
    clock = SystemClock()
    storage = FileStorage(directory, clock=clock)
    await storage.open()
    overrides = {"index.keys": "true"}
    config = TopicConfig().with_overrides(overrides)
    topic = Topic(id=new_topic_id(), name="bench", partitions=1, overrides=overrides, config=config)
    await storage.create_topics([topic])
    await _write(storage, topic, records)
    index = KeyIndex(storage, DiskFiles(OsDisk(), str(directory)), clock)
    read = LogReader(storage, LongPoll(storage, storage.subscribe)).read
    search = KeySearch(index, read, lambda topic, number: storage.bounds(topic.partition(number)), clock)
    scanning = await _search(search, topic, records, _SCANS)
    began = time.perf_counter()
    await index.catch_up()
    took = time.perf_counter() - began
    indexed = await _search(search, topic, records, _SEARCHES)
    size = storage.size(topic.partition(0))
    print(f"| records | {records:,} ({size / 1e6:,.0f} MB) |")
    print(f"| to index them, without rests | {took:.1f} s, {records / took:,.0f} records/s |")
    print(f"| files of the index | {index.file_bytes / 1e6:,.0f} MB |")
    print(f"| a search without the index, median | {statistics.median(scanning) * 1000:,.0f} ms |")
    print(f"| a search with it, median | {statistics.median(indexed) * 1000:.1f} ms |")
    print(f"| a search with it, 99 % | {sorted(indexed)[int(len(indexed) * 0.99)] * 1000:.1f} ms |")
    await index.stop()
    search.close()
    await storage.close()


async def _write(storage: FileStorage, topic: Topic, records: int) -> None:
    commits = []
    for first in range(0, records, _BATCH):
        builder = BatchBuilder()
        for number in range(first, first + _BATCH):
            builder.add(b"order-%d" % number, b"v" * 100, (), 1_700_000_000_000 + number)
        batch = builder.build()
        commits.append(storage.commit([Append(topic.partition(0), memoryview(batch), parse_header(batch))]))
        if len(commits) == _AT_ONCE:
            await asyncio.gather(*commits)
            commits.clear()
    await asyncio.gather(*commits)


async def _search(search: KeySearch, topic: Topic, records: int, count: int) -> list[float]:
    drawn = random.Random(1)
    times = []
    for _ in range(count):
        number = drawn.randrange(records)
        began = time.perf_counter()
        found = await search.newest(topic, NameQuery(Name(NameKind.KEY, b"order-%d" % number)), _LIMITS)
        times.append(time.perf_counter() - began)
        assert [each.record.offset for each in found.records] == [number]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=3_000_000)
    with tempfile.TemporaryDirectory(prefix="posthouse-") as place:
        asyncio.run(measure(Path(place), parser.parse_args().records))


if __name__ == "__main__":
    main()
