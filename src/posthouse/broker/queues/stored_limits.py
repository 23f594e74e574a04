"""Limits that operators have set on the deliveries of queues of one namespace.

Storage has one entry for each, in `Space.DELIVERY_LIMITS`:

    key    size of the namespace's name (4 bytes, big-endian), that name, name of the queue; in UTF-8
    value  JSON object: version, rate (messages per second), concurrency; null where there is none

They belong to the name of a queue: they outlive its deletion, and apply when it is declared again. They
replace the limits that the queue was declared with.
"""

import asyncio
from collections.abc import Mapping

from posthouse.broker.funnel.limits import DeliveryLimits, decode_limits
from posthouse.broker.queues.log_queue import LogQueue
from posthouse.broker.queues.queue import Queue
from posthouse.broker.routing.encoding import exchange_key, name_of
from posthouse.model.errors import InvalidConfig, InvalidDefinition, UnknownQueue
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space


class StoredLimits:
    """Owned by the event loop."""

    def __init__(
        self, namespace: str, storage: Storage, queues: Mapping[str, LogQueue], changing: asyncio.Lock
    ) -> None:
        """`changing` is held while a definition of the namespace changes."""
        self._namespace = namespace
        self._storage = storage
        self._queues = queues
        self._changing = changing
        self._limits: dict[str, DeliveryLimits] = {}

    def load(self, key: bytes, value: bytes) -> None:
        """What storage has, before the queues are added. Raises DataDamaged."""
        self._limits[name_of(key)] = decode_limits(value)

    def get(self, name: str) -> DeliveryLimits | None:
        """None where no operator has set any."""
        return self._limits.get(name)

    def apply(self, queue: LogQueue) -> None:
        """The limits that the queue has from now on."""
        if not isinstance(queue, Queue):
            return
        limits = self._limits.get(queue.name, queue.definition.delivery_limits)
        if limits != queue.limits:
            queue.set_limits(limits)

    async def set(self, name: str, limits: DeliveryLimits) -> None:
        """Durable on return. Raises InvalidConfig, UnknownQueue, and InvalidDefinition for a stream."""
        limits.check()
        if limits.is_empty:
            raise InvalidConfig("a limit needs a rate, a concurrency, or both")
        async with self._changing:
            queue = self._queues.get(name)
            if queue is None:
                raise UnknownQueue(f"there is no queue {name!r}")
            if not isinstance(queue, Queue):
                raise InvalidDefinition(f"{queue} has no limits: each of its consumers reads on its own")
            await self._store(name, limits)

    async def remove(self, name: str) -> None:
        """Back to those of the declaration. Durable on return; a no-op where no operator has set any. Raises
        UnknownQueue."""
        async with self._changing:
            if name in self._limits:
                await self._store(name, None)
            elif name not in self._queues:
                raise UnknownQueue(f"there is no queue {name!r}")

    async def _store(self, name: str, limits: DeliveryLimits | None) -> None:
        value = None if limits is None else limits.encode()
        await self._storage.commit([Put(Space.DELIVERY_LIMITS, exchange_key(self._namespace, name), value)])
        if limits is None:
            self._limits.pop(name, None)
        else:
            self._limits[name] = limits
        if (queue := self._queues.get(name)) is not None:
            self.apply(queue)
