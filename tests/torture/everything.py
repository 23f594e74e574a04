"""All workloads at once, on the same brokers."""

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.torture.brokers import Addresses
from tests.torture.queues.workload import QueueWorkload
from tests.torture.recording import Recorder
from tests.torture.shares.workload import ShareWorkload
from tests.torture.stream.workload import StreamWorkload
from tests.torture.workloads import Client, Workload


class Everything:
    """Streams, transactions, a processor, consumer groups of both protocols, a share group, queues, and
    Kafka producers that feed queues."""

    most_promises = 200

    def __init__(self, recorder: Recorder, random: Random, **config: Any) -> None:
        """`config` is of the topics of the streams, with underscores."""
        self._parts: Sequence[Workload] = [
            StreamWorkload(recorder, random, is_full=True, **config),
            QueueWorkload(recorder, random, is_fed=True),
            ShareWorkload(recorder, random),
        ]

    async def prepare(self, addresses: Addresses) -> None:
        for part in self._parts:
            await part.prepare(addresses)

    @property
    def clients(self) -> Sequence[Client]:
        return [client for part in self._parts for client in part.clients]

    async def finish(self, addresses: Addresses) -> None:
        for part in reversed(self._parts):  # that of streams may find something, and ends then
            await part.finish(addresses)
