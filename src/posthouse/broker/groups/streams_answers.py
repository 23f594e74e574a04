"""Answers to members of a streams group."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.groups.streams_assignor import Tasks
from posthouse.broker.groups.streams_member import UserEndpoint
from posthouse.broker.groups.streams_topology import InternalTopic, Obstacle
from posthouse.model.ids import MemberId


class Trouble(Enum):
    """A status of a member besides its tasks, other than an `Obstacle`."""

    STALE_TOPOLOGY = auto()
    SHUTDOWN_APPLICATION = auto()
    ASSIGNMENT_DELAYED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A status with its detail text."""

    status: Trouble | Obstacle
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointTopics:
    """The partitions that one endpoint processes: topic to partitions."""

    endpoint: UserEndpoint
    active: Mapping[str, list[int]]
    standby: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsAnswer:
    member: MemberId
    epoch: int
    tasks: Tasks | None = None
    """None: unchanged."""
    statuses: tuple[Told, ...] = ()
    missing: tuple[InternalTopic, ...] = ()
    """Internal topics that have to be created."""
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointTopics, ...] | None = None
    """None: unchanged."""
