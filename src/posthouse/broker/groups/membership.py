"""What members of a classic group say, and what they are told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from posthouse.model.errors import PosthouseError
from posthouse.model.ids import InstanceId, MemberId

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedProtocol:
    """One way of sharing partitions out that a member knows; what the bytes mean is its own business."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberClient:
    """Who is behind a member, for people who look at a group."""

    id: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member: MemberId | None
    """None: a member that has no id yet."""
    instance: InstanceId | None = None
    client: MemberClient = MemberClient()
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    session_seconds: float
    rebalance_seconds: float
    must_know_its_id: bool = False
    """A new member is first given an id, and counts when it comes back with it."""
    can_skip_assignment: bool = False
    """The member understands that it leads without having to share out anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    id: MemberId
    instance: InstanceId | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    member: MemberId
    generation: int
    protocol_type: str
    protocol: str
    leader: MemberId
    members: tuple[JoinedMember, ...] = ()
    """Everybody, for the leader only."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """Who a member claims to be, and in which generation of its group."""

    member: MemberId
    generation: int = NO_GENERATION
    instance: InstanceId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    identity: MemberIdentity
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[MemberId, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """A member by its id, or a static one by the name of its instance."""

    member: MemberId | None
    instance: InstanceId | None = None


ResultT = TypeVar("ResultT")
Reply: TypeAlias = Callable[[ResultT | PosthouseError], None]
"""Called once, now or later, with what became of a request."""
