"""A queue that a topic feeds, which transactions of the simulated processors write to.

Each committed record is in the queue once, and nothing else is: the broker that ends a transaction mostly is
not the one that has the queue.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from pamqp.commands import Basic, Queue

from tests.checker.history import FinalRead
from tests.checker.report import Anomaly, Kind
from tests.simulation.amqp_client import AmqpClient, value_of
from tests.simulation.kafka_wire import Lost
from tests.simulation.producing import PAUSE
from tests.wire.amqp import Content

PATIENCE_SECONDS = 10.0
"""In the end, when nothing fails any more: the coordinator looks for what is left every second."""


class FedQueue:
    def __init__(self, topic: str, host: Callable[[], str]) -> None:
        self._topic = topic
        self._host = host
        self._found: list[int] | None = None

    async def declare(self) -> None:
        """Before anything is written. The queue has the name of the topic."""
        while True:
            try:
                client = await AmqpClient(self._host()).open()
                await client.call(Queue.Declare(queue=self._topic, durable=True), Queue.DeclareOk)
            except (Lost, TimeoutError):
                await asyncio.sleep(PAUSE)
            else:
                client.close()
                return

    async def read(self, history: Sequence[object]) -> None:
        """All of it, once as many messages are there as records that were committed."""
        count = len(self._committed(history))
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
        client = await AmqpClient(self._host()).open()
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

    def anomalies(self, history: Sequence[object]) -> Iterator[Anomaly]:
        if self._found is None:
            return
        committed, found = self._committed(history), Counter(self._found)
        if lost := committed - found:
            text = f"queue {self._topic} lacks committed records of its topic: {sorted(lost)}"
            yield Anomaly(Kind.LOST_MESSAGE, text, tuple(lost))
        if more := found - committed:
            text = f"queue {self._topic} has more than the committed records of its topic: {sorted(more)}"
            yield Anomaly(Kind.PHANTOM_MESSAGE, text, tuple(more))
