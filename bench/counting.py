"""What counting costs where every request and message passes: CPU time by itself, on one thread.

Metrics are plain ints and histograms that are incremented in place. What a request or message takes of the
broker's CPU time in all is measured beside it, by `bench.scraping`.
"""

import asyncio
import time
import timeit
from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Final

from posthouse.broker.queues.counters import QueueCounters
from posthouse.broker.traffic import Traffic
from posthouse.model.histogram import SECONDS
from posthouse.protocols.request_metrics import RequestMetrics
from posthouse.records.batch import parse_header
from posthouse.records.builder import BatchBuilder

_TIMES: Final = 20_000
_REPEATS: Final = 7
_AT_ONCE: Final = 100
"""Messages that are published or delivered together."""


def produce_seconds() -> float:
    """As `LogWriter.append` and `Call.respond` count one produce request."""
    builder = BatchBuilder()
    builder.add(None, b"x" * 100, (), 1)
    header = parse_header(memoryview(builder.build()))
    traffic, metrics = Traffic(), RequestMetrics().of("kafka", "Produce")

    async def measured() -> float:
        durable: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        durable.set_result(None)

        def count() -> None:
            begun = perf_counter()
            seconds, taken = metrics.seconds, perf_counter() - begun
            seconds.buckets[bisect_left(SECONDS, taken)] += 1
            seconds.sum += taken
            traffic.write("orders", header, durable)

        return _seconds_of(count)

    return asyncio.run(measured())


def message_seconds() -> float:
    """As a queue counts one message, from its publish to its acknowledgement, if those come one by one."""
    traffic, counters, requests = Traffic(), QueueCounters(), RequestMetrics()
    publishes, deliveries = requests.of("amqp", "basic.publish"), requests.of("amqp", "basic.deliver")
    acknowledgements = requests.of("amqp", "basic.ack")
    messages: Any = [SimpleNamespace(topic="mails", size=100, redelivered=False)] * _AT_ONCE

    def count() -> None:
        counters.published += _AT_ONCE
        publishes.seconds.observe_many(0.004, _AT_ONCE)
        traffic.deliver(messages)
        counters.delivered += _AT_ONCE
        deliveries.untimed += _AT_ONCE
        for _ in range(_AT_ONCE):
            counters.acked += 1
            acknowledgements.untimed += 1

    return _seconds_of(count) / _AT_ONCE


def _seconds_of(count: Callable[[], None]) -> float:
    """CPU time of one call; the least of some repeats, which others on the machine disturb least."""
    repeats = timeit.repeat(count, number=_TIMES, repeat=_REPEATS, timer=time.thread_time)
    return min(repeats) / _TIMES
