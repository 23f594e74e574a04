"""The registry of clients, without connections of the network."""

import asyncio
from collections.abc import Mapping

import pytest

from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.clock import ManualClock
from posthouse.model.errors import BadRequest, InvalidFilter
from posthouse.protocols.rocketmq import clients as module
from posthouse.protocols.rocketmq.clients import EXPIRY_SECONDS, Clients, compile_filter
from posthouse.protocols.rocketmq.codec.codes import RequestCode
from posthouse.protocols.rocketmq.codec.commands import Command
from posthouse.protocols.rocketmq.codec.heartbeats import (
    BROADCASTING,
    CLUSTERING,
    SQL_EXPRESSION,
    ConsumerGroup,
    Heartbeat,
    Subscription,
)
from tests.protocols.rocketmq.remoting_client import group


class Connection:
    peer = "127.0.0.1:1"
    language = "GO"
    version = 317

    def __init__(self) -> None:
        self.told: list[str] = []
        self.asked: list[int] = []
        self.reads = True

    def check_transaction(self, id: int, message: HalfMessage) -> bool:
        if self.reads:
            self.asked.append(id)
        return self.reads

    def members_changed(self, group: str) -> None:
        self.told.append(group)

    def ask(self, code: RequestCode, fields: dict[str, str], body: bytes = b"") -> "asyncio.Future[Command]":
        raise NotImplementedError

    def reset_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        raise NotImplementedError

    def all_told(self) -> list[str]:
        told, self.told = sorted(self.told), []
        return told


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clients(clock: ManualClock) -> Clients:
    return Clients(clock.monotonic)


def beat(clients: Clients, connection: Connection, id: str, *groups: ConsumerGroup, size: int = 100) -> None:
    clients.beat(connection, Heartbeat(client=id, consumer_groups=groups), size)


def matches(clients: Clients, connection: Connection, name: str, topic: str, tag: str) -> bool | None:
    found = clients.filter_of(connection, name, topic)
    return None if found is None else found.matches({}, tag)


def test_the_groups_of_a_client(clients: Clients) -> None:
    one, two = Connection(), Connection()
    beat(clients, one, "1", group("g", t="*"), group("h", t="*"))
    assert one.all_told() == ["g", "h"]
    beat(clients, one, "1", group("g", t="*"), group("h", t="*"))
    assert one.all_told() == []
    beat(clients, two, "2", group("g", t="*"))
    assert (one.all_told(), two.all_told()) == (["g"], ["g"])
    assert clients.members("g") == ["1", "2"]
    beat(clients, one, "1", group("h", t="*"))
    assert (one.all_told(), two.all_told()) == ([], ["g"])
    assert (clients.members("g"), clients.members("h"), clients.members("i")) == (["2"], ["1"], [])


def test_filters_belong_to_a_connection(clients: Clients) -> None:
    one, two = Connection(), Connection()
    beat(clients, one, "1", group("g", t="a"))
    beat(clients, two, "2", group("g", t="b"))
    assert matches(clients, one, "g", "t", "a") and not matches(clients, one, "g", "t", "b")
    assert matches(clients, two, "g", "t", "b") and not matches(clients, two, "g", "t", "a")
    assert matches(clients, one, "g", "u", "a") is None
    assert matches(clients, one, "h", "t", "a") is None
    assert matches(clients, Connection(), "g", "t", "a") is None
    beat(clients, one, "1", group("g", t="b"))
    assert matches(clients, one, "g", "t", "b")
    beat(clients, one, "1b", group("h", t="c"))  # clients of one process may share a connection
    assert matches(clients, one, "h", "t", "c") and matches(clients, one, "g", "t", "b")


