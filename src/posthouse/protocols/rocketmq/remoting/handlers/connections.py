"""Connected clients, as tools show them."""

from collections.abc import Coroutine
from typing import Any, Final

from posthouse.broker.access.operations import CLUSTER, Kind, Operation
from posthouse.broker.protocol_members import ProtocolMember
from posthouse.protocols.rocketmq.client_versions import language_of, version_number
from posthouse.protocols.rocketmq.clients import ClientConnection
from posthouse.protocols.rocketmq.codec.administration import (
    ClientInfo,
    encode_consumer_connections,
    encode_producer_connections,
)
from posthouse.protocols.rocketmq.codec.codes import RequestCode, ResponseCode
from posthouse.protocols.rocketmq.codec.heartbeats import ConsumerGroup
from posthouse.protocols.rocketmq.remoting.call import Call, check_allowed
from posthouse.protocols.rocketmq.remoting.errors import Refused
from posthouse.protocols.rocketmq.remoting.handlers.groups import others, subscriptions_of

_PASSED_ON: Final[tuple[str, ...]] = ("consumerGroup", "clientId", "jstackEnable")


def consumers(call: Call) -> None:
    group = call.text("consumerGroup")
    check_allowed(call, Operation.DESCRIBE, Kind.GROUP, group)
    server = call.connection.server
    found, other = server.clients.consumers(group), others(server, group)
    if not found and not other:
        raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"no client consumes in the group {group!r}")
    groups = [member.group for member in found]
    groups += [ConsumerGroup(name=group, subscriptions=tuple(subscriptions_of(each))) for each in other]
    subscriptions = {each.topic: each for one in groups for each in one.subscriptions}
    infos = [_info(member.connection, member.client) for member in found] + [
        _other_info(each) for each in other
    ]
    call.answer(body=encode_consumer_connections(infos, groups[0], subscriptions.values()))


def producers(call: Call) -> None:
    """For operators: groups of producers have no permissions of their own."""
    group = call.text("producerGroup")
    check_allowed(call, Operation.DESCRIBE, Kind.CLUSTER, CLUSTER)
    found = call.connection.server.clients.producers(group)
    if not found:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"no client produces in the group {group!r}")
    call.answer(body=encode_producer_connections(_info(connection, id) for connection, id in found))


def _info(connection: ClientConnection, client: str) -> ClientInfo:
    return ClientInfo(
        client=client, address=connection.peer, language=connection.language, version=connection.version
    )


def _other_info(member: ProtocolMember) -> ClientInfo:
    """Of a client that uses another protocol."""
    return ClientInfo(
        client=member.id,
        address=member.peer,
        language=language_of(member.software.name),
        version=version_number(member.software.version),
    )


def running_info(call: Call) -> Coroutine[Any, Any, None]:
    """What a consumer says of itself."""
    group, client = call.text("consumerGroup"), call.text("clientId")
    check_allowed(call, Operation.DESCRIBE, Kind.GROUP, group)
    for member in call.connection.server.clients.consumers(group):
        if member.client == client:
            return _running_info(call, member.connection)
    if any(each.id == client for each in others(call.connection.server, group)):
        raise Refused(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"the client {client!r} uses another protocol, in which clients do not tell this",
        )
    raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"no client {client!r} consumes in the group {group!r}")


async def _running_info(call: Call, connection: ClientConnection) -> None:
    # Not the login of the one who asks: a signature does not say which request it was for.
    fields = {name: call.request.fields[name] for name in _PASSED_ON if name in call.request.fields}
    answer = await connection.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    call.answer(answer.code, remark=answer.remark, body=bytes(answer.body))
