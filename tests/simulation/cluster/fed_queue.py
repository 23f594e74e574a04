"""A queue that a topic feeds, which the simulated producers and processors write to.

Each committed record is in the queue once, and nothing else is: the broker that appends it, or that ends its
transaction, may have to leave that to the one that has the queue. A queue that is declared while others write
has what was sent after that, and maybe more.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence

from pamqp.commands import Basic, Queue

from tests.checker.history import FinalRead, Send
from tests.checker.report import Anomaly, Kind
from tests.simulation.amqp_client import value_of
from tests.simulation.kafka_wire import Lost
from tests.simulation.producing import PAUSE
from tests.simulation.queueing import QueuePlace
from tests.simulation.recorder import Recorder
from tests.wire.amqp import Content

PATIENCE_SECONDS = 10.0
"""In the end, when nothing fails any more: the broker that has the queue looks every second for what others
have left."""


class FedQueue:
    def __init__(self, topic: str, place: QueuePlace, recorder: Recorder) -> None:
        """In the default virtual host, where the queue has the name of the topic."""
        self._topic = topic
        self._place = place
        self._recorder = recorder
        self._declared_at = 2**62
        self._found: list[int] | None = None

    async def declare(self) -> None:
        while True:
            try:
                client = await self._place.client().open()
                await client.call(Queue.Declare(queue=self._topic, durable=True), Queue.DeclareOk)
            except (Lost, TimeoutError):
                await asyncio.sleep(PAUSE)
            else:
                self._declared_at = self._recorder.now
                client.close()
                return

    async def read(self) -> None:
        """All of it, once as many messages are there as must be."""
        count = self._missed(self._recorder.history, Counter()).total()
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while True:
            try:
                self._found = await self._browse()
            except (Lost, TimeoutError):
                self._found = None
            is_late = asyncio.get_running_loop().time() > deadline
            if self._found is not None and (len(self._found) >= count or is_late):
                return
            await asyncio.sleep(PAUSE)

    async def _browse(self) -> list[int]:
        """The messages return to the queue with the connection."""
        client = await self._place.client().open()
        found: list[int] = []
        try:
            while True:
                got = await client.call(Basic.Get(queue=self._topic), Basic.GetOk, Basic.GetEmpty)
                if not isinstance(got, Content):
                    return found
                found.append(value_of(got))
        finally:
            client.close()

    def _committed(self, history: Sequence[object]) -> Counter[int]:
        """By the last read of each partition."""
        reads = [each for each in history if isinstance(each, FinalRead) and each.committed_only]
        last = {each.partition: each for each in reads if each.partition[0] == self._topic}
        return Counter(value for each in last.values() for _, value in each.records)

    def _missed(self, history: Sequence[object], found: Counter[int]) -> Counter[int]:
        """Committed records that were sent when the queue was there, and that it lacks."""
        early = {
            each.value for each in history if isinstance(each, Send) and each.invoked < self._declared_at
        }
        missed = self._committed(history) - found
        return Counter({value: count for value, count in missed.items() if value not in early})

    def anomalies(self, history: Sequence[object]) -> Iterator[Anomaly]:
        if self._found is None:
            return
        committed, found = self._committed(history), Counter(self._found)
        if lost := self._missed(history, found):
            text = f"queue {self._topic} lacks committed records of its topic: {sorted(lost)}"
            yield Anomaly(Kind.LOST_MESSAGE, text, tuple(lost))
        if more := found - committed:
            text = f"queue {self._topic} has more than the committed records of its topic: {sorted(more)}"
            yield Anomaly(Kind.PHANTOM_MESSAGE, text, tuple(more))
