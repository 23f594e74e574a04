"""Recalls: entries that are not to be published after all.

A recall is an entry itself, in the log of a bucket like any other: due at the same time as the entry that it
recalls, with the sequence before it, and with the value `RECALL`. Sequences of messages are even, so that one
is free. So it is fired just before its entry, wherever both have been moved to, and takes no memory until
then; and the entry need not be found when it is recalled.

A firing has a limit. If it ends between a recall and its entry, the recall is *carried*: the commit stores
which entry it is.

*Either recalled or published, never both*, also after a crash: one task does both, one commit after the
other. It refuses the recall of an entry that does not sort behind the last one that was fired. Any other it
appends before it fires again, and it fires nothing before it has read what was appended (see `catch_up`).

Storage has one entry per schedule beside its buckets in `Space.SCHEDULE`, stored whenever something is fired
or recalled; numbers big-endian:

    key    0xFFFFFFFF, where a bucket has its log, behind the same prefix
    value  version u8 = 1 | last that was fired: due u64, sequence 8 bytes | entry of the carried recall, or
           zeros: due u64, sequence 8 bytes | recalls that are not fired yet u64
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as StructError
from typing import Final

from posthouse.broker.schedule.buckets import BucketEntry, Buckets
from posthouse.broker.schedule.logs import ScheduleLogs
from posthouse.broker.schedule.periods import period_for
from posthouse.model.errors import DataDamaged, PosthouseError, TooLate, Unavailable
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

RECALL: Final = b"\x02"
"""In the place of the version of a message."""
AT_ONCE: Final = 128
"""Recalls that are decided together: they need so many logs at most."""
_PLACE: Final = Struct(">QQ")
_NOWHERE: Final = bytes(_PLACE.size)
_KEY: Final = b"\xff\xff\xff\xff"
_VERSION: Final = 1
_VALUE: Final = Struct(">B16s16sQ")


def place_of(due_ms: int, sequence: bytes) -> bytes:
    """What the keys of an entry begin with (see `keys`), in every log."""
    return due_ms.to_bytes(8, "big") + sequence


def _before(place: bytes) -> bytes:
    """The place of the recall of the entry at this place."""
    due_ms, sequence = _PLACE.unpack(place)
    return _PLACE.pack(due_ms, sequence - 1)


def _behind(place: bytes) -> bytes:
    due_ms, sequence = _PLACE.unpack(place)
    return _PLACE.pack(due_ms, sequence + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    last: bytes = _NOWHERE
    """The highest place that was fired."""
    carried: bytes = _NOWHERE
    """The entry whose recall was fired, but not the entry itself."""
    waiting: int = 0
    """Recalls that are not fired yet."""

    def put(self, prefix: bytes) -> Put:
        value = _VALUE.pack(_VERSION, self.last, self.carried, self.waiting)
        return Put(Space.SCHEDULE, prefix + _KEY, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What is left of the entries of one firing."""

    keys: Sequence[bytes]
    """Those that are to be published, in order."""
    progress: Progress


class _Waiting:
    __slots__ = ("decided", "place")

    def __init__(self, place: bytes) -> None:
        self.place = place
        self.decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(self, error: PosthouseError | None = None) -> None:
        if self.decided.done():
            return  # who has asked is gone
        if error is None:
            self.decided.set_result(None)
        else:
            self.decided.set_exception(error)


