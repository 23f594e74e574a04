"""Clients of the gRPC protocol, by the id that each call names, and what they have said of themselves.

A client that the broker does not know is made known by any call: after a restart of the broker nobody has to
begin anew.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from posthouse.broker.filters.filter import EVERYTHING, Filter
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.model.errors import BadRequest
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.protocols.rocketmq.clients import compile_filter
from posthouse.protocols.rocketmq.grpc.transaction_ids import topic_of_group

EXPIRY_SECONDS: Final = 60.0
"""Clients send a heartbeat every 10 s."""
MOST_OF_CONNECTION: Final = 1000
"""Clients that one connection can name."""
_MOST_TOPICS: Final = 10_000
"""That a client can subscribe to."""
_ATTEMPTS: Final = 32
"""Of receiving messages that are remembered for a client."""

ALL: Final = ("TAG", "*")


class Telemetry(Protocol):
    """The stream on which a client is told something."""

    def ask(self, id: int, message: HalfMessage) -> bool:
        """Ask the client what was decided of a half message. False if it cannot be asked now."""


@dataclass(slots=True, eq=False)
class Client:
    id: MemberId
    connection: object
    """From which it was heard last."""
    seen: float
    telemetry: Telemetry | None = None
    published: frozenset[str] = frozenset()
    """Topics that it says it sends to."""
    group: GroupId | None = None
    filters: dict[str, tuple[tuple[str, str], Filter]] = field(default_factory=dict)
    """By topic: the expression with its type, and what it was compiled to."""
    attempts: "OrderedDict[str, list[tuple[PartitionId, list[int]]]]" = field(default_factory=OrderedDict)
    """What was leased to it, by the ids that it gave its attempts to receive something."""

    def attempted(self, attempt: str, leased: list[tuple[PartitionId, list[int]]]) -> None:
        self.attempts[attempt] = leased
        while len(self.attempts) > _ATTEMPTS:
            self.attempts.popitem(last=False)


@dataclass(slots=True)
class Members:
    """Of one consumer group."""

    clients: dict[MemberId, Client] = field(default_factory=dict)
    order: KeyOrder = field(default_factory=KeyOrder)


class GrpcClients:
    """Owned by the event loop."""

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        filters_changed: Callable[[GroupId], None],
        gone: Callable[[GroupId, MemberId], None],
    ) -> None:
        """`filters_changed`: members of the group want other messages than before. `gone`: a member will not
        acknowledge anything any more."""
        self._monotonic = monotonic
        self._filters_changed = filters_changed
        self._gone = gone
        self._clients: dict[MemberId, Client] = {}
        self._by_connection: dict[object, set[MemberId]] = {}
        self._groups: dict[GroupId, Members] = {}
        self._publishers: dict[str, dict[MemberId, Client]] = {}
        """By topic, the one that was asked last at the end."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    def heard(self, id: MemberId, connection: object) -> Client:
        """Raises BadRequest if the connection speaks for too many."""
        client = self._clients.get(id)
        if client is None:
            client = self._clients[id] = Client(id, connection, 0.0)
            self._bind(client, connection)
        elif client.connection is not connection:
            self._unbind(client)
            self._bind(client, connection)
        client.seen = self._monotonic()
        return client

    def _bind(self, client: Client, connection: object) -> None:
        ids = self._by_connection.setdefault(connection, set())
        if len(ids) >= MOST_OF_CONNECTION:
            self.remove(client)
            raise BadRequest(f"{MOST_OF_CONNECTION} clients share one connection")
        client.connection = connection
        ids.add(client.id)

    def _unbind(self, client: Client) -> None:
        ids = self._by_connection.get(client.connection)
        if ids is not None:
            ids.discard(client.id)
            if not ids:
                del self._by_connection[client.connection]

    # What clients say

    def publishes(self, client: Client, topics: frozenset[str]) -> None:
        """All topics that it sends to. Raises BadRequest."""
        if len(topics) > _MOST_TOPICS:
            raise BadRequest(f"a client can send to {_MOST_TOPICS} topics")
        for name in client.published - topics:
            self._remove_publisher(name, client)
        for name in topics:
            self._publishers.setdefault(name, {}).setdefault(client.id, client)
        client.published = topics

    def joins(self, client: Client, group: GroupId) -> Members:
        if client.group != group:
            self._leave_group(client)
            client.group = group
            self._groups.setdefault(group, Members()).clients[client.id] = client
        return self._groups[group]

    def subscribes(self, client: Client, topic: str, expression_type: str, expression: str) -> Filter:
        """Raises InvalidFilter, and BadRequest."""
        said = (expression_type, expression) if expression else ALL
        known = client.filters.get(topic)
        if known is not None and known[0] == said:
            return known[1]
        if known is None and len(client.filters) >= _MOST_TOPICS:
            raise BadRequest(f"a client can subscribe to {_MOST_TOPICS} topics")
        compiled = EVERYTHING if said == ALL else compile_filter(*said)
        client.filters[topic] = said, compiled
        self._changed(client)
        return compiled

    def unsubscribes(self, client: Client, topics: Sequence[str]) -> None:
        for topic in topics:
            client.filters.pop(topic, None)
        if topics:
            self._changed(client)

    def filters_of(self, group: GroupId, topic: str) -> Mapping[tuple[str, str], Filter]:
        """What its members want of the topic, each expression once."""
        members = self._groups.get(group)
        if members is None:
            return {}
        found = (client.filters.get(topic) for client in members.clients.values())
        return dict(each for each in found if each is not None)

    def members(self, group: GroupId) -> Members | None:
        return self._groups.get(group)

    def _changed(self, client: Client) -> None:
        if client.group is not None:
            self._filters_changed(client.group)

    # Their end

    def remove(self, client: Client) -> None:
        """It says that it ends, or was not heard of for long."""
        self._clients.pop(client.id, None)
        self._unbind(client)
        for name in client.published:
            self._remove_publisher(name, client)
        self._leave_group(client)

    def lost(self, connection: object) -> None:
        """The connection has ended. Its clients may come back by another one: they are forgotten only when
        they are not heard of."""
        for id in self._by_connection.pop(connection, ()):
            self._clients[id].telemetry = None

    def forget_silent(self) -> None:
        expired = self._monotonic() - EXPIRY_SECONDS
        for client in [each for each in self._clients.values() if each.seen < expired]:
            self.remove(client)

    def _leave_group(self, client: Client) -> None:
        group = client.group
        if group is None:
            return
        members = self._groups[group]
        del members.clients[client.id]
        client.group = None
        client.filters.clear()
        if not members.clients:
            del self._groups[group]
        self._gone(group, client.id)
        self._filters_changed(group)

    # Half messages

    def ask(self, id: int, message: HalfMessage) -> bool:
        """Ask a producer that sends to the message's topic, in turn. False if none can be asked."""
        topic = topic_of_group(message.group)
        if topic is None or message.content.partition is None:
            return False
        publishers = self._publishers.get(topic, {})
        for client in list(publishers.values()):
            publishers[client.id] = publishers.pop(client.id)
            if client.telemetry is not None and client.telemetry.ask(id, message):
                return True
        return False

    def _remove_publisher(self, topic: str, client: Client) -> None:
        publishers = self._publishers.get(topic)
        if publishers is not None:
            publishers.pop(client.id, None)
            if not publishers:
                del self._publishers[topic]
