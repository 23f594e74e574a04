"""Where our source spends its time: its reader in this process, step by step, without Spark around it."""

import cProfile
import io
import pstats
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
from rich.console import Console

from bench.spark.stage import Stage
from bench.spark.workload import PARTITIONS, SMALL_BATCH, Filled, Shape, fill
from posthouse.client import Client
from posthouse.client.reading import Fetched
from posthouse.records.batch import iter_headers, verify_crc
from posthouse.records.compression import Codec
from posthouse.spark.datasource import PosthouseDataSource
from posthouse.spark.schema import source_schema

_SHOWN = 25


def profile(stage: Stage, console: Console) -> None:
    small = Shape(value_bytes=100, rows=stage.scale.small_rows)
    shapes = (
        small,
        Shape(value_bytes=1024, rows=stage.scale.large_rows),
        replace(small, codec=Codec.ZSTD),
        replace(small, batch_bytes=SMALL_BATCH),
    )
    for shape in shapes:
        filled = fill(stage.served, shape, stage.directory)
        console.print(f"\n[bold]{shape.name}[/bold], {filled.rows:,} rows, one process", highlight=False)
        _steps(stage, filled, console)
        if shape is small:
            console.print(_functions(stage, filled), highlight=False, markup=False, soft_wrap=True)


def _steps(stage: Stage, filled: Filled, console: Console) -> None:
    """Each includes those before it."""
    address, topic = stage.served.address, filled.shape.topic
    steps: dict[str, Callable[[], None]] = {
        "fetch": lambda: _consume(_fetched(address, topic)),
        "fetch, checksums": lambda: _checksums(address, topic),
        "our source: and decoding to Arrow": lambda: _consume(_record_batches(address, topic)),
        "our source, and writing Arrow's stream": lambda: _stream(_record_batches(address, topic)),
    }
    _consume(_record_batches(address, topic))
    for name, step in steps.items():
        broker = stage.served.cpu_seconds()
        begun, cpu = time.perf_counter(), time.process_time()
        step()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        console.print(
            f"  {name:40} {seconds:6.2f} s   {filled.rows / seconds:12,.0f} rows/s   "
            f"own CPU {cpu:.2f} s   broker's CPU {stage.served.cpu_seconds() - broker:.2f} s",
            highlight=False,
            soft_wrap=True,
        )


def _functions(stage: Stage, filled: Filled) -> str:
    profiler = cProfile.Profile()
    profiler.runcall(_stream, _record_batches(stage.served.address, filled.shape.topic))
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(_SHOWN)
    return text.getvalue()


def _fetched(address: str, topic: str) -> Iterator[Fetched]:
    with Client(address) as client:
        info = client.topic(topic)
        for (_, partition), bounds in client.bounds([info]).items():
            yield from client.range_of(info, partition, bounds.start, bounds.end)


def _checksums(address: str, topic: str) -> None:
    for fetched in _fetched(address, topic):
        view = memoryview(fetched.data)
        for position, header in iter_headers(view):
            if not verify_crc(view, position, header.length):
                raise ValueError(f"the batch at offset {header.base_offset} is damaged")


def _record_batches(address: str, topic: str) -> Iterator[pa.RecordBatch]:
    source = PosthouseDataSource({"kafka.bootstrap.servers": address, "subscribe": topic})
    reader = source.reader(source_schema(include_headers=False))
    pieces = reader.partitions()
    assert len(pieces) == PARTITIONS
    for piece in pieces:
        for batch in reader.read(piece):
            assert isinstance(batch, pa.RecordBatch)
            yield batch


def _consume(items: Iterator[object]) -> None:
    for _ in items:
        pass


def _stream(batches: Iterator[pa.RecordBatch]) -> None:
    first = next(batches)
    with pa.OSFile("/dev/null", "wb") as sink, pa.ipc.new_stream(sink, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