def test_filters_are_compiled_once(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def counted(expression_type: str, expression: str) -> object:
        compiled.append(expression)
        return compile_filter(expression_type, expression)

    monkeypatch.setattr(module, "compile_filter", counted)
    one = Connection()
    for _ in range(3):
        beat(clients, one, "1", group("g", t="a", u="b"))
    assert compiled == ["a", "b"]
    beat(clients, one, "1", group("g", t="a", u="c"))
    assert compiled == ["a", "b", "c"]


def test_a_bad_filter_changes_nothing(clients: Clients) -> None:
    one = Connection()
    bad = Subscription(topic="t", expression="a =", expression_type=SQL_EXPRESSION)
    for _ in range(2):
        with pytest.raises(InvalidFilter):
            beat(clients, one, "1", group("g", t="a"), ConsumerGroup(name="h", subscriptions=(bad,)))
        assert clients.members("g") == []
        assert not clients._connections
    beat(clients, one, "1", group("g", t="a"))
    with pytest.raises(InvalidFilter):
        beat(clients, one, "1", ConsumerGroup(name="g", subscriptions=(bad,)))
    assert matches(clients, one, "g", "t", "a")


def test_unregister(clients: Clients) -> None:
    one, two = Connection(), Connection()
    beat(clients, one, "1", group("g", t="a"), group("h", t="a"))
    beat(clients, two, "2", group("g", t="a"))
    one.all_told(), two.all_told()
    clients.unregister(one, "1", "p", "g")
    assert (clients.members("g"), clients.members("h")) == (["2"], ["1"])
    assert (one.all_told(), two.all_told()) == ([], ["g"])
    assert matches(clients, one, "g", "t", "a") is None
    assert matches(clients, one, "h", "t", "a")
    clients.unregister(one, "1", "p", "g")
    clients.unregister(one, "none", "p", "h")
    clients.unregister(Connection(), "1", "p", "h")
    assert (one.all_told(), two.all_told()) == ([], [])
    assert clients.members("h") == ["1"]


def test_a_connection_is_lost(clients: Clients) -> None:
    one, two = Connection(), Connection()
    beat(clients, one, "1", group("g", t="a"))
    beat(clients, one, "1b", group("g", t="a"), group("h", t="a"))
    beat(clients, two, "2", group("g", t="a"))
    one.all_told(), two.all_told()
    clients.leave(one)
    assert (one.all_told(), two.all_told()) == ([], ["g"])
    assert (clients.members("g"), clients.members("h")) == (["2"], [])
    clients.leave(one)
    clients.leave(two)
    assert two.all_told() == []
    assert not clients._connections
    assert not clients._consumers


def test_silent_clients_are_forgotten(clients: Clients, clock: ManualClock) -> None:
    one, two = Connection(), Connection()
    beat(clients, one, "1", group("g", t="a"))
    beat(clients, two, "2", group("g", t="a"))
    beat(clients, two, "2b", group("g", t="a"))
    clock.advance(EXPIRY_SECONDS / 2)
    beat(clients, two, "2", group("g", t="a"))
    clients.forget_silent()
    assert clients.members("g") == ["1", "2", "2b"]
    clock.advance(EXPIRY_SECONDS / 2 + 1)
    one.all_told(), two.all_told()
    clients.forget_silent()
    assert clients.members("g") == ["2"]
    assert (one.all_told(), two.all_told()) == ([], ["g"])
    assert list(clients._connections) == [two]
    beat(clients, one, "1", group("g", t="a"))
    assert clients.members("g") == ["2", "1"]


def test_what_is_remembered_of_a_connection_is_limited(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_HEARTBEAT_BYTES", 1000)
    one = Connection()
    beat(clients, one, "1", group("g", t="a"), size=600)
    beat(clients, one, "1", group("g", t="a"), size=1000)
    with pytest.raises(BadRequest, match="1000 bytes together"):
        beat(clients, one, "2", group("h", t="a"), size=1)
    assert clients.members("h") == []
    beat(clients, one, "1", group("g", t="a"), size=500)
    beat(clients, one, "2", group("h", t="a"), size=500)
    beat(clients, Connection(), "3", group("h", t="a"), size=1000)


def half_message(group: str, partition: int | None = 0) -> HalfMessage:
    return HalfMessage(
        group=group,
        content=Scheduled(
            due_ms=0, namespace="/", exchange="t", key=b"", has_key=False, value=b"", partition=partition
        ),
        first_check_s=6,
    )


def producer(id: str, *groups: str) -> Heartbeat:
    return Heartbeat(client=id, producer_groups=groups)


def test_producers_of_a_group_are_asked_in_turn(clock: ManualClock) -> None:
    clients = Clients(clock.monotonic)
    one, two, other = Connection(), Connection(), Connection()
    assert not clients.ask(0, half_message("g"))
    clients.beat(one, producer("one", "g"), 1)
    clients.beat(two, producer("two", "g", "h"), 1)
    clients.beat(other, producer("other", "h"), 1)
    assert not clients.ask(0, half_message("g", None)), "RocketMQ knows no exchanges"
    for id in range(1, 5):
        assert clients.ask(id, half_message("g"))
    assert (one.asked, two.asked, other.asked) == ([1, 3], [2, 4], [])
    two.reads = False
    for id in range(5, 8):
        assert clients.ask(id, half_message("g"))
    assert (one.asked, two.asked) == ([1, 3, 5, 6, 7], [2, 4])
    one.reads = False
    assert not clients.ask(8, half_message("g"))


def test_producers_that_have_left_are_not_asked(clock: ManualClock) -> None:
    clients = Clients(clock.monotonic)
    one, two = Connection(), Connection()
    clients.beat(one, producer("one", "a", "b", "c", "d"), 1)
    clients.beat(one, producer("one", "b", "c", "d"), 1)
    assert not clients.ask(1, half_message("a"))
    clients.unregister(one, "one", "b", "")
    assert not clients.ask(2, half_message("b"))
    clients.beat(one, producer("another", "c"), 1)
    clients.unregister(one, "one", "c", "")
    assert clients.ask(3, half_message("c")), "another client of the connection is one"
    clients.beat(two, producer("two", "e"), 1)
    clients.leave(one)
    assert not clients.ask(4, half_message("c"))
    assert not clients.ask(5, half_message("d"))
    clock.advance(EXPIRY_SECONDS + 1)
    clients.forget_silent()
    assert not clients.ask(6, half_message("e"))
    assert clients._producers == {}


def test_who_shares_the_offsets_of_a_group(clients: Clients) -> None:
    one, two = Connection(), Connection()
    alone = ConsumerGroup(name="g", subscriptions=(), message_model=BROADCASTING)
    beat(clients, one, "a", alone)
    assert not clients.shares_offsets(one, "g")
    beat(clients, one, "b", group("g", t="*"))
    assert clients.shares_offsets(one, "g")
    assert not clients.shares_offsets(two, "g")
    assert not clients.shares_offsets(one, "h")
    assert [(each.client, each.group.message_model) for each in clients.consumers("g")] == [
        ("a", BROADCASTING),
        ("b", CLUSTERING),
    ]
    clients.leave(one)
    assert clients.consumers("g") == []


def test_the_connection_of_a_client(clients: Clients, clock: ManualClock) -> None:
    one, two = Connection(), Connection()
    assert clients.connection_of("a") is None
    beat(clients, one, "a")
    beat(clients, two, "a")
    beat(clients, one, "a")
    beat(clients, one, "b")
    assert clients.connection_of("a") is two
    clients.leave(two)
    assert clients.connection_of("a") is one
    clock.advance(EXPIRY_SECONDS / 2)
    beat(clients, one, "b")
    clock.advance(EXPIRY_SECONDS / 2 + 1)
    clients.forget_silent()
    assert clients.connection_of("a") is None
    assert clients.connection_of("b") is one
