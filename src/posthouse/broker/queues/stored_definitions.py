"""The durable exchanges, queues and bindings of one namespace, as storage has them."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from posthouse.broker.progress.progress import Progress
from posthouse.broker.queues.definition import QueueDefinition
from posthouse.broker.routing.definitions import Binding, ExchangeDefinition
from posthouse.broker.routing.encoding import binding_key, encode_binding, encode_exchange, exchange_key
from posthouse.model.errors import PosthouseError
from posthouse.model.topics import Topic
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Operation, Put
from posthouse.storage.spaces import Space


class StoredDefinitions:
    """Every call returns when the change is durable. Raises Unavailable."""

    def __init__(self, namespace: str, storage: Storage, remove_log: Callable[[Topic], None]) -> None:
        """`remove_log` deletes the log of a queue in the background."""
        self._namespace = namespace
        self._storage = storage
        self._remove_log = remove_log

    async def add_exchange(self, definition: ExchangeDefinition) -> None:
        key = exchange_key(self._namespace, definition.name)
        await self._commit([Put(Space.EXCHANGES, key, encode_exchange(definition))])

    async def remove_exchange(self, name: str, bindings: Iterable[Binding]) -> None:
        """`bindings` are those from the exchange and to it."""
        removal = Put(Space.EXCHANGES, exchange_key(self._namespace, name), None)
        await self._commit([*map(self._removal, bindings), removal])

    async def add_binding(self, binding: Binding) -> None:
        key = binding_key(self._namespace, binding)
        await self._commit([Put(Space.BINDINGS, key, encode_binding(binding))])

    async def remove_binding(self, binding: Binding) -> None:
        await self._commit([self._removal(binding)])

    def _removal(self, binding: Binding) -> Put:
        return Put(Space.BINDINGS, binding_key(self._namespace, binding), None)

    async def add_queue(self, queue_id: bytes, definition: QueueDefinition, log: Topic) -> None:
        """The log in the catalog and the definition in the journal, at the same time: each takes a sync.

        Neither counts without the other: a start removes what it finds alone. The catalog has the definition
        too: if the journal is damaged, nothing else would lead to the messages in the log.
        """
        if definition.is_transient:
            await self._storage.create_topics([log])
            return
        key = exchange_key(self._namespace, definition.name)
        put = Put(Space.QUEUES, key, queue_id + definition.encode())
        made, stored = await asyncio.gather(
            self._storage.create_topics([log], [put]), self._commit([put]), return_exceptions=True
        )
        if made is None and stored is not None:
            self._remove_log(log)
        elif made is not None and stored is None:
            with suppress(PosthouseError):
                await self._commit([Put(Space.QUEUES, key, None)])
        if (error := made or stored) is not None:
            raise error

    async def remove_queue(self, name: str, lanes: Iterable[Progress], bindings: Iterable[Binding]) -> None:
        """With the progress of its lanes and the bindings to it."""
        removal = Put(Space.QUEUES, exchange_key(self._namespace, name), None)
        progress = [put for lane in lanes for put in lane.removals()]
        await self._commit([*map(self._removal, bindings), removal, *progress])

    async def _commit(self, puts: Sequence[Operation]) -> None:
        await self._storage.commit(puts)
