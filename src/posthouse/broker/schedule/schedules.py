"""The schedules of a broker: one for each scope of namespaces that it serves, or one for all namespaces in a
broker that is alone."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from posthouse.broker.schedule.entry import Scheduled
from posthouse.broker.schedule.logs import OF_ALL, scope_of_schedule
from posthouse.broker.schedule.schedule import Schedule
from posthouse.model.errors import NotCoordinator
from posthouse.model.scopes import Scope, scope_of_namespace
from posthouse.model.topics import Topic
from posthouse.storage.operations import Operation


class Schedules:
    """Owned by the event loop."""

    def __init__(self, new: Callable[[Scope], Schedule], *, is_alone: bool) -> None:
        self._new = new
        self._is_alone = is_alone
        self._by_scope: dict[Scope, Schedule] = {}

    def load(self, scope: Scope, stored: Mapping[bytes, bytes]) -> None:
        """`stored` has the buckets of all schedules."""
        schedule = self._new(scope)
        schedule.load(stored)
        self._by_scope[scope] = schedule

    def load_all(self, stored: Mapping[bytes, bytes], topics: Iterable[Topic]) -> None:
        """In a broker that is alone. `topics` are all that storage has: data that comes from a cluster may
        have several schedules."""
        self.load(OF_ALL, stored)
        for topic in topics:
            scope = scope_of_schedule(topic.name) if topic.is_internal else None
            if scope is not None and scope not in self._by_scope:
                self.load(scope, stored)

    def start(self, scope: Scope) -> None:
        self._by_scope[scope].start()

    def start_all(self) -> None:
        for each in self._by_scope.values():
            each.start()

    async def stop(self, scope: Scope) -> None:
        """Finish the step under way, and fire no more messages."""
        if scope in self._by_scope:
            await self._by_scope[scope].stop()

    async def stop_all(self) -> None:
        await asyncio.gather(*(each.stop() for each in self._by_scope.values()))

    def unload(self, scope: Scope) -> None:
        """After `stop`: another broker fires what is stored."""
        self._by_scope.pop(scope, None)

    @property
    def waiting(self) -> int:
        """Number of messages that are not fired yet."""
        return sum(each.waiting for each in self._by_scope.values())

    def is_ready(self, entries: Iterable[Scheduled]) -> bool:
        """Whether the entries can be stored without preparation."""
        return all((own := self._find(entry)) and own.is_ready(entry.due_ms) for entry in entries)

    async def prepare(self, entries: Iterable[Scheduled]) -> None:
        """Raises NotCoordinator, and Unavailable."""
        for entry in entries:
            await self._of(entry).prepare(entry.due_ms)

    def new_sequence(self, namespace: str) -> bytes:
        """For an entry that may be recalled. Raises NotCoordinator."""
        return self._in(namespace).new_sequence()

    async def recall(self, namespace: str, due_ms: int, sequence: bytes) -> None:
        """See `Schedule.recall`. Raises NotCoordinator, too."""
        await self._in(namespace).recall(due_ms, sequence)

    def appends(self, entries: Sequence[Scheduled]) -> list[Operation]:
        """See `Schedule.appends`."""
        divided = self._divided(entries).items()
        return [operation for schedule, own in divided for operation in schedule.appends(own)]

    def stored(self, entries: Sequence[Scheduled]) -> None:
        for schedule, own in self._divided(entries).items():
            schedule.stored(own)

    def _divided(self, entries: Iterable[Scheduled]) -> dict[Schedule, list[Scheduled]]:
        divided: dict[Schedule, list[Scheduled]] = {}
        for entry in entries:
            divided.setdefault(self._of(entry), []).append(entry)
        return divided

    def _find(self, entry: Scheduled) -> Schedule | None:
        return self._find_in(entry.namespace)

    def _find_in(self, namespace: str) -> Schedule | None:
        return self._by_scope.get(OF_ALL if self._is_alone else scope_of_namespace(namespace))

    def _of(self, entry: Scheduled) -> Schedule:
        return self._in(entry.namespace)

    def _in(self, namespace: str) -> Schedule:
        schedule = self._find_in(namespace)
        if schedule is None:
            raise NotCoordinator(f"another broker schedules the messages of namespace {namespace!r}")
        return schedule
