"""What members of a streams group are told."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from posthouse.broker.groups.streams_assignor import Tasks
from posthouse.broker.groups.streams_member import Endpoint
from posthouse.broker.groups.streams_topology import InternalTopic, Obstacle
from posthouse.model.ids import MemberId


class Trouble(Enum):
    """What a member is told besides its tasks, where it is no `Obstacle`."""

    STALE_TOPOLOGY = auto()
    SHUTDOWN_APPLICATION = auto()
    ASSIGNMENT_DELAYED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A status, with a sentence about it."""

    status: Trouble | Obstacle
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointTopics:
    """Which partitions are worked on where: topic to partitions."""

    endpoint: Endpoint
    active: Mapping[str, list[int]]
    standby: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsAnswer:
    member: MemberId
    epoch: int
    tasks: Tasks | None = None
    """None: no change."""
    statuses: tuple[Told, ...] = ()
    missing: tuple[InternalTopic, ...] = ()
    """Topics that the group needs and somebody has to create."""
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointTopics, ...] | None = None
    """None: the member knows them."""
