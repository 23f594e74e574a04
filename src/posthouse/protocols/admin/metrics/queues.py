"""Queues and streams: what they hold, and what happened to their messages."""

from operator import attrgetter
from typing import Final

from posthouse.broker.broker import Broker
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.queue import Queue
from posthouse.protocols.admin.metrics.delivery_limits import OF_QUEUES, add_limits
from posthouse.protocols.admin.metrics.family import counter, gauge
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.selection import OTHER, Selection
from posthouse.protocols.admin.metrics.table import Rows, Table

_LABELS: Final = ("namespace", "queue")
QUEUES: Final = gauge("posthouse_queues", "Queues and streams.")
READY: Final = gauge("posthouse_queue_ready_messages", "Messages that a consumer could get now.", *_LABELS)
UNACKED: Final = gauge(
    "posthouse_queue_unacked_messages", "Messages handed out and not yet acknowledged.", *_LABELS
)
CONSUMERS: Final = gauge("posthouse_queue_consumers", "Consumers.", *_LABELS)
COUNTERS: Final = {
    "published": counter("posthouse_queue_published_messages_total", "Messages that arrived.", *_LABELS),
    "delivered": counter(
        "posthouse_queue_delivered_messages_total",
        "Messages delivered to consumers, redeliveries included.",
        *_LABELS,
    ),
    "got": counter("posthouse_queue_got_messages_total", "Messages got one by one (basic.get).", *_LABELS),
    "acked": counter(
        "posthouse_queue_acked_messages_total",
        "Messages acknowledged, by consumers or by deliveries without acknowledgement.",
        *_LABELS,
    ),
    "redelivered": counter(
        "posthouse_queue_redelivered_messages_total",
        "Messages delivered or got that had been handed out before.",
        *_LABELS,
    ),
    "dead_lettered": counter(
        "posthouse_queue_dead_lettered_messages_total",
        "Messages that went to the dead letter exchange, for any reason.",
        *_LABELS,
    ),
    "expired": counter(
        "posthouse_queue_expired_messages_total", "Messages whose time to live was over.", *_LABELS
    ),
}
AGE: Final = gauge(
    "posthouse_queue_oldest_message_age_seconds",
    "Time since the oldest ready message was published; 0 for an empty queue.",
    *_LABELS,
)
FAMILIES: Final = (QUEUES, READY, UNACKED, CONSUMERS, *COUNTERS.values(), AGE, *OF_QUEUES)

_counts: Final = attrgetter(*COUNTERS)
_STEPS: Final = 32
"""Queues between two looks at the clock."""
_MOST_READS: Final = 100
"""Queues whose oldest message is read from disk in one collection; the others follow in the next ones."""


class QueueMetrics:
    def __init__(self, broker: Broker, limit: int) -> None:
        self._broker = broker
        self._selection = Selection(limit, tuple(COUNTERS))
        self._table = Table(READY, UNACKED, CONSUMERS, *COUNTERS.values())
        self._ages = Table(AGE)

    async def collect(self, samples: Samples) -> dict[str, int]:
        """How many queues were not shown by name."""
        selection = self._selection
        shown: list[tuple[LogQueue, int]] = []
        rows = Rows()
        count = other_ready = other_unacked = other_consumers = 0
        for namespace in list(self._broker.namespaces):
            for queue in list(namespace.queues.values()):
                count += 1
                (ready, unacked), consumers = queue.lengths, queue.consumer_count
                key = namespace.name, queue.name
                if selection.shows(key, queue.counters):
                    shown.append((queue, ready))
                    rows.add(key, ready, unacked, consumers, *_counts(queue.counters))
                else:
                    other_ready += ready
                    other_unacked += unacked
                    other_consumers += consumers
                if count % _STEPS == 0:
                    await samples.turns.next()
        selection.done()
        samples.add(QUEUES, count)
        await self._table.fill(samples, rows)
        if selection.has_other:
            for name, total in (await selection.totals(samples.turns)).items():
                samples.add(COUNTERS[name], total, OTHER, OTHER)
            samples.add(READY, other_ready, OTHER, OTHER)
            samples.add(UNACKED, other_unacked, OTHER, OTHER)
            samples.add(CONSUMERS, other_consumers, OTHER, OTHER)
        for queue, _ in shown:
            if isinstance(queue, Queue) and (throttle := queue.dispatcher.throttle) is not None:
                add_limits(samples, OF_QUEUES, throttle.limiter, queue.namespace, queue.name)
        await samples.turns.next()
        await self._add_ages(samples, shown)
        return {"queues": selection.summed}

    async def _add_ages(self, samples: Samples, queues: list[tuple[LogQueue, int]]) -> None:
        """Of queues that are shown by name; an age that cannot be known yet is left out."""
        oldest, now = self._broker.oldest_messages, self._broker.now_ms()
        reads = oldest.reads
        rows = Rows()
        for count, (queue, ready) in enumerate(queues):
            age: float = 0
            if ready:
                published_ms = oldest.known_ms(queue)
                if published_ms is None and oldest.reads - reads < _MOST_READS:
                    published_ms = await oldest.read_ms(queue)
                if published_ms is None:
                    continue
                age = max(now - published_ms, 0) / 1000
            rows.add((queue.namespace, queue.name), age)
            if count % _STEPS == 0:
                await samples.turns.next()
        oldest.forget_others(queue for queue, _ in queues)
        await self._ages.fill(samples, rows)
