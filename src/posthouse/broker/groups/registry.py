"""The groups that have or had members, their timers, and the time since which a group is empty.

Storage keeps the last in `Space.GROUPS`, so that a restart does not prolong the life of old offsets:

    key    group in UTF-8
    value  version u8 = 1 | empty since, in ms i64, big-endian

A group without an entry had members when the broker last ran. Members are stored only while their group
moves to another broker (`handover`): after a restart they are unknown, join again, and continue from their
committed offsets.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from posthouse.broker.groups.alarms import Alarms
from posthouse.broker.groups.classic import ClassicGroup
from posthouse.broker.groups.consumer import ConsumerGroup
from posthouse.broker.groups.streams import StreamsGroup
from posthouse.broker.groups.streams_store import drop_topology, put_topology
from posthouse.model.clock import Clock
from posthouse.model.errors import GroupsClosed, NotCoordinator, PosthouseError
from posthouse.model.excerpts import excerpt
from posthouse.model.ids import GroupId
from posthouse.storage.contract import Storage
from posthouse.storage.operations import Put
from posthouse.storage.outcomes import Outcome
from posthouse.storage.spaces import Space

log = logging.getLogger(__name__)

_NAMED_AT_ONCE = 3
"""Number of groups named in one log line."""

_VERSION = 1
_VALUE = struct.Struct(">Bq")

Group = ClassicGroup | ConsumerGroup | StreamsGroup


class Registry:
    """Owned by the event loop."""

    def __init__(self, storage: Storage, clock: Clock, settled: Callable[[Group], Group]) -> None:
        """`settled` migrates a group to the kind that it should be now."""
        self._storage = storage
        self._settled = settled
        self._clock = clock
        self._groups: dict[GroupId, Group] = {}
        self._empty_since: dict[GroupId, int] = {}
        self._alarms = Alarms(clock, self._ring)

    def load(self, state: Mapping[bytes, bytes], with_offsets: Sequence[GroupId]) -> None:
        """`state` is of `Space.GROUPS`. `with_offsets` are the groups with offsets; those not stored as empty
        become empty now."""
        for key, value in state.items():
            version, empty_since = _VALUE.unpack(value)
            if version == _VERSION:
                self._empty_since[GroupId(key.decode())] = empty_since
        self._note_empty([group for group in with_offsets if group not in self._empty_since])

    def __iter__(self) -> Iterator[tuple[GroupId, Group]]:
        return iter(self._groups.items())

    def __contains__(self, group_id: GroupId) -> bool:
        return group_id in self._groups

    def get(self, group_id: GroupId) -> Group | None:
        return self._groups.get(group_id)

    def put(self, group_id: GroupId, group: Group) -> None:
        """Set or replace the group."""
        if isinstance(self._groups.get(group_id), StreamsGroup):
            self.store_soon([group_id], [drop_topology(group_id)])
        self._groups[group_id] = group

    def keep_topology(self, group_id: GroupId, group: StreamsGroup) -> None:
        if group.topology is not None:
            self.store_soon([group_id], [put_topology(group_id, group.topology)])

    def forget(self, group_id: GroupId) -> list[Put]:
        """Remove the group at once; returns the operations that make it durable."""
        group = self._groups.pop(group_id, None)
        self._alarms.drop(group_id)
        puts = [drop_topology(group_id)] if isinstance(group, StreamsGroup) else []
        if self._empty_since.pop(group_id, None) is not None:
            puts.append(Put(Space.GROUPS, group_id.encode(), None))
        return puts

    def empty_since(self, group_id: GroupId) -> int | None:
        """Time in ms since the group is empty; None while it has members or has never had any."""
        return self._empty_since.get(group_id)

    def touched(self, group_id: GroupId) -> None:
        """To be called after every request: sets the group's alarm, and stores whether it is empty."""
        group = self._groups.get(group_id)
        if group is None:
            return
        group = self._groups[group_id] = self._settled(group)
        self._alarms.plan(group_id, group.wake_at)
        if group.is_empty != (group_id in self._empty_since):
            if group.is_empty:
                self._note_empty([group_id])
            else:
                del self._empty_since[group_id]
                self.store_soon([group_id], [Put(Space.GROUPS, group_id.encode(), None)])

    def close(self) -> None:
        self._alarms.close()
        for group in self._groups.values():
            group.close(GroupsClosed("the broker is stopping"))

    def dismiss(self, is_moving: Callable[[GroupId], bool]) -> None:
        """Another broker is about to coordinate these groups: answer their waiting members. What is known of
        the members is for that broker, so none of them expires here."""
        for group_id, group in self._groups.items():
            if is_moving(group_id):
                self._alarms.drop(group_id)
                group.close(NotCoordinator(f"the group {group_id!r} moves to another broker"))

    def unload(self, groups: Sequence[GroupId]) -> None:
        for group_id in groups:
            self._groups.pop(group_id, None)
            self._empty_since.pop(group_id, None)
            self._alarms.drop(group_id)

    def known(self) -> list[GroupId]:
        """All groups that have something here."""
        return list(dict.fromkeys([*self._groups, *self._empty_since]))

    def _ring(self, group_id: GroupId) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            group.tick(self._clock.monotonic())
            self.touched(group_id)

    def _note_empty(self, group_ids: Sequence[GroupId]) -> None:
        now = self._clock.now_ms()
        value = _VALUE.pack(_VERSION, now)
        self._empty_since |= dict.fromkeys(group_ids, now)
        self.store_soon(group_ids, [Put(Space.GROUPS, each.encode(), value) for each in group_ids])

    def store_soon(self, group_ids: Sequence[GroupId], puts: list[Put]) -> None:
        """Store without making a request wait. If this is lost, offsets live longer than needed, a streams
        group without members is taken for a classic one, or members stay stored that no broker asks for."""
        if not puts:
            return
        try:
            self._storage.commit(puts).add_done_callback(partial(_log_failure, group_ids))
        except PosthouseError as error:
            _log_not_stored(group_ids, error)


def _log_failure(group_ids: Sequence[GroupId], done: "asyncio.Future[list[Outcome]]") -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _log_not_stored(group_ids, error)


def _log_not_stored(group_ids: Sequence[GroupId], error: BaseException) -> None:
    named = ", ".join(repr(excerpt(each)) for each in group_ids[:_NAMED_AT_ONCE])
    more = f" and {len(group_ids) - _NAMED_AT_ONCE} more" if len(group_ids) > _NAMED_AT_ONCE else ""
    log.warning("group %s%s: the change of its state is not stored: %s", named, more, error)
