"""The rows that everybody reads: made once, as batches that are sent to the topic round and round.

Values are hexadecimal digits, so that zstd halves them, as it does with much of what people send. A batch has
no row twice, hence compression finds nothing else to save.
"""

import random
import time
from dataclasses import dataclass
from pathlib import Path

from bench import wire
from bench.processes import Served
from posthouse.client import Client
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder
from posthouse.records.compression import Codec

PARTITIONS = 4
KEY_BYTES = 8
LARGE_BATCH = 1_000_000
SMALL_BATCH = 16 * 1024
_TEMPLATE_BYTES = 2_000_000
"""Of each partition, before it begins again."""
_WINDOW_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    value_bytes: int
    rows: int
    """At least so many; it becomes a whole number of templates."""
    codec: Codec = Codec.NONE
    batch_bytes: int = LARGE_BATCH

    @property
    def name(self) -> str:
        size = "1 KiB" if self.value_bytes == 1024 else f"{self.value_bytes} B"
        compressed = "" if self.codec is Codec.NONE else f", {self.codec.name.lower()}"
        batches = "" if self.batch_bytes == LARGE_BATCH else f", batches of {self.batch_bytes // 1024} KiB"
        return f"{size} values{compressed}{batches}"

    @property
    def topic(self) -> str:
        return f"bench-{self.value_bytes}-{self.codec.name.lower()}-{self.batch_bytes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A topic with its rows, and the template that they were made from."""

    shape: Shape
    rows: int
    cycles: int
    template: Path

    def megabytes(self, *, with_keys: bool = True) -> float:
        """Keys and values, or values alone."""
        return self.rows * (self.shape.value_bytes + KEY_BYTES * with_keys) / 1e6


def fill(served: Served, shape: Shape, directory: Path) -> Filled:
    batches = [_batches(shape, random.Random(partition)) for partition in range(PARTITIONS)]
    template = directory / shape.topic
    template.mkdir(parents=True)
    for partition, each in enumerate(batches):
        template_file(template, partition).write_bytes(b"".join(each))
    with Client(served.address) as client:
        client.create_topic(shape.topic, partitions=PARTITIONS)
    topic = wire.topic_id(served.port, shape.topic, served.host)
    # Partitions take turns, as they do when a producer spreads its records.
    frames = [
        wire.produce_frame(topic, partition, batches[partition][number])
        for number in range(len(batches[0]))
        for partition in range(PARTITIONS)
    ]
    per_cycle = sum(parse_header(batch).count for each in batches for batch in each)
    cycles = -(-shape.rows // per_cycle)
    window = max(_WINDOW_BYTES // len(frames[0]), 8)
    wire.push(served.port, frames, cycles * sum(map(len, frames)), window, host=served.host)
    return Filled(shape=shape, rows=cycles * per_cycle, cycles=cycles, template=template)


def template_file(template: Path, partition: int) -> Path:
    return template / f"{partition}.batches"


def _batches(shape: Shape, source: random.Random) -> list[bytearray]:
    """The same number for every partition."""
    now = time.time_ns() // 1_000_000
    made = []
    for _ in range(max(1, _TEMPLATE_BYTES // shape.batch_bytes)):
        builder = BatchBuilder(shape.codec)
        while builder.size_estimate + shape.value_bytes + 2 * KEY_BYTES < shape.batch_bytes:
            key = b"%08x" % source.getrandbits(32)
            value = source.randbytes(shape.value_bytes // 2).hex().encode()
            builder.add(key, value, (), now)
        made.append(builder.build())
    return made
