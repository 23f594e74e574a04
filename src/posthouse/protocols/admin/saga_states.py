"""Sagas, as their runners keep them in compacted topics named `saga.NAME.state`: the last state of each.

A topic is read when somebody looks, from where the last look ended. Memory has what lists show, and where the
whole state is; input and results are read from there.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from sys import getsizeof
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta

from posthouse.model.errors import BadRequest, Unavailable
from posthouse.model.ids import TopicId
from posthouse.model.topics import Topic
from posthouse.records.batch import iter_headers
from posthouse.records.record import iter_records
from posthouse.records.visibility import AbortedProducer, visible_batches
from posthouse.storage.bounds import Bounds, Slice

T = TypeVar("T")

PREFIX: Final = "saga."
SUFFIX: Final = ".state"
MOST_SAGAS: Final = 100_000
"""Of one topic. Those that have ended longest ago are left out first, then those that changed longest ago;
in the order in which they were read, partition by partition."""
MOST_BYTES: Final = 64 * 1024 * 1024
"""In memory, of all topics: those that were looked at longest ago are read again from their start."""
LARGEST_SHOWN: Final = 256 * 1024
LONGEST_ERROR: Final = 500
"""In lists."""
_MOST_TOPICS: Final = 100
_SLICE_BYTES: Final = 256 * 1024
_ONE_BATCH: Final = 1
_OVERHEAD: Final = 600
"""Of a state in memory, without its texts."""
_LOOKS: Final = 5
_FINAL: Final = ("completed", "compensated")

SagaStatus = Literal["running", "waiting", "compensating", "completed", "compensated"]


class _Noted(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a state as it is written."""

    id: str
    version: int
    status: SagaStatus
    step: str | None
    attempt: int = 1
    error: str | None = None
    started_ms: int
    changed_ms: int
    deadline_ms: int | None = None


class KnownSaga(_Noted, frozen=True, kw_only=True):
    partition: int
    offset: int

    @property
    def memory(self) -> int:
        return _OVERHEAD + sum(map(getsizeof, (self.id, self.step, self.error)))


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
    left_out: Annotated[str | None, Meta(description="Why input and results are missing here.")] = None


class SagaLog(Protocol):
    """What reading needs of the broker."""

    def bounds(self, topic: Topic, partition: int) -> Bounds: ...

    async def read(
        self, topic: Topic, partition: int, offset: int, max_bytes: int, *, stable_only: bool = False
    ) -> Slice: ...


class OnAThread(Protocol):
    async def __call__(self, work: Callable[[], T]) -> T: ...


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
        self.live: dict[str, KnownSaga] = {}
        """In the order of their last changes."""
        self.ended: dict[str, KnownSaga] = {}
        """In the order in which they have ended."""
        self.memory = 0

    def take(self, partition: int, read: Slice) -> None:
        aborted = [AbortedProducer(each.producer_id, each.first_offset) for each in read.aborted]
        for position, header in visible_batches(read.data, aborted):
            try:
                for record in iter_records(read.data[position : position + header.length]):
                    self._add(partition, record.offset, record.key, record.value)
            except BadRequest:
                continue  # no batch of a runner: its producer compressed it wrongly

    def _add(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            self._remove((key or b"").decode(errors="replace"))
            return
        try:
            noted = msgspec.json.decode(value, type=_Noted)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # somebody else has written to the topic
        known = self.live.get(noted.id) or self.ended.get(noted.id)
        if known is not None and known.version >= noted.version:
            return
        self._remove(noted.id)
        fields = msgspec.structs.asdict(noted)
        if noted.error is not None:
            fields["error"] = noted.error[:LONGEST_ERROR]
        state = KnownSaga(partition=partition, offset=offset, **fields)
        (self.ended if state.status in _FINAL else self.live)[state.id] = state
        self.memory += state.memory
        while len(self.live) + len(self.ended) > MOST_SAGAS or self.memory > MOST_BYTES:
            self._remove(next(iter(self.ended or self.live)))

    def _remove(self, id: str) -> None:
        state = self.live.pop(id, None) or self.ended.pop(id, None)
        if state is not None:
            self.memory -= state.memory


class SagaStates:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._by_topic: dict[str, _States] = {}
        """In the order in which they were looked at."""

    async def refreshed(self, log: SagaLog, topic: Topic, on_a_thread: OnAThread) -> dict[str, KnownSaga]:
        """The last states by id, with what was written since the last look."""
        states = self._by_topic.pop(topic.name, None)
        if states is None or states.topic != topic.id:
            states = _States(topic.id)
        self._by_topic[topic.name] = states
        async with states.reading:
            for index in range(topic.partitions):
                await self._read(log, topic, index, states, on_a_thread)
            return {**states.live, **states.ended}

    async def view(self, log: SagaLog, topic: Topic, id: str, on_a_thread: OnAThread) -> SagaView | None:
        """The whole state. Raises Unavailable."""
        for _ in range(_LOOKS):
            known = (await self.refreshed(log, topic, on_a_thread)).get(id)
            if known is None or known.offset < log.bounds(topic, known.partition).start:
                return None
            read = await log.read(topic, known.partition, known.offset, _ONE_BATCH, stable_only=True)
            view = await on_a_thread(partial(_view_in, read, known))
            if view is not None:
                return view  # otherwise it has changed meanwhile, and the state before was compacted away
        raise Unavailable(f"saga {id!r} changes too often to be shown; try again")

    async def _read(
        self, log: SagaLog, topic: Topic, index: int, states: _States, on_a_thread: OnAThread
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
            await on_a_thread(partial(states.take, index, read))
            states.next[index] = max(following, states.next.get(index, 0))
            self._make_room(states)

    def _make_room(self, reading: _States) -> None:
        """What is left out is read again when somebody looks."""
        others = [(name, each) for name, each in self._by_topic.items() if each is not reading]
        memory = reading.memory + sum(each.memory for _, each in others)
        count = len(others) + 1
        for name, each in others:
            if memory <= MOST_BYTES and count <= _MOST_TOPICS:
                return
            del self._by_topic[name]
            memory -= each.memory
            count -= 1


def _view_in(read: Slice, known: KnownSaga) -> SagaView | None:
    """None if the log does not have that state any more."""
    for position, header in iter_headers(read.data):
        for record in iter_records(read.data[position : position + header.length]):
            if record.offset == known.offset and record.value is not None:
                return _view(record.value, known)
    return None


def _view(value: bytes, known: KnownSaga) -> SagaView:
    if len(value) > LARGEST_SHOWN:
        left_out = f"the state has {len(value)} bytes, and more than {LARGEST_SHOWN} are not shown"
    else:
        try:
            return msgspec.json.decode(value, type=SagaView)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            left_out = f"the state is not one of a runner: {error}"
    fields = {name: getattr(known, name) for name in _Noted.__struct_fields__}
    return SagaView(left_out=left_out, **fields)
