"""Consumers of the gRPC protocol as members of their groups, for other protocols."""

from posthouse.broker.protocol_members import FilterText, ProtocolMember
from posthouse.model.ids import GroupId
from posthouse.protocols.rocketmq.clients import host_of
from posthouse.protocols.rocketmq.grpc.clients import ALL, Client, GrpcClients


class GrpcMembers:
    leases = True

    def __init__(self, clients: GrpcClients) -> None:
        self._clients = clients

    def groups(self) -> list[GroupId]:
        return self._clients.groups()

    def members(self, group: GroupId) -> list[ProtocolMember]:
        members = self._clients.members(group)
        return [] if members is None else [_member(client, group) for client in members.clients.values()]


def _member(client: Client, group: GroupId) -> ProtocolMember:
    subscribed = client.groups[group]
    return ProtocolMember(
        id=client.id,
        client=client.id,
        host=host_of(client.peer),
        peer=client.peer if client.connections else "",
        software=client.software,
        topics=frozenset(subscribed),
        filters={topic: FilterText(*said) for topic, (said, _) in subscribed.items() if said != ALL},
        follows_resets=True,
    )
