"""Groups with real consumers of both protocols: members, lag, offsets set anew, deletion."""

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from posthouse.client import Client, Start
from posthouse.client.assignments import decode_assignment
from posthouse.client.errors import (
    BadArgument,
    GroupActive,
    GroupNotFound,
    OffsetGone,
    PartitionNotFound,
    TopicNotFound,
    refused,
)
from posthouse.client.group_offsets import GroupOffset
from posthouse.client.groups import GroupInfo, GroupProtocol
from posthouse.testing import ThreadBroker

HOUR = 3_600_000
BASE = 1_700_000_000_000
PROTOCOLS: dict[GroupProtocol, dict[str, Any]] = {
    GroupProtocol.CLASSIC: {"session.timeout.ms": 6000, "partition.assignment.strategy": "range"},
    GroupProtocol.CONSUMER: {"group.protocol": "consumer"},
}

Join = Callable[..., Consumer]


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """Two partitions with five records each, two hours between neighbours."""
    client.create_topic(topic, partitions=2)
    with client.producer(topic) as producer:
        for number in range(10):
            producer.send(b"%d" % number, partition=number % 2, timestamp=BASE + number * HOUR)
    return topic


@pytest.fixture
def join(posthouse_session: ThreadBroker, filled: str) -> Iterator[Join]:
    """A consumer of the topic, in the group of the same name, once it has that many partitions."""
    opened: list[Consumer] = []

    def start(*topics: str, partitions: int = 2, **config: Any) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": posthouse_session.kafka,
                "group.id": filled,
                "enable.auto.commit": False,
                "log_level": 0,
                **config,
            }
        )
        opened.append(consumer)
        consumer.subscribe([filled, *topics])
        deadline = time.monotonic() + 30
        while len(consumer.assignment()) != partitions:
            assert time.monotonic() < deadline, consumer.assignment()
            consumer.poll(0.02)
        return consumer

    yield start
    for consumer in opened:
        consumer.close()


def commit(consumer: Consumer, topic: str, *offsets: int) -> None:
    places = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)


def committed(client: Client, group: str) -> dict[tuple[str, int], int | None]:
    offsets = client.group_offsets(client.group(group))
    return {(each.topic, each.partition): each.committed for each in offsets}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_a_member(client: Client, filled: str, join: Join, protocol: GroupProtocol) -> None:
    consumer = join(**{"client.id": "reader", "group.instance.id": "first", **PROTOCOLS[protocol]})
    commit(consumer, filled, 3)
    group = client.group(filled)
    assert (group.name, group.state, group.protocol) == (filled, "Stable", protocol)
    assert group.assignor == ("range" if protocol is GroupProtocol.CLASSIC else "uniform")
    [member] = group.members
    assert (member.client, member.host, member.instance) == ("reader", "127.0.0.1", "first")
    assert member.partitions == [(filled, 0), (filled, 1)]
    common: dict[str, Any] = {"topic": filled, "end": 5, "member": member.id}
    first, second = client.group_offsets(group)
    assert first == GroupOffset(partition=0, committed=3, **common) and first.lag == 2
    assert second == GroupOffset(partition=1, committed=None, **common) and second.lag is None
    assert group in client.groups()
    assert filled in client.group_names()


def test_two_members_share(client: Client, filled: str, join: Join) -> None:
    config = PROTOCOLS[GroupProtocol.CONSUMER]
    first = join(**config)
    second = join(partitions=0, **config)
    deadline = time.monotonic() + 30
    while {len(first.assignment()), len(second.assignment())} != {1}:
        assert time.monotonic() < deadline
        first.poll(0.02)
        second.poll(0.02)
    group = client.group(filled)
    assert sorted(place for member in group.members for place in member.partitions) == [
        (filled, 0),
        (filled, 1),
    ]
    readers = [each.member for each in client.group_offsets(group)]
    assert set(readers) == {member.id for member in group.members} and len(set(readers)) == 2


def test_a_group_that_everybody_left(client: Client, filled: str, join: Join) -> None:
    consumer = join(**PROTOCOLS[GroupProtocol.CLASSIC])
    commit(consumer, filled, 3, 5)
    consumer.close()
    group = client.group(filled)
    assert group == GroupInfo(
        name=filled, state="Empty", protocol=GroupProtocol.CLASSIC, assignor="", members=[]
    )
    offsets = client.group_offsets(group)
    assert [(each.committed, each.lag, each.member) for each in offsets] == [(3, 2, None), (5, 0, None)]


