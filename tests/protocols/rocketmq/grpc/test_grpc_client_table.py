"""What is known of clients: their groups, their connections, what they send to, and their end."""

from collections.abc import Callable
from typing import Any

import pytest

from posthouse.broker.half_messages.half_message import HalfMessage
from posthouse.broker.protocol_members import Software
from posthouse.broker.schedule.entry import Scheduled
from posthouse.model.errors import AccessRefused, BadRequest
from posthouse.model.ids import GroupId, MemberId
from posthouse.protocols.rocketmq.grpc import clients as clients_module
from posthouse.protocols.rocketmq.grpc.clients import ALL, EXPIRY_SECONDS, GrpcClients
from posthouse.protocols.rocketmq.grpc.transaction_ids import group_of_topic

ONE, TWO = GroupId("one"), GroupId("two")
ID = MemberId("client")
HALF = HalfMessage(
    group=group_of_topic("orders"),
    content=Scheduled(due_ms=0, namespace="/", exchange="orders", key=b"", value=b"v", partition=0),
    first_check_s=6,
)


class Table(GrpcClients):
    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[tuple[str, GroupId, MemberId]] = []
        self.alone = 0
        super().__init__(
            lambda: self.now,
            filters_changed=lambda group: None,
            gone=self._tell("gone"),
            disconnected=self._tell("disconnected"),
            left_alone=self._count_alone,
        )

    def _tell(self, what: str) -> Callable[[GroupId, MemberId], None]:
        return lambda group, member: self.told.append((what, group, member))

    def _count_alone(self) -> None:
        self.alone += 1


class Line(str):
    """A connection, by its name."""

    peer = "127.0.0.1:1"
    software = Software("JAVA", "5.2.0")


class Stream:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, id: int, message: HalfMessage) -> bool:
        self.asked.append(id)
        return True


def test_a_client_of_two_groups_keeps_the_messages_of_both() -> None:
    table = Table()
    table.now = EXPIRY_SECONDS
    table.forget_silent()  # nobody from before the start of the broker is awaited any more
    client = table.heard(ID, Line("a connection"), "ann")
    for group, tag in ((ONE, "a"), (TWO, "b"), (ONE, "a")):
        table.joins(client, group)
        table.subscribes(client, group, "orders", "TAG", tag)
    assert table.told == []
    assert list(table.filters_of(ONE, "orders")) == [("TAG", "a")]
    assert list(table.filters_of(TWO, "orders")) == [("TAG", "b")]
    table.subscribes_only(client, ONE, {"others"})
    assert not table.filters_of(ONE, "orders") and table.filters_of(TWO, "orders")
    table.remove(client)
    assert table.told == [("gone", ONE, ID), ("gone", TWO, ID)]
    assert table.members(ONE) is None and table.members(TWO) is None and not len(table)


def test_groups_of_a_client_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "_MOST_GROUPS", 2)
    table = Table()
    client = table.heard(ID, Line("a connection"), "ann")
    table.joins(client, ONE)
    table.joins(client, TWO)
    table.joins(client, ONE)
    with pytest.raises(BadRequest, match="use another client"):
        table.joins(client, GroupId("three"))


def test_a_producer_is_asked_after_another_connection_of_it_has_ended() -> None:
    table, stream = Table(), Stream()
    client = table.heard(ID, Line("with telemetry"), "ann")
    client.telemetry = stream
    table.publishes(client, frozenset({"orders"}))
    table.heard(ID, Line("another"), "ann")
    table.lost(Line("another"))
    assert table.ask(7, HALF) and stream.asked == [7]


def test_a_consumer_that_loses_a_connection_is_disconnected_and_stays_a_member() -> None:
    table = Table()
    client = table.heard(ID, Line("first"), "ann")
    table.joins(client, ONE)
    table.subscribes(client, ONE, "orders", *ALL)
    table.heard(ID, Line("second"), "ann")
    assert table.told == []
    table.lost(Line("first"))
    assert table.told == [("disconnected", ONE, ID)]
    alone = [table.alone]
    table.lost(Line("second"))
    assert [*alone, table.alone] == [0, 1] and table.are_alone
    assert table.heard(ID, Line("third"), "ann") is client and not table.are_alone


def test_a_connection_that_speaks_for_too_many_takes_no_client_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clients_module, "MOST_OF_CONNECTION", 1)
    table = Table()
    client = table.heard(ID, Line("its own"), "ann")
    table.joins(client, ONE)
    table.heard(MemberId("another"), Line("a greedy one"), "ann")
    for id in (ID, MemberId("a third")):
        with pytest.raises(BadRequest):
            table.heard(id, Line("a greedy one"), "ann")
    assert table.is_known(client) and table.told == [] and len(table) == 2


def test_who_was_forgotten_is_not_known() -> None:
    table = Table()
    client = table.heard(ID, Line("a connection"), "ann")
    table.now = EXPIRY_SECONDS + 1
    table.forget_silent()
    assert not table.is_known(client)
    assert table.is_known(table.heard(ID, Line("a connection"), "ann"))


def test_a_client_belongs_to_its_user() -> None:
    table = Table()
    client = table.heard(ID, Line("a connection"), "ann")
    with pytest.raises(AccessRefused, match="another user"):
        table.heard(ID, Line("of another user"), "bob")
    assert table.heard(ID, Line("a connection"), "ann") is client
