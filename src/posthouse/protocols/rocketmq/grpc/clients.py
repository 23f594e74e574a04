"""Clients of the gRPC protocol, by the id that each call names, and what they have said of themselves.

A client that the broker does not know is made known by any call: after a restart of the broker nobody has to
begin anew. Until clients from before it must have been heard of, each group counts as having a member that
wants everything: the first that is back would otherwise pass over what the others want. For the same reason
the filters of a member that is gone count for some minutes more.
"""

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from posthouse.broker.filters.filter import EVERYTHING, Filter
from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.protocol_members import Software
from posthouse.broker.subscriptions.key_order import KeyOrder
from posthouse.model.errors import AccessRefused, BadRequest
from posthouse.model.ids import GroupId, MemberId, PartitionId
from posthouse.protocols.noop import noop
from posthouse.protocols.rocketmq.clients import compile_filter
from posthouse.protocols.rocketmq.grpc.departed_filters import DepartedFilters
from posthouse.protocols.rocketmq.grpc.transaction_ids import topic_of_group

EXPIRY_SECONDS: Final = 60.0
"""Clients send a heartbeat every 10 s."""
MOST_OF_CONNECTION: Final = 1000
"""Clients that one connection can name."""
_MOST_TOPICS: Final = 10_000
"""That a client can subscribe to."""
_MOST_GROUPS: Final = 100
"""That a client can consume in."""
_ATTEMPTS: Final = 32
"""Of receiving messages that are remembered for a client."""

ALL: Final = ("TAG", "*")


class Connection(Protocol):
    peer: str
    """Address and port."""
    software: Software
    """Of its clients."""


class Telemetry(Protocol):
    """The stream on which a client is told something."""

    def ask(self, id: int, message: HalfMessage) -> bool:
        """Ask the client what was decided of a half message. False if it cannot be asked now."""


Filters = dict[str, tuple[tuple[str, str], Filter]]
"""By topic: the expression with its type, and what it was compiled to."""


