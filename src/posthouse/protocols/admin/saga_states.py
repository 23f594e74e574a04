"""Sagas, as their runners keep them in compacted topics named `saga.NAME.state`: the last state of each.

A topic is read when somebody looks, from where the last look ended.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from msgspec import Meta

from posthouse.model.errors import BadRequest
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage.bounds import Bounds, Slice

PREFIX: Final = "saga."
SUFFIX: Final = ".state"
MOST_SAGAS: Final = 100_000
"""Of one topic; those that have ended longest ago are left out."""
_MOST_TOPICS: Final = 100
_SLICE_BYTES: Final = 256 * 1024
_LARGEST: Final = 256 * 1024
_FINAL: Final = ("completed", "compensated")

SagaStatus = Literal["running", "waiting", "compensating", "completed", "compensated"]


class SagaView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    version: Annotated[int, Meta(description="One more with every change.")]
    status: SagaStatus
    step: Annotated[str | None, Meta(description="That is called, waits, or is taken back.")]
    attempt: int = 1
    input: Annotated[Any, Meta(description="What the saga was started with.")] = None
    results: Annotated[dict[str, Any], Meta(description="Of the steps that are done.")] = {}
    error: Annotated[
        str | None, Meta(description="Why it is taken back, or why the last attempt has failed.")
    ] = None
    started_ms: Annotated[int, Meta(description="Milliseconds since 1970, as the other times.")]
    changed_ms: int
    deadline_ms: Annotated[int | None, Meta(description="Until when the step may wait.")] = None


class SagaLog(Protocol):
    """What reading needs of the broker."""

    def bounds(self, topic: Topic, partition: int) -> Bounds: ...

    async def read(
        self, topic: Topic, partition: int, offset: int, max_bytes: int, *, stable_only: bool = False
    ) -> Slice: ...


def saga_of(topic: str) -> str | None:
    """The name of the saga whose states the topic has."""
    if topic.startswith(PREFIX) and topic.endswith(SUFFIX) and len(topic) > len(PREFIX) + len(SUFFIX):
        return topic[len(PREFIX) : -len(SUFFIX)]
    return None


class _States:
    """Of one topic."""

    def __init__(self, topic: TopicId) -> None:
        self.topic = topic
        self.reading = asyncio.Lock()
        """Threads take what was read: one after the other, and nobody looks meanwhile."""
        self.next: dict[int, int] = {}
        self.live: dict[str, SagaView] = {}
        self.ended: dict[str, SagaView] = {}
        """In the order in which they have ended."""

    def take(self, read: Slice) -> None:
        aborted = [AbortedProducer(each.producer_id, each.first_offset) for each in read.aborted]
        for position, header in visible_batches(read.data, aborted):
            try:
                for record in iter_records(read.data[position : position + header.length]):
                    self._add(record.key, record.value)
            except BadRequest:
                continue  # no batch of a runner: its producer compressed it wrongly

    def _add(self, key: bytes | None, value: bytes | None) -> None:
        id = (key or b"").decode(errors="replace")
        if value is None:
            self.live.pop(id, None)
            self.ended.pop(id, None)
            return
        if len(value) > _LARGEST:
            return
        try:
            state = msgspec.json.decode(value, type=SagaView)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # somebody else has written to the topic
        known = self.live.get(state.id) or self.ended.get(state.id)
        if known is not None and known.version >= state.version:
            return
        self.live.pop(state.id, None)
        kept = self.ended if state.status in _FINAL else self.live
        kept[state.id] = state
        while self.ended and len(self.live) + len(self.ended) > MOST_SAGAS:
            del self.ended[next(iter(self.ended))]


class SagaStates:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._by_topic: dict[str, _States] = {}

    async def refreshed(
        self, log: SagaLog, topic: Topic, on_a_thread: Callable[[Callable[[], None]], Awaitable[None]]
    ) -> dict[str, SagaView]:
        """The last states by id, with what was written since the last look."""
        states = self._by_topic.get(topic.name)
        if states is None or states.topic != topic.id:
            if states is None and len(self._by_topic) >= _MOST_TOPICS:
                del self._by_topic[next(iter(self._by_topic))]
            states = self._by_topic[topic.name] = _States(topic.id)
        async with states.reading:
            for index in range(topic.partitions):
                await _read(log, topic, index, states, on_a_thread)
            return {**states.live, **states.ended}


async def _read(
    log: SagaLog,
    topic: Topic,
    index: int,
    states: _States,
    on_a_thread: Callable[[Callable[[], None]], Awaitable[None]],
) -> None:
    while True:
        bounds = log.bounds(topic, index)
        offset = max(states.next.get(index, 0), bounds.start)
        if offset >= bounds.stable:
            return
        read = await log.read(topic, index, offset, _SLICE_BYTES, stable_only=True)
        if not read.data:
            return
        following = max(header.next_offset for _, header in iter_headers(read.data))
        await on_a_thread(partial(states.take, read))
        states.next[index] = max(following, states.next.get(index, 0))
