"""Clients and the groups that they belong to, as their heartbeats say.

Each client has its own subscriptions: two of one group that subscribe differently each get what they asked
for, of the queues that each of them reads, and nothing else. See `mixed_subscriptions` for what is lost.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from posthouse.broker.filters.filter import Filter
from posthouse.broker.filters.sql import compile_sql
from posthouse.broker.filters.tags import compile_tags
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.model.errors import BadRequest, InvalidFilter
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.heartbeats import (
    BROADCASTING,
    SQL_EXPRESSION,
    TAG_EXPRESSION,
    ConsumerGroup,
    Heartbeat,
    Subscription,
)
from posthouse.protocols.rocketmq.mixed_subscriptions import MixedSubscriptions, Subscribed

EXPIRY_SECONDS: Final = 120.0
"""Clients send a heartbeat every 30 s."""
MOST_HEARTBEAT_BYTES: Final = 1024 * 1024
"""Of the heartbeats that are remembered for one connection: of one client, or of several small ones."""


class ClientConnection(Protocol):
    peer: str
    language: str
    version: int
    """Of the client, as in its requests."""

    def check_transaction(self, id: int, message: HalfMessage) -> bool:
        """Ask the client what was decided of a half message. False if it cannot be asked now."""

    def members_changed(self, group: str) -> None:
        """Tell the client that clients have joined or left the group."""

    def ask(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> "asyncio.Future[Command]":
        """A request of the broker to the client. Raises Unavailable if it cannot be sent; so does the future
        if no answer comes."""

    def reset_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Tell the client to go on at these offsets, by queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A client that consumes in a group."""

    connection: ClientConnection
    client: str
    group: ConsumerGroup


def host_of(peer: str) -> str:
    """In Kafka's notation, for views of groups."""
    host = peer.rpartition(":")[0].strip("[]")
    return f"/{host}" if host else ""


def compile_filter(expression_type: str, expression: str) -> Filter:
    """Raises InvalidFilter."""
    if expression_type == SQL_EXPRESSION:
        return compile_sql(expression)
    if expression_type in (TAG_EXPRESSION, ""):
        return compile_tags(expression)
    raise InvalidFilter(1, f"an expression of type {TAG_EXPRESSION} or {SQL_EXPRESSION}", expression_type)


@dataclass(slots=True)
class _Client:
    id: str
    seen: float
    size: int = 0
    """Bytes of its last heartbeat."""
    producer_groups: frozenset[str] = frozenset()
    groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    filters: dict[tuple[str, str], tuple[Subscription, Filter]] = field(default_factory=dict)
    """By group and topic."""


