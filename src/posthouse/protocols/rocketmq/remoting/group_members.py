"""Consumers of the remoting protocol as members of their groups, for other protocols."""

from typing import Final

from posthouse.broker.protocol_members import FilterText, ProtocolMember, Software
from posthouse.model.errors import InvalidTopicName
from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.rocketmq.clients import Clients, Member, host_of
from posthouse.protocols.rocketmq.codec.heartbeats import Subscription
from posthouse.protocols.rocketmq.names import topic_name

_EVERYTHING: Final = ("*", "")


class RemotingMembers:
    leases = False

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def groups(self) -> list[GroupId]:
        return [GroupId(each) for each in self._clients.consumer_groups()]

    def members(self, group: GroupId) -> list[ProtocolMember]:
        """A client with several connections is one."""
        return list({each.client: _member(each) for each in self._clients.consumers(group)}.values())


def _member(member: Member) -> ProtocolMember:
    subscriptions = {
        name: each for each in member.group.subscriptions if (name := _topic(each.topic)) is not None
    }
    connection = member.connection
    return ProtocolMember(
        id=MemberId(member.client),
        client=member.client,
        host=host_of(connection.peer),
        peer=connection.peer,
        software=Software(connection.language),
        topics=frozenset(subscriptions),
        filters={
            name: FilterText(each.expression_type, each.expression)
            for name, each in subscriptions.items()
            if _selects(each)
        },
        follows_resets=True,
    )


def _selects(subscription: Subscription) -> bool:
    return subscription.expression not in _EVERYTHING


def _topic(name: str) -> str | None:
    """In the log. None for a name that no topic can have."""
    try:
        return topic_name(name)
    except InvalidTopicName:
        return None
