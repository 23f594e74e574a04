"""Requests and answers of members of a classic group."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from posthouse.model.errors import PosthouseError
from posthouse.model.ids import InstanceId, MemberId

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedProtocol:
    """One assignment protocol that a member supports; its metadata is opaque to the broker."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberClient:
    """The client of a member, for descriptions."""

    id: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    member: MemberId | None
    """None: a new member without an id."""
    instance: InstanceId | None = None
    client: MemberClient = MemberClient()
    protocol_type: str
    protocols: tuple[OfferedProtocol, ...]
    session_seconds: float
    rebalance_seconds: float
    must_know_its_id: bool = False
    """A new member first gets an id, and joins when it comes back with it."""
    can_skip_assignment: bool = False
    """The member supports leading a group without computing an assignment."""


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
    """All members; for the leader only."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """The identity that a member claims, and its generation."""

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
    """A member by its id, or a static one by its instance id."""

    member: MemberId | None
    instance: InstanceId | None = None


ResultT = TypeVar("ResultT")
Reply: TypeAlias = Callable[[ResultT | PosthouseError], None]
"""Called once, now or later, with the result of a request."""
