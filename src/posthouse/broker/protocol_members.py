"""Members of groups that a protocol keeps, and not the broker: for views of groups, and for what is refused
while a group has members."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from posthouse.model.errors import GroupNotEmpty
from posthouse.model.ids import GroupId, MemberId

_ADVICE: Final = "stop its consumers and try again"


class FilterText(NamedTuple):
    """Of a subscription."""

    language: str
    """The name that the protocol has for it."""
    text: str


class Software(NamedTuple):
    """Of a client, as far as it has told."""

    name: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolMember:
    id: MemberId
    client: str
    """Its name."""
    host: str
    """In Kafka's notation."""
    peer: str = ""
    """Address and port of its connection; empty while it has none."""
    software: Software = Software()
    topics: frozenset[str] = frozenset()
    """Subscribed to."""
    filters: Mapping[str, FilterText] = field(default_factory=dict)
    """By topic; nothing for those of which it takes all records."""
    follows_resets: bool = False
    """It goes on where its group is reset to. Others would commit over that."""


class MemberSource(Protocol):
    """The members of one protocol."""

    leases: bool
    """They lease records of a subscription. Otherwise they commit offsets."""

    def members(self, group: GroupId) -> Sequence[ProtocolMember]:
        """None if the group is unknown."""

    def groups(self) -> Iterable[GroupId]:
        """Those with members."""


class ProtocolMembers:
    """Filled when the front ends are built. Owned by the event loop."""

    def __init__(self) -> None:
        self._sources: list[MemberSource] = []

    def add(self, source: MemberSource) -> None:
        self._sources.append(source)

    def of(self, group: GroupId, *, besides: MemberSource | None = None) -> list[ProtocolMember]:
        """`besides` is a source that is left out."""
        return [member for each in self._sources if each is not besides for member in each.members(group)]

    def committing(self, group: GroupId) -> list[ProtocolMember]:
        """Those that commit offsets."""
        return [member for each in self._sources if not each.leases for member in each.members(group)]

    def groups(self, *, leases: bool | None = None) -> list[GroupId]:
        """With members that lease, or with such that commit; None means both."""
        found = (each.groups() for each in self._sources if leases is None or each.leases is leases)
        return list(dict.fromkeys(group for groups in found for group in groups))

    def check_none(self, group: GroupId) -> None:
        """Raises GroupNotEmpty if the group has such members."""
        if members := self.of(group):
            raise GroupNotEmpty(f"the group {group!r} has {_counted(len(members))}; {_ADVICE}")

    def check_resettable(self, group: GroupId) -> None:
        """Raises GroupNotEmpty if the group has members that would not follow."""
        if count := sum(not each.follows_resets for each in self.of(group)):
            raise GroupNotEmpty(f"the group {group!r} has {_counted(count)} that would not follow; {_ADVICE}")


def _counted(members: int) -> str:
    return "a member" if members == 1 else f"{members} members"
