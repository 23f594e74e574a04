"""Reading as a member of a group: commits, leaving, and a membership that was lost."""

import pytest

from posthouse.client import Client, Start
from posthouse.client.errors import BadArgument
from posthouse.client.group_reading import GroupReading
from posthouse.client.reading import Fetched
from posthouse.protocols.kafka.codec.generated.list_groups import ListGroupsRequest
from posthouse.testing import ThreadBroker


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    client.create_topic(topic, partitions=1)
    with client.producer(topic) as producer:
        for value in (b"0", b"1", b"2"):
            producer.send(value)
    return topic


def member(client: Client, topic: str) -> GroupReading:
    return client.group_reading(f"{topic}-group", topics=[topic], start=Start.beginning())


def values(fetched: Fetched) -> list[bytes | None]:
    return [message.value for message in fetched.messages()]


def committed(client: Client, topic: str) -> list[int | None]:
    return [each.committed for each in client.group_offsets(client.group(f"{topic}-group"))]


def test_what_is_finished_is_committed_when_the_member_leaves(client: Client, filled: str) -> None:
    with member(client, filled) as reading:
        fetched = next(iter(reading))
        assert values(fetched) == [b"0", b"1", b"2"]
        reading.finish(fetched, 2)
    assert committed(client, filled) == [2]
    assert client.group(f"{filled}-group").members == []
    with member(client, filled) as again:
        assert values(next(iter(again))) == [b"2"]
    assert committed(client, filled) == [2]


def test_going_on_commits_what_came_before(client: Client, filled: str) -> None:
    with member(client, filled) as reading:
        fetches = iter(reading)
        next(fetches)
        with client.producer(filled) as producer:
            producer.send(b"3")
        assert values(next(fetches)) == [b"3"]
        assert committed(client, filled) == [3]


def test_what_is_given_back_is_read_again_after_other_partitions(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    for partition in range(2):
        with client.producer(topic) as producer:
            for value in (b"0", b"1"):
                producer.send(value, partition=partition)
    with member(client, topic) as reading:
        first = next(each for each in iter(reading) if each)
        reading.give_back(first, 1)
        rest: list[tuple[int, list[bytes | None]]] = []
        while len(rest) < 2:
            rest += [(each.partition, values(each)) for each in reading.poll()]
        assert rest == [(1 - first.partition, [b"0", b"1"]), (first.partition, [b"1"])]
    assert sorted(each or 0 for each in committed(client, topic)) == [2, 2]


def test_an_answer_that_was_not_read_does_not_hold_up_the_last_commit(client: Client, filled: str) -> None:
    reading = member(client, filled)
    reading.finish(next(iter(reading)), 1)
    client._cluster.any().send(ListGroupsRequest())  # as Ctrl-C leaves it in the middle of a fetch
    reading.close()
    assert committed(client, filled) == [1]


def test_a_member_that_the_broker_gave_up_begins_at_the_last_commit(
    posthouse_session: ThreadBroker, client: Client, filled: str
) -> None:
    reading = member(client, filled)
    fetches = iter(reading)
    assert values(next(fetches)) == [b"0", b"1", b"2"]
    with Client(posthouse_session.kafka) as other:
        # The same member leaves by another connection, as if its session had timed out.
        twin = member(other, filled)
        twin._member, twin._epoch = reading._member, reading._epoch
        twin.close()
    assert values(next(fetches)) == [b"0", b"1", b"2"]
    reading.close()


def test_a_member_that_read_nothing_leaves_nothing(client: Client, filled: str) -> None:
    member(client, filled).close()
    assert f"{filled}-group" not in client.group_names()


def test_a_group_has_a_name(client: Client) -> None:
    with pytest.raises(BadArgument, match="the name of the group is empty"):
        client.group_reading("", topics=["t"])