def test_offsets_of_a_deleted_topic_are_gone(client: Client, filled: str) -> None:
    client.create_topic(f"{filled}-kept", partitions=1)
    client.reset_offsets(filled, {filled: None, f"{filled}-kept": None}, Start.end())
    client.delete_topic(filled)
    assert committed(client, filled) == {(f"{filled}-kept", 0): 0}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Start.beginning(), [0, 0]),
        (Start.end(), [5, 5]),
        (Start.at(4), [4, 4]),
        (Start.at(-2), [3, 3]),
        (Start.since(BASE + 5 * HOUR), [3, 2]),
        (Start.since(BASE + 99 * HOUR), [5, 5]),
    ],
    ids=str,
)
def test_reset(client: Client, filled: str, start: Start, expected: list[int]) -> None:
    client.reset_offsets(filled, {filled: [0]}, Start.at(1))
    changes = client.reset_offsets(filled, {filled: None}, start, dry_run=True)
    assert [(each.topic, each.partition) for each in changes] == [(filled, 0), (filled, 1)]
    assert [each.old for each in changes] == [1, None]
    assert [each.new for each in changes] == expected
    assert committed(client, filled) == {(filled, 0): 1}, "a dry run changes nothing"
    assert client.reset_offsets(filled, {filled: None}, start) == changes
    assert committed(client, filled) == {(filled, index): offset for index, offset in enumerate(expected)}


def test_a_dry_run_makes_no_group(client: Client, filled: str) -> None:
    client.reset_offsets(filled, {filled: None}, Start.end(), dry_run=True)
    assert filled not in client.group_names()
    with pytest.raises(GroupNotFound):
        client.group(filled)


def test_consumers_go_on_from_there(client: Client, filled: str, join: Join) -> None:
    client.reset_offsets(filled, {filled: [1]}, Start.at(4))
    client.reset_offsets(filled, {filled: [0]}, Start.end())
    consumer = join(partitions=0, **PROTOCOLS[GroupProtocol.CONSUMER])
    message = consumer.poll(10)
    assert message is not None and (message.partition(), message.offset()) == (1, 4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_needs_a_group_without_members(
    client: Client, filled: str, join: Join, protocol: GroupProtocol
) -> None:
    consumer = join(**PROTOCOLS[protocol])
    commit(consumer, filled, 3, 3)
    for dry_run in (True, False):
        with pytest.raises(GroupActive, match="has an active member; stop its consumers and try again"):
            client.reset_offsets(filled, {filled: None}, Start.end(), dry_run=dry_run)
    [error] = client.delete_groups([filled]).values()
    assert isinstance(error, GroupActive)
    assert committed(client, filled) == {(filled, 0): 3, (filled, 1): 3}
    consumer.close()
    client.reset_offsets(filled, {filled: None}, Start.end())
    assert client.delete_groups([filled]) == {filled: None}


def test_deleting_several(client: Client, filled: str) -> None:
    for name in (f"{filled}-a", f"{filled}-b"):
        client.reset_offsets(name, {filled: None}, Start.end())
    results = client.delete_groups([f"{filled}-a", "nope", f"{filled}-b", f"{filled}-a"])
    assert list(results) == [f"{filled}-a", "nope", f"{filled}-b"]
    assert [name for name, error in results.items() if error] == ["nope"]
    assert str(results["nope"]) == "there is no group 'nope'; see 'posthouse group list' for those there are"
    assert not {f"{filled}-a", f"{filled}-b"} & set(client.group_names())


def test_refusals_change_nothing(client: Client, filled: str) -> None:
    with pytest.raises(GroupNotFound, match="there is no group 'nope'; see"):
        client.group("nope")
    with pytest.raises(TopicNotFound, match="there is no topic 'nope'"):
        client.reset_offsets(filled, {filled: None, "nope": None}, Start.end())
    with pytest.raises(PartitionNotFound, match="has no partition 7; choose one from 0 to 1"):
        client.reset_offsets(filled, {filled: [0, 7]}, Start.end())
    with pytest.raises(OffsetGone, match="offset 6 lies behind the end"):
        client.reset_offsets(filled, {filled: None}, Start.at(6))
    assert filled not in client.group_names()
    with pytest.raises(BadArgument, match="the name of the group is empty; give one"):
        client.reset_offsets("", {filled: None}, Start.end())


@pytest.mark.parametrize("code", sorted(GroupActive.codes))
def test_a_member_that_comes_meanwhile(code: int) -> None:
    error = refused(code, None, "billing")
    assert isinstance(error, GroupActive)
    assert str(error) == "group 'billing' has active members; stop its consumers and try again"


ASSIGNMENT = struct.pack(">hih1siiih1siii", 3, 2, 1, b"b", 2, 7, 0, 1, b"a", 1, 4, -1)


def test_assignments_are_decoded_in_order() -> None:
    assert decode_assignment(ASSIGNMENT) == [("a", 4), ("b", 0), ("b", 7)]
    assert decode_assignment(ASSIGNMENT + b"more") == decode_assignment(ASSIGNMENT)


@pytest.mark.parametrize("size", range(len(ASSIGNMENT) - 4))
def test_what_is_no_assignment(size: int) -> None:
    assert decode_assignment(ASSIGNMENT[:size]) == []


@pytest.mark.parametrize("data", [b"\xff" * 40, struct.pack(">hih2s", 0, 1, 2, b"\xff\xff")])
def test_bytes_that_only_the_members_understand(data: bytes) -> None:
    assert decode_assignment(data) == []
