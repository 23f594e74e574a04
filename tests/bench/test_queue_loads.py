"""The load itself, in tiny volumes, against the sink; and what needs no broker at all."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands
from pamqp.body import ContentBody

from bench.queues import frames, loads, redis_loads, sink
from bench.queues.connection import Connection
from bench.queues.pacing import Latencies, Pace, percentile, publish
from bench.queues.workers import LoadFailed, Tally, Worker
from tests.bench.pamqp_server import Server


@contextmanager
def sunk(size: int, count: int) -> Iterator[int]:
    port = Tally()
    thread = threading.Thread(target=sink.serve, args=(port, sink.Expected(size, count)), daemon=True)
    thread.start()
    while not port.value:
        assert thread.is_alive()
    yield port.value
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("count", [1, 100, 2350, 5000])
@pytest.mark.parametrize("size", [8, 10_240])
def test_publishing_ends_when_all_is_confirmed(size: int, count: int) -> None:
    done = Tally()
    with sunk(size, count) as port:
        load = loads.publish(port, "", "bench", size, count, done)
    assert load.count == done.value == count
    assert load.rate > 0


@pytest.mark.parametrize("count", [1, 100, 2350, 5000])
@pytest.mark.parametrize("size", [8, 10_240])
def test_consuming_ends_when_all_is_acknowledged(size: int, count: int) -> None:
    done = Tally()
    with sunk(size, count) as port:
        load = loads.consume(port, ["bench"], count, done)
    assert load.count == done.value == count


def test_acks_are_those_of_one_who_takes_message_by_message() -> None:
    assert loads.acks(100, 350) == b"".join(frames.ack(tag, multiple=True) for tag in (200, 300, 350))
    assert loads.acks(0, 100) == frames.ack(100, multiple=True)


def test_a_worker_tells_why_it_failed() -> None:
    with pytest.raises(LoadFailed, match="ConnectionRefusedError"):
        Worker(Connection, 1).result()


@given(st.lists(st.integers(0, 10**9), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_smallest_that_enough_do_not_exceed(values: list[int], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert sum(each <= found for each in ordered) >= share * len(ordered)
    assert sum(each < found for each in ordered) < share * len(ordered)


def test_latencies_are_milliseconds() -> None:
    assert Latencies.of([number * 1_000_000 for number in range(100, 0, -1)]) == Latencies(50, 99, 100)


def test_a_pace_leaves_something_to_count() -> None:
    pace = Pace(queue="bench", size=8, rate=1000, warm_up=1, seconds=2)
    assert (pace.count, pace.ignored) == (3000, 1000)
    slow = Pace(queue="bench", size=8, rate=0.1, warm_up=1, seconds=2)
    assert (slow.count, slow.ignored) == (1, 0)


def test_a_pace_does_not_wait_for_confirms() -> None:
    server = Server()
    pace = Pace(queue="bench", size=16, rate=300, warm_up=0, seconds=0.5)
    is_ready = Tally()
    is_ready.value = 1
    publisher = threading.Thread(target=publish, args=(server.port, pace, is_ready), daemon=True)
    publisher.start()
    deadline = time.monotonic() + 30
    while sum(isinstance(each, ContentBody) for each in server.heard) < pace.count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.say(commands.Basic.Ack(pace.count, True))
    publisher.join(10)
    assert not publisher.is_alive()
    stamps = [
        int.from_bytes(each.value[:8], "big")
        for each in server.heard
        if isinstance(each, ContentBody) and each.value
    ]
    assert len(stamps) == pace.count
    assert stamps == sorted(stamps)
    assert 0.4e9 < stamps[-1] - stamps[0] < 0.6e9


def test_a_redis_command_is_an_array_of_strings() -> None:
    assert (
        redis_loads.command(b"LPUSH", b"k", b"a\r\nb") == b"*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n"
    )


@given(st.lists(st.integers(1, 300), max_size=40))
def test_stream_entries_between_other_answers(cuts: list[int]) -> None:
    ids = [b"1700000000000-%d" % number for number in range(12)]
    entries = [
        b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nb\r\n$20\r\n%b\r\n" % (len(each), each, b"\r\n*2\r\n$1" + bytes(12))
        for each in ids
    ]
    answer = b"*1\r\n*2\r\n$5\r\nbench\r\n*6\r\n"
    data = answer + b"".join(entries[:6]) + b":6\r\n" + answer + b"".join(entries[6:]) + b":6\r\n"
    found = redis_loads.Entries(20)
    for cut in cuts:
        found.feed(data[:cut])
        data = data[cut:]
    found.feed(data)
    assert found.ids == ids
