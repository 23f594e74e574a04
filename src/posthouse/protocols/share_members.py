"""Members of share groups, for other protocols: a protocol keeps the members, the broker their progress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from posthouse.model.errors import UnknownGroup
from posthouse.model.ids import GroupId, MemberId, PartitionId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberInfo:
    id: MemberId
    client: str
    host: str
    topics: frozenset[str]


class ShareMembership(Protocol):
    """What a protocol with share groups offers. Every method raises UnknownGroup and NotCoordinator."""

    def members(self, group_id: GroupId) -> Sequence[ShareMemberInfo]: ...

    async def move(self, group_id: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        """Begin anew at these offsets. Raises GroupNotEmpty."""

    async def delete(self, group_id: GroupId) -> None:
        """Raises GroupNotEmpty."""


class ShareMemberships:
    """Filled when the front ends are built. Owned by the event loop."""

    def __init__(self) -> None:
        self._membership: ShareMembership | None = None

    def serve(self, membership: ShareMembership) -> None:
        self._membership = membership

    def members(self, group_id: GroupId) -> Sequence[ShareMemberInfo]:
        """None where no protocol with share groups is served."""
        return () if self._membership is None else self._membership.members(group_id)

    async def move(self, group_id: GroupId, offsets: Mapping[PartitionId, int]) -> None:
        await self._served(group_id).move(group_id, offsets)

    async def delete(self, group_id: GroupId) -> None:
        await self._served(group_id).delete(group_id)

    def _served(self, group_id: GroupId) -> ShareMembership:
        if self._membership is None:
            raise UnknownGroup(
                f"the share group {group_id!r} cannot be changed: no protocol serves share groups"
            )
        return self._membership
