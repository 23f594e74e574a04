"""Queues that consumers have to go on from elsewhere: their group was reset while they run.

    waiting   the member that reads the queue has not pulled since: its next pull is told the new offset
    told      it is told; it gives up what it has of the queue, and then begins at the new offset

Until it has begun there, members still commit how far they had come before: such commits are dropped. Clients
take up to 10 s to begin anew. In memory: after a restart the offset of the reset is where new members begin.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from posthouse.model.ids import PartitionId

OVERDUE_SECONDS: Final = 10.0
"""Consumers that hold many messages do not pull before they have worked on them."""
TOLD_SECONDS: Final = 30.0
"""By then a client has begun anew, or does not do as it was told."""
LONGEST_WAIT_SECONDS: Final = 600.0


@dataclass(slots=True)
class _Reset:
    offset: int
    since: float
    is_told: bool = False


class OffsetResets:
    """Owned by the event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._groups: dict[str, dict[PartitionId, _Reset]] = {}

    def __contains__(self, group: object) -> bool:
        return group in self._groups

    def begin(self, group: str, offsets: Mapping[PartitionId, int]) -> Callable[[], None]:
        """What is returned takes it back, for those that have not been told."""
        now = self._monotonic()
        begun = {partition: _Reset(offset, now) for partition, offset in offsets.items()}
        self._groups.setdefault(group, {}).update(begun)

        def take_back() -> None:
            known = self._groups.get(group, {})
            for partition, reset in begun.items():
                if known.get(partition) is reset and not reset.is_told:
                    self._end(group, partition)

        return take_back

    def redirect(self, group: str, partition: PartitionId, offset: int) -> int | None:
        """Where a member has to go on that wants to read from `offset`; None if it may read."""
        reset = self._groups.get(group, {}).get(partition)
        if reset is None:
            return None
        if offset == reset.offset:
            self._end(group, partition)
            return None
        if reset.is_told:
            return None  # a pull that was under way, of messages that the client does not take any more
        reset.is_told, reset.since = True, self._monotonic()
        return reset.offset

    def drops(self, group: str, partition: PartitionId, offset: int) -> bool:
        """Whether this commit of a member is of what it had read before the reset."""
        reset = self._groups.get(group, {}).get(partition)
        if reset is None:
            return False
        if reset.is_told and offset == reset.offset:
            self._end(group, partition)
            return False
        return True

    def overdue(self) -> dict[str, dict[PartitionId, int]]:
        """Queues that nobody has pulled from since they were reset, by group."""
        until = self._monotonic() - OVERDUE_SECONDS
        found = {
            group: {
                partition: reset.offset
                for partition, reset in resets.items()
                if not reset.is_told and reset.since <= until
            }
            for group, resets in self._groups.items()
        }
        return {group: offsets for group, offsets in found.items() if offsets}

    def told(self, group: str, partition: PartitionId) -> None:
        """In another way than by `redirect`."""
        reset = self._groups.get(group, {}).get(partition)
        if reset is not None:
            reset.is_told, reset.since = True, self._monotonic()

    def forget_expired(self, has_members: Callable[[str], bool]) -> None:
        """To be called now and then. A group without members has nobody to be told."""
        now = self._monotonic()
        for group, resets in list(self._groups.items()):
            for partition, reset in list(resets.items()):
                longest = TOLD_SECONDS if reset.is_told else LONGEST_WAIT_SECONDS
                if now - reset.since >= longest or not has_members(group):
                    self._end(group, partition)

    def _end(self, group: str, partition: PartitionId) -> None:
        resets = self._groups[group]
        del resets[partition]
        if not resets:
            del self._groups[group]
