"""Everything that went through the broker since it started, in a few numbers: for rates of the whole."""

import asyncio
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from posthouse.broker.broker import Broker
from posthouse.broker.queues.counters import QueueCounters
from posthouse.protocols.admin.metrics.selection import Selection
from posthouse.protocols.admin.turns import Turns

_OF_TOPICS: Final = ("records_in", "bytes_in", "records_out", "bytes_out")
_STEPS: Final = 64
"""Objects between two looks at the clock."""


class TrafficView(msgspec.Struct, frozen=True, kw_only=True):
    """Since the broker started; none of these numbers ever falls."""

    records_in: Annotated[int, Meta(description="Records appended to topics, by all protocols.")]
    bytes_in: int
    records_out: int
    bytes_out: int
    published: Annotated[int, Meta(description="Messages that arrived in queues.")]
    delivered: int
    got: Annotated[int, Meta(description="One by one, by clients that ask.")]
    acked: int
    redelivered: int
    dead_lettered: int
    expired: int


class TrafficTotals:
    """Remembers what deleted topics and queues had counted. Owned by the event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics = Selection(0, _OF_TOPICS)
        self._queues = Selection(0, tuple(QueueCounters.__slots__))
        self._one_at_a_time = asyncio.Lock()

    async def now(self) -> TrafficView:
        """In turns: there may be very many topics and queues."""
        async with self._one_at_a_time:
            turns = Turns()
            for count, (name, traffic) in enumerate(list(self._broker.traffic.counted())):
                self._topics.shows(name, traffic)
                if count % _STEPS == 0:
                    await turns.next()
            self._topics.done()
            for namespace in list(self._broker.namespaces):
                for count, queue in enumerate(list(namespace.queues.values())):
                    self._queues.shows((namespace.name, queue.name), queue.counters)
                    if count % _STEPS == 0:
                        await turns.next()
            self._queues.done()
            return TrafficView(**await self._topics.totals(turns), **await self._queues.totals(turns))
