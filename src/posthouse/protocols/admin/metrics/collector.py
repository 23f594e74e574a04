"""All metrics of a broker, collected in slices that leave the event loop to others."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from posthouse.protocols.admin.metrics import (
    cluster,
    connections,
    groups,
    process,
    queues,
    remote,
    requests,
    storage,
    topics,
    webhooks,
)
from posthouse.protocols.admin.metrics.family import Family, gauge
from posthouse.protocols.admin.metrics.groups import GroupMetrics
from posthouse.protocols.admin.metrics.queues import QueueMetrics
from posthouse.protocols.admin.metrics.requests import RequestSamples
from posthouse.protocols.admin.metrics.samples import Samples
from posthouse.protocols.admin.metrics.topics import TopicMetrics
from posthouse.protocols.front_end import Backend

SUMMED: Final = gauge(
    "posthouse_metrics_summed_objects",
    'Objects beyond metrics_max_objects, which are summed under the label "__other__".',
    "kind",
)
FAMILIES: Final[tuple[Family, ...]] = (
    *process.FAMILIES,
    *connections.FAMILIES,
    *requests.FAMILIES,
    *storage.FAMILIES,
    *remote.FAMILIES,
    *cluster.FAMILIES,
    *topics.FAMILIES,
    *groups.FAMILIES,
    *queues.FAMILIES,
    *webhooks.FAMILIES,
    SUMMED,
)
"""Every metric that there is."""


class MetricsCollector:
    """One for each that collects: it remembers which objects it shows by name."""

    def __init__(self, backend: Backend) -> None:
        limit = backend.settings.metrics_max_objects
        self._backend = backend
        self._requests = RequestSamples(backend.requests)
        self._topics = TopicMetrics(backend.broker, limit)
        self._groups = GroupMetrics(backend.broker, limit)
        self._queues = QueueMetrics(backend.broker, limit)
        self._one_at_a_time = asyncio.Lock()

    async def collect(self) -> AsyncIterator[Samples]:
        """In several parts: those that take no time come first. No family is in two of them."""
        backend = self._backend
        samples = Samples()
        await process.collect(backend.loop_delay, samples)
        await connections.collect(backend, samples)
        await self._requests.collect(samples)
        await storage.collect(backend.broker, samples)
        if (now := backend.broker.storage_metrics.remote) is not None:
            remote.collect(now(), samples)
        cluster.collect(backend.membership, backend.peer_traffic, samples)
        yield samples
        summed: dict[str, int] = {}
        for part in (self._topics, self._groups, self._queues):
            samples = Samples()
            async with self._one_at_a_time:  # not while a client takes its time with what it got
                summed |= await part.collect(samples)
            yield samples
        samples = Samples()
        await webhooks.collect(backend.broker, samples)
        for kind, count in summed.items():
            samples.add(SUMMED, count, kind)
        yield samples
