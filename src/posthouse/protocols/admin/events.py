"""Changes of the broker's objects, pushed to listeners: a sampler that compares with its last sample.

The sampler runs only while there are listeners, and samples only the kinds that they ask for. A listener that
reads slowly is sent the changes of several samples in one event, and where these are too many, a word that it
should load the list anew: what waits for it is bounded.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from posthouse.broker.access.guard import Guard
from posthouse.model.errors import Unavailable
from posthouse.protocols.admin.problems import Problem
from posthouse.protocols.admin.turns import in_turns

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 1.0
_EARLY_SECONDS = 0.1
"""So much earlier than due a sample may be taken: turns of the sampler are not exact."""
_REST = 4
"""The sampler rests this many times as long as the last samples took, if that is more than a second."""
_MOST_LISTENERS = 200
_MOST_LISTENERS_OF_ONE = 10
"""Of a user, or of an address without logins."""
_MOST_CHANGES = 500
"""In one event."""

Sample = Mapping[str, msgspec.Struct]
"""Summaries of all objects of a kind, by name."""


class EventSource(Protocol):
    """One kind of objects."""

    @property
    def seconds(self) -> float:
        """The least time between two samples."""

    async def sample(self) -> Sample: ...

    def sees(self, guard: Guard, summary: Any) -> bool:
        """Whether a client may be told of the object."""


class ObjectChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The data of one event."""

    added: Annotated[list[Any], Meta(description="Summaries of new objects.")]
    changed: Annotated[list[Any], Meta(description="New summaries.")]
    removed: Annotated[list[str], Meta(description="Names.")]
    reload: Annotated[bool, Meta(description="There are more changes than shown: load the list anew.")]


@dataclass(slots=True)
class _Waiting:
    """Changes of one kind that a listener has not been sent, by name."""

    added: dict[str, msgspec.Struct] = field(default_factory=dict)
    changed: dict[str, msgspec.Struct] = field(default_factory=dict)
    removed: dict[str, None] = field(default_factory=dict)
    is_too_much: bool = False

    def note(self, name: str, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        if self.is_too_much:
            return
        if new is None:
            self.changed.pop(name, None)
            if self.added.pop(name, None) is None:
                self.removed[name] = None
        elif name in self.added or (old is None and name not in self.removed):
            self.added[name] = new
        else:
            self.removed.pop(name, None)
            self.changed[name] = new
        if len(self.added) + len(self.changed) + len(self.removed) > _MOST_CHANGES:
            self.is_too_much = True
            self.added, self.changed, self.removed = {}, {}, {}

    def changes(self) -> ObjectChanges | None:
        if not (self.is_too_much or self.added or self.changed or self.removed):
            return None
        return ObjectChanges(
            added=list(self.added.values()),
            changed=list(self.changed.values()),
            removed=list(self.removed),
            reload=self.is_too_much,
        )


class EventStream:
    """One client that is told of changes."""

    def __init__(self, kinds: Collection[str], guard: Guard, owner: str = "") -> None:
        """`owner` is the user, or the address without logins."""
        self.kinds = kinds
        self.guard = guard
        self.owner = owner
        self._waiting: dict[str, _Waiting] = {}
        self._arrived = asyncio.Event()

    def note(self, kind: str, name: str, old: msgspec.Struct | None, new: msgspec.Struct | None) -> None:
        self._waiting.setdefault(kind, _Waiting()).note(name, old, new)

    def wake(self) -> None:
        if self._waiting:
            self._arrived.set()

    async def next(self, seconds: float) -> dict[str, ObjectChanges]:
        """Changes by kind; none if there are none for so long."""
        try:
            await asyncio.wait_for(self._arrived.wait(), seconds)
        except TimeoutError:
            return {}
        self._arrived.clear()
        waiting, self._waiting = self._waiting, {}
        found = {kind: each.changes() for kind, each in waiting.items()}
        return {kind: changes for kind, changes in found.items() if changes is not None}


class EventHub:
    """Owned by the event loop."""

    def __init__(self, sources: Callable[["EventHub"], Mapping[str, EventSource]]) -> None:
        """`sources` is called once, with this hub: the contexts that sources ask with refer to it."""
        self._listeners: set[EventStream] = set()
        self._samples: dict[str, Sample] = {}
        self._task: asyncio.Task[None] | None = None
        self._sources = sources(self)

    @property
    def kinds(self) -> Collection[str]:
        return self._sources.keys()

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= _MOST_LISTENERS

    def is_full_for(self, owner: str) -> bool:
        return sum(each.owner == owner for each in self._listeners) >= _MOST_LISTENERS_OF_ONE

    async def listen(self, listener: EventStream) -> None:
        """From its return on, the listener is told of every change. To be ended with `leave`."""
        self._listeners.add(listener)
        for kind in listener.kinds:
            if kind not in self._samples:
                self._samples[kind] = await self._sources[kind].sample()
        if self._task is None and self._listeners:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, listener: EventStream) -> None:
        self._listeners.discard(listener)
        if not self._listeners:
            self._samples.clear()
            if self._task is not None:
                self._task.cancel()
                self._task = None

    async def _run(self) -> None:
        loop, took = asyncio.get_running_loop(), 0.0
        sampled: dict[str, float] = {}
        """When each kind was sampled."""
        shortest = min(source.seconds for source in self._sources.values())
        while True:
            await asyncio.sleep(max(shortest, took * _REST))
            began = loop.time()
            wanted = {kind for listener in self._listeners for kind in listener.kinds}
            for kind in self._samples.keys() - wanted:
                del self._samples[kind]
            for kind in wanted:
                if began - sampled.setdefault(kind, 0.0) < self._sources[kind].seconds - _EARLY_SECONDS:
                    continue
                sampled[kind] = began
                try:
                    await self._compare(kind)
                except (Problem, Unavailable) as error:
                    log.warning("admin: the events of %s are missing a sample: %s", kind, error)
                except Exception:
                    log.exception("admin: the events of %s are missing a sample", kind)
            took = loop.time() - began

    async def _compare(self, kind: str) -> None:
        source = self._sources[kind]
        before, now = self._samples.get(kind), await source.sample()
        self._samples[kind] = now
        if before is None:
            return
        async for name in in_turns([*now, *(each for each in before if each not in now)]):
            old, new = before.get(name), now.get(name)
            if old != new:
                for listener in self._listeners:
                    if kind in listener.kinds and source.sees(listener.guard, old if new is None else new):
                        listener.note(kind, name, old, new)
        for listener in self._listeners:
            listener.wake()
