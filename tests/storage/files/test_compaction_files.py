"""Compaction on files: the swap, and what goes on beside it."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from posthouse.model.clock import ManualClock
from posthouse.records.batch import iter_headers
from posthouse.records.record import decode_batches
from posthouse.storage.bounds import TimestampedOffset
from posthouse.storage.files.engine import FileStorage
from posthouse.storage.files.segments.segment import HEADER_BYTES
from posthouse.storage.operations import Trim
from tests.storage.compacted import Writer, compacted_topic, put, slices
from tests.storage.compacted_store import (
    PARTITION,
    TOPIC,
    check_compacted,
    check_opens,
    contents,
    filled,
    segment_files,
)
from tests.storage.stores import file_storage


async def test_a_time_is_found_though_its_segment_was_replaced(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data")
    find_in = storage._reads._find_in

    async def find_late(*args: Any) -> TimestampedOffset | None:
        storage._reads._find_in = find_in  # type: ignore[method-assign]
        await storage.compact()
        return await find_in(*args)

    storage._reads._find_in = find_late  # type: ignore[assignment, method-assign]
    found = await storage.find_timestamp(PARTITION, 1000)
    assert found is not None and found.offset == min(await contents(storage))
    await storage.close()


async def test_small_neighbours_become_one(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data", count=60)
    many = len(storage._logs[PARTITION].segments)
    size = storage.size(PARTITION)
    for _ in range(3):
        await storage.compact()
        await storage.commit([put(PARTITION, (b"more", b"." * 300))])
    few = storage._logs[PARTITION].segments
    assert len(few) < many / 2
    assert storage.size(PARTITION) < size / 2
    for segment in few[:-1]:
        data = Path(segment.path).read_bytes()[HEADER_BYTES:]
        fillers = [header.count == 0 for _, header in iter_headers(data)]
        assert not any(a and b for a, b in pairwise(fillers)), "one for each gap"
    await storage.close()


async def test_what_needs_no_change_is_not_written_again(tmp_path: Path) -> None:
    storage = file_storage(tmp_path / "data")
    await storage.open()
    topic = compacted_topic(segment_bytes="100")
    await storage.create_topics([topic])
    for number in range(10):
        await storage.commit([put(topic.partition(0), (b"%d" % number, b"." * 60))])
    await storage.compact()
    assert not any("-1." in name for name in segment_files(tmp_path / "data"))
    assert all(segment.clean_to > 0 for segment in storage._logs[topic.partition(0)].segments[:-1])
    await storage.close()


async def test_readers_of_the_old_file_go_on(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data")
    await storage.close()
    storage = file_storage(tmp_path / "data")
    await storage.open()

    async def read_on_and_on() -> int:
        rounds = 0
        while not done.is_set():
            found = await contents(storage)
            assert {n: found.get(n) for n in range(33, 40)} == {n: b"%d" % n for n in range(33, 40)}
            assert await storage.find_timestamp(PARTITION, 1000) is not None
            rounds += 1
        return rounds

    done = asyncio.Event()
    readers = [asyncio.create_task(read_on_and_on()) for _ in range(3)]
    for number in range(5):
        await storage.compact()
        await storage.commit([put(PARTITION, (b"again", b"%d" % number)) for _ in range(1)])
        await asyncio.sleep(0.01)
    done.set()
    assert all(await asyncio.gather(*readers))
    await storage.close()


async def test_a_damaged_segment_stays_as_it_is(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data")
    await storage.checkpoint()
    victim = storage._logs[PARTITION].segments[1]
    await storage.close()
    data = bytearray(Path(victim.path).read_bytes())
    data[80] ^= 0xFF
    Path(victim.path).write_bytes(data)
    storage = file_storage(tmp_path / "data")
    await storage.open()
    await storage.compact()
    assert Path(victim.path).read_bytes() == data
    served = await slices(storage, PARTITION, victim.base_offset + 2)
    records = [each.value for part in served for each in decode_batches(part)]
    assert records[-7:] == [b"%d" % n for n in range(33, 40)]
    await storage.commit([put(PARTITION, (b"x", b"." * 300))])
    await storage.compact()
    assert Path(victim.path).read_bytes() == data
    await storage.close()


async def test_a_topic_is_deleted_while_it_is_compacted(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data", count=400)
    running = asyncio.create_task(storage.compact())
    while storage._compactor._current is None:
        await asyncio.sleep(0)
    await storage.delete_topics([TOPIC.id])
    await running
    await storage.close()
    assert not list((tmp_path / "data" / "topics").iterdir())


async def test_closed_while_it_is_compacted(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data")
    running = asyncio.create_task(storage.compact())
    while storage._compactor._current is None:
        await asyncio.sleep(0)
    await storage.close()
    await running
    await check_opens(tmp_path / "data")


async def test_all_of_it_is_trimmed_while_it_is_swapped(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data")
    replace_rows = storage._catalog.replace_segments
    began, go_on = threading.Event(), threading.Event()

    def slow(*args: Any) -> None:
        replace_rows(*args)
        began.set()
        go_on.wait(10)

    storage._catalog.replace_segments = slow  # type: ignore[assignment, method-assign]
    running = asyncio.create_task(storage.compact())
    while not began.is_set():
        await asyncio.sleep(0.001)
    trimmed = asyncio.ensure_future(storage.commit([Trim(PARTITION, 39)]))
    await trimmed
    go_on.set()
    await running
    assert await contents(storage) == {39: b"39"}
    await storage.close()
    storage = file_storage(tmp_path / "data")
    await storage.open()
    assert await contents(storage) == {39: b"39"}
    assert len([name for name in segment_files(tmp_path / "data") if name.endswith(".log")]) == 1
    await storage.close()


@pytest.mark.parametrize("step", [1, 2])
async def test_a_part_of_it_is_trimmed_while_it_is_compacted(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a group stays dirty, and nothing behind it counts as clean before it."""
    storage = await filled(tmp_path / "data")
    await storage.update_topic(replace(TOPIC, config=TOPIC.config.with_overrides({"segment.bytes": "1000"})))
    second = storage._logs[PARTITION].segments[1].base_offset
    in_worker = storage._compactor._in_worker
    steps = 0

    async def trim_after(work: Callable[[], Any]) -> Any:
        nonlocal steps
        done = await in_worker(work)
        steps += 1
        if steps == step:
            await storage.commit([Trim(PARTITION, second)])
        return done

    monkeypatch.setattr(storage._compactor, "_in_worker", trim_after)
    await storage.compact()
    await check_compacted(storage)
    await storage.close()