class Clients:
    """Owned by the event loop."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._connections: dict[ClientConnection, dict[str, _Client]] = {}
        self._consumers: dict[str, dict[ClientConnection, dict[str, None]]] = {}
        """Ids by group and connection."""
        self._producers: dict[str, dict[ClientConnection, None]] = {}
        """By group, the one that was asked last at the end."""
        self._by_id: dict[str, dict[ClientConnection, None]] = {}
        """The one that has connected last at the end."""
        self._mixed = MixedSubscriptions()

    def beat(self, connection: ClientConnection, heartbeat: Heartbeat, size: int) -> None:
        """Raises InvalidFilter and BadRequest, and then nothing has changed. `size` is the heartbeat's."""
        clients = self._connections.get(connection, {})
        others = sum(each.size for each in clients.values() if each.id != heartbeat.client)
        if others + size > MOST_HEARTBEAT_BYTES:
            raise BadRequest(f"heartbeats of one connection may have {MOST_HEARTBEAT_BYTES} bytes together")
        known = clients.get(heartbeat.client)
        before = {} if known is None else known.groups
        groups = {each.name: each for each in heartbeat.consumer_groups}
        filters = _compiled(groups, {} if known is None else known.filters)
        client = known or _Client(heartbeat.client, 0.0)
        client.seen, client.size = self._monotonic(), size
        left = client.producer_groups - set(heartbeat.producer_groups)
        client.producer_groups = frozenset(heartbeat.producer_groups)
        for name in left:
            self._remove_producer(name, connection)
        for name in client.producer_groups:
            self._producers.setdefault(name, {}).setdefault(connection)
        differing = _differing(client.filters, filters)
        client.groups, client.filters = groups, filters
        self._connections.setdefault(connection, clients)[client.id] = client
        self._by_id.setdefault(client.id, {}).setdefault(connection)
        for name in groups.keys() - before.keys():
            self._consumers.setdefault(name, {}).setdefault(connection, {})[client.id] = None
        for name in before.keys() - groups.keys():
            self._remove_consumer(name, connection, client.id)
        changed = [
            name
            for name in groups.keys() | before.keys()
            if name not in before or name not in groups or _topics(before[name]) != _topics(groups[name])
        ]
        self._tell(changed)
        self._compare(differing - set(changed))

    def filter_of(self, connection: ClientConnection, group: str, topic: str) -> Filter | None:
        """None if no client of the connection has subscribed to the topic. A pull does not say which client
        sends it; those of one connection are expected to be of different groups."""
        for client in self._connections.get(connection, {}).values():
            if (found := client.filters.get((group, topic))) is not None:
                return found[1]
        return None

    def differing_filters(self, group: str, topic: str) -> list[Filter]:
        """What members of the group want of the topic, if not all want the same."""
        return self._mixed.filters(group, topic)

    def members(self, group: str) -> list[str]:
        """Ids of the clients that consume in the group, each once."""
        by_connection = self._consumers.get(group, {}).values()
        return list(dict.fromkeys(id for ids in by_connection for id in ids))

    def consumers(self, group: str) -> list[Member]:
        """As `members`; a client with several connections may be there several times."""
        return [
            Member(connection=connection, client=id, group=self._connections[connection][id].groups[group])
            for connection, ids in self._consumers.get(group, {}).items()
            for id in ids
        ]

    def consumer_groups(self) -> list[str]:
        return list(self._consumers)

    def producers(self, group: str) -> list[tuple[ClientConnection, str]]:
        """Clients of the group, with their ids."""
        return [
            (connection, client.id)
            for connection in self._producers.get(group, {})
            for client in self._connections[connection].values()
            if group in client.producer_groups
        ]

    def shares_offsets(self, connection: ClientConnection, group: str) -> bool:
        """Whether a client of the connection consumes in the group, which has its offsets in the broker."""
        for id in self._consumers.get(group, {}).get(connection, ()):
            if self._connections[connection][id].groups[group].message_model != BROADCASTING:
                return True
        return False

    def connection_of(self, id: str) -> ClientConnection | None:
        """That of the client with this id: the last, if it has several."""
        return next(reversed(self._by_id.get(id, {})), None)

    def unregister(
        self, connection: ClientConnection, client_id: str, producer_group: str, consumer_group: str
    ) -> None:
        """The client leaves the groups that are named."""
        client = self._connections.get(connection, {}).get(client_id)
        if client is None:
            return
        if producer_group in client.producer_groups:
            client.producer_groups -= {producer_group}
            self._remove_producer(producer_group, connection)
        if client.groups.pop(consumer_group, None) is not None:
            client.filters = {
                place: found for place, found in client.filters.items() if place[0] != consumer_group
            }
            self._remove_consumer(consumer_group, connection, client_id)
            self._tell([consumer_group])

    def leave(self, connection: ClientConnection) -> None:
        """The connection is lost."""
        clients = self._connections.pop(connection, {})
        for id in clients:
            self._remove_id(id, connection)
        for name in {name for client in clients.values() for name in client.producer_groups}:
            self._remove_producer(name, connection)
        left = [(name, client.id) for client in clients.values() for name in client.groups]
        for name, client_id in left:
            self._remove_consumer(name, connection, client_id)
        self._tell(dict.fromkeys(name for name, _ in left))

    def forget_silent(self) -> None:
        """Those without a heartbeat for long, whose connection may be open all the same. To be called now and
        then."""
        expired = self._monotonic() - EXPIRY_SECONDS
        changed: dict[str, None] = {}
        for connection, clients in list(self._connections.items()):
            for client in [each for each in clients.values() if each.seen < expired]:
                del clients[client.id]
                self._remove_id(client.id, connection)
                for name in client.producer_groups:
                    self._remove_producer(name, connection)
                for name in client.groups:
                    self._remove_consumer(name, connection, client.id)
                    changed[name] = None
            if not clients:
                del self._connections[connection]
        self._tell(changed)

    def ask(self, id: int, message: HalfMessage) -> bool:
        """Ask a producer of the message's group, in turn, what was decided. False if none can be asked: also
        of messages for exchanges, which RocketMQ does not know."""
        if message.content.partition is None:
            return False
        producers = self._producers.get(message.group, {})
        for connection in list(producers):
            del producers[connection]
            producers[connection] = None
            if connection.check_transaction(id, message):
                return True
        return False

    def _remove_id(self, id: str, connection: ClientConnection) -> None:
        connections = self._by_id[id]
        del connections[connection]
        if not connections:
            del self._by_id[id]

    def _remove_producer(self, group: str, connection: ClientConnection) -> None:
        """Unless another client of the connection is one."""
        clients = self._connections.get(connection, {}).values()
        if not any(group in client.producer_groups for client in clients):
            producers = self._producers.get(group, {})
            producers.pop(connection, None)
            if not producers:
                self._producers.pop(group, None)

    def _remove_consumer(self, group: str, connection: ClientConnection, client_id: str) -> None:
        by_connection = self._consumers.get(group, {})
        ids = by_connection.get(connection, {})
        ids.pop(client_id, None)
        if not ids:
            by_connection.pop(connection, None)
        if not by_connection:
            self._consumers.pop(group, None)

    def _tell(self, groups: Iterable[str]) -> None:
        """The groups have other members, or members with other topics, than before."""
        groups = list(groups)
        for name in groups:
            for connection in self._consumers.get(name, {}):
                connection.members_changed(name)
        self._compare(groups)

    def _compare(self, groups: Iterable[str]) -> None:
        for name in groups:
            self._mixed.compare(name, self._subscribed(name))

    def _subscribed(self, group: str) -> Iterator[Subscribed]:
        """Members that broadcast are left out: what one of them does not read is not lost for others."""
        for connection, ids in self._consumers.get(group, {}).items():
            for client in (self._connections[connection][id] for id in ids):
                if client.groups[group].message_model == BROADCASTING:
                    continue
                for each in client.groups[group].subscriptions:
                    yield Subscribed(client.id, *client.filters[group, each.topic])


def _topics(group: ConsumerGroup) -> set[str]:
    return {each.topic for each in group.subscriptions}


_Compiled = Mapping[tuple[str, str], tuple[Subscription, Filter]]


def _differing(before: _Compiled, now: _Compiled) -> set[str]:
    """Groups in which the client has subscribed otherwise than before."""
    return {place[0] for place in (*before, *now) if before.get(place) is not now.get(place)}


def _compiled(
    groups: Mapping[str, ConsumerGroup], known: Mapping[tuple[str, str], tuple[Subscription, Filter]]
) -> dict[tuple[str, str], tuple[Subscription, Filter]]:
    """Heartbeats repeat what is known: only what has changed is compiled."""
    compiled: dict[tuple[str, str], tuple[Subscription, Filter]] = {}
    for group in groups.values():
        for each in group.subscriptions:
            place = group.name, each.topic
            found = known.get(place)
            if (
                found is None
                or found[0].expression != each.expression
                or found[0].expression_type != each.expression_type
            ):
                found = each, compile_filter(each.expression_type, each.expression)
            compiled[place] = found
    return compiled