@dataclass(slots=True, eq=False)
class Client:
    id: MemberId
    user: str
    """Whose client it is: ids are no secret."""
    connections: set[Connection] = field(default_factory=set)
    """From which it was heard: usually one."""
    peer: str = ""
    """Address and port of the last one."""
    software: Software = Software()
    seen: float = 0.0
    telemetry: Telemetry | None = None
    published: frozenset[str] = frozenset()
    """Topics that it says it sends to."""
    groups: dict[GroupId, Filters] = field(default_factory=dict)
    """That it consumes in: usually one, but some share a client among several."""
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
        disconnected: Callable[[GroupId, MemberId], None],
        left_alone: Callable[[], None] = noop,
    ) -> None:
        """`filters_changed`: the group wants other messages than before. `gone`: a member will not
        acknowledge anything any more. `disconnected`: a connection of it has ended.
        `left_alone`: the last connection has ended, and clients of it are still known."""
        self._monotonic = monotonic
        self._filters_changed = filters_changed
        self._gone = gone
        self._disconnected = disconnected
        self._left_alone = left_alone
        self._clients: dict[MemberId, Client] = {}
        self._by_connection: dict[Connection, set[MemberId]] = {}
        self._groups: dict[GroupId, Members] = {}
        self._departed = DepartedFilters(monotonic)
        self._publishers: dict[str, dict[MemberId, Client]] = {}
        """By topic, the one that was asked last at the end."""
        self._awaited_until = monotonic() + EXPIRY_SECONDS
        self._are_awaited = True
        """Clients from before the broker was started."""

    def __len__(self) -> int:
        return len(self._clients)

    def __iter__(self) -> Iterator[Client]:
        return iter(self._clients.values())

    @property
    def are_alone(self) -> bool:
        """Some are known, and none is connected."""
        return bool(self._clients) and not self._by_connection

    def heard(self, id: MemberId, connection: Connection, user: str) -> Client:
        """Raises BadRequest if the connection speaks for too many, and AccessRefused if the client is another
        user's."""
        client = self._clients.get(id)
        if client is not None and client.user != user:
            raise AccessRefused(f"the client id {id!r} is used by another user")
        if client is None:
            client = Client(id, user)
            self._bind(client, connection)
            self._clients[id] = client
        elif connection not in client.connections:
            self._bind(client, connection)
        client.seen = self._monotonic()
        return client

    def is_known(self, client: Client) -> bool:
        """Whether it has not ended, and was not forgotten."""
        return self._clients.get(client.id) is client

    def _bind(self, client: Client, connection: Connection) -> None:
        ids = self._by_connection.setdefault(connection, set())
        if len(ids) >= MOST_OF_CONNECTION:
            raise BadRequest(f"{MOST_OF_CONNECTION} clients share one connection; open another")
        ids.add(client.id)
        client.connections.add(connection)
        client.peer, client.software = connection.peer, connection.software

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
        """Raises BadRequest."""
        if group not in client.groups:
            if len(client.groups) >= _MOST_GROUPS:
                raise BadRequest(f"a client can consume in {_MOST_GROUPS} groups; use another client")
            client.groups[group] = {}
            self._groups.setdefault(group, Members()).clients[client.id] = client
        return self._groups[group]

    def subscribes(
        self, client: Client, group: GroupId, topic: str, expression_type: str, expression: str
    ) -> Filter:
        """The client has joined. Raises InvalidFilter, and BadRequest."""
        said = (expression_type, expression) if expression else ALL
        filters = client.groups[group]
        known = filters.get(topic)
        if known is not None and known[0] == said:
            return known[1]
        if known is None and sum(map(len, client.groups.values())) >= _MOST_TOPICS:
            raise BadRequest(f"a client can subscribe to {_MOST_TOPICS} topics")
        compiled = EVERYTHING if said == ALL else compile_filter(*said)
        filters[topic] = said, compiled
        self._filters_changed(group)
        return compiled

    def subscribes_only(self, client: Client, group: GroupId, topics: Container[str]) -> None:
        """To no others in the group."""
        filters = client.groups[group]
        others = [topic for topic in filters if topic not in topics]
        for topic in others:
            del filters[topic]
        if others:
            self._filters_changed(group)

    def filters_of(self, group: GroupId, topic: str) -> Mapping[tuple[str, str], Filter]:
        """What its members want of the topic, or have wanted who left a short while ago, each expression
        once; everything while others are awaited."""
        if self._are_awaited:
            return {ALL: EVERYTHING}
        filters = dict(self._departed.of(group, topic))
        members = self._groups.get(group)
        if members is not None:
            found = (client.groups[group].get(topic) for client in members.clients.values())
            filters.update(each for each in found if each is not None)
        return filters

    def members(self, group: GroupId) -> Members | None:
        return self._groups.get(group)

    def groups(self) -> list[GroupId]:
        return list(self._groups)

    # Their end

    def remove(self, client: Client) -> None:
        """It says that it ends, or was not heard of for long."""
        self._clients.pop(client.id, None)
        for connection in client.connections:
            ids = self._by_connection[connection]
            ids.discard(client.id)
            if not ids:
                del self._by_connection[connection]
        for name in client.published:
            self._remove_publisher(name, client)
        for group in list(client.groups):
            self._leave(client, group)

    def lost(self, connection: Connection) -> None:
        """The connection has ended. Its clients may come back by another one: they are forgotten only when
        they are not heard of. Telemetry may be another connection's."""
        for id in self._by_connection.pop(connection, ()):
            client = self._clients[id]
            client.connections.discard(connection)
            for group in client.groups:
                self._disconnected(group, id)
        if self.are_alone:
            self._left_alone()

    def forget_silent(self) -> None:
        now = self._monotonic()
        changed = self._departed.forget_expired()
        if self._are_awaited and now >= self._awaited_until:
            self._are_awaited = False
            changed.update(self._groups)
        for group in changed:
            self._filters_changed(group)
        expired = now - EXPIRY_SECONDS
        for client in [each for each in self._clients.values() if each.seen < expired]:
            self.remove(client)

    def _leave(self, client: Client, group: GroupId) -> None:
        members = self._groups[group]
        del members.clients[client.id]
        for topic, (expression, wanted) in client.groups.pop(group).items():
            self._departed.keep(group, topic, expression, wanted)
        if not members.clients:
            del self._groups[group]
        self._gone(group, client.id)

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