async def test_a_producer_is_known_after_compaction_and_restart(tmp_path: Path) -> None:
    storage = await filled(tmp_path / "data", count=0)
    for number in range(20):
        batch = put(PARTITION, (b"k", b"%d" % number), writer=Writer(9, number, transactional=False))
        await storage.commit([batch])
    await storage.compact()
    for lose in (False, True):
        await storage.close()
        if lose:
            (tmp_path / "data" / "catalog.sqlite").unlink()
        storage = file_storage(tmp_path / "data")
        await storage.open()
        again = put(PARTITION, (b"k", b"19"), writer=Writer(9, 19, transactional=False))
        assert (await storage.commit([again]))[0].base_offset == 19
    following = put(PARTITION, (b"k", b"20"), writer=Writer(9, 20, transactional=False))
    assert (await storage.commit([following]))[0].base_offset == 20
    await storage.close()


async def test_the_event_loop_goes_on(tmp_path: Path) -> None:
    """Passes over megabytes of small records hold nobody up for long."""
    topic = compacted_topic(segment_bytes="4000000", index_interval_bytes="4096")
    storage = FileStorage(tmp_path / "data", clock=ManualClock(), checkpoint_seconds=3600)
    await storage.open()
    await storage.create_topics([topic])
    for first in range(0, 60_000, 500):
        pairs = [(b"key-%d" % (n % 5000), b"." * 100) for n in range(first, first + 500)]
        await storage.commit([put(topic.partition(0), *pairs)])
    running = asyncio.create_task(storage.compact())
    gaps = []
    last = time.perf_counter()
    while not running.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    await running
    assert len(gaps) > 50, "it took some time"
    assert max(gaps) < 0.25
    assert storage.size(topic.partition(0)) < 5_000_000
    await storage.close()