class Recalls:
    """Owned by the event loop. The task that fires calls `decide`, between two firings."""

    def __init__(self, storage: Storage, buckets: Buckets, logs: ScheduleLogs, prefix: bytes) -> None:
        self._storage = storage
        self._buckets = buckets
        self._logs = logs
        self._prefix = prefix
        self._progress = Progress()
        self._asked: list[_Waiting] = []

    def load(self, state: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Returns the rest: the buckets."""
        key = self._prefix + _KEY
        if (value := state.get(key)) is not None:
            self._progress = _decoded(value)
        return {each: value for each, value in state.items() if each != key}

    @property
    def waiting(self) -> int:
        """Recalls in the logs, which are no messages."""
        return self._progress.waiting

    def ask(self, place: bytes) -> "asyncio.Future[None]":
        """Done when it is decided and durable. Fails with TooLate, or Unavailable."""
        asked = _Waiting(place)
        self._asked.append(asked)
        return asked.decided

    def refuse(self, error: PosthouseError) -> None:
        """Nothing is decided here any more."""
        asked, self._asked = self._asked, []
        for each in asked:
            each.end(error)

    async def decide(self, now_ms: int) -> bool:
        """Decide some of those that were asked for, in one commit. False if there are none."""
        if not self._asked:
            return False
        batch, self._asked = self._asked[:AT_ONCE], self._asked[AT_ONCE:]
        accepted: list[_Waiting] = []
        for each in batch:
            if self._is_in_time(each.place, now_ms):
                accepted.append(each)
            else:
                each.end(TooLate("the message was published, or is about to be; it cannot be recalled"))
        try:
            if accepted:
                await self._store({_before(each.place) for each in accepted}, now_ms)
        except PosthouseError as error:
            for each in accepted:
                each.end(error)
        except BaseException as error:
            for each in accepted:
                each.end(Unavailable(f"the recall failed: {error!r}"))
            raise
        else:
            for each in accepted:
                each.end()
        return True

    def _is_in_time(self, place: bytes, now_ms: int) -> bool:
        """A time that is past may have no bucket that is fired in its order any more: see `period_for`."""
        due_ms, sequence = _PLACE.unpack(place)
        return due_ms > now_ms and sequence > 0 and _before(place) > self._progress.last

    async def _store(self, places: Iterable[bytes], now_ms: int) -> None:
        await self._logs.reserve(AT_ONCE)
        entries = list(_entries(places, now_ms))
        progress = replace(self._progress, waiting=self._progress.waiting + len(entries))
        await self._storage.commit([*self._buckets.store(entries, now_ms), progress.put(self._prefix)])
        self._progress = progress

    def apply(self, chosen: Sequence[bytes], bodies: Mapping[bytes, bytes]) -> Fired:
        """What a firing publishes of the chosen keys, whose bodies can be read. Nothing changes before
        `fired`."""
        recalled = {self._progress.carried}
        recalls = 0
        published: list[bytes] = []
        for key in sorted(bodies):
            place = key[: _PLACE.size]
            if bodies[key] == RECALL:
                recalled.add(_behind(place))
                recalls += 1
            elif place not in recalled:
                published.append(key)
        highest = max(chosen)[: _PLACE.size]
        # Of all recalls at most the last one can have its entry behind this firing.
        carried = max(recalled)
        progress = Progress(
            last=max(self._progress.last, highest),
            carried=carried if carried > highest else _NOWHERE,
            waiting=max(self._progress.waiting - recalls, 0),
        )
        return Fired(keys=published, progress=progress)

    def put(self, fired: Fired) -> Put:
        return fired.progress.put(self._prefix)

    def fired(self, fired: Fired) -> None:
        """Its commit is durable."""
        self._progress = fired.progress


def _entries(places: Iterable[bytes], now_ms: int) -> Iterator[BucketEntry]:
    for place in places:
        due_ms, sequence = _PLACE.unpack(place)
        yield BucketEntry(period_for(due_ms, now_ms), due_ms, sequence.to_bytes(8, "big"), RECALL)


def _decoded(value: bytes) -> Progress:
    try:
        version, last, carried, waiting = _VALUE.unpack(value)
    except StructError as error:
        raise DataDamaged(f"the recalls of the schedule cannot be read: {error}") from error
    if version != _VERSION:
        raise DataDamaged(f"the recalls of the schedule have the unknown version {version}")
    return Progress(last=last, carried=carried, waiting=waiting)
