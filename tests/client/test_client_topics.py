"""Creating, describing, changing and deleting topics, against a real broker."""

import pytest

from posthouse.client import Client, ClientError
from posthouse.client.errors import RequestRefused, TopicExists, TopicNotFound
from posthouse.client.positions import PartitionBounds


def test_a_topic_lives_and_dies(client: Client, topic: str) -> None:
    assert client.create_topic(topic, partitions=3, settings={"retention.ms": "5000"}) == 3
    info = client.topic(topic)
    assert (info.name, info.partitions, len(info.id)) == (topic, 3, 16)
    assert info in client.topics()
    assert client.bounds([info]) == {(topic, index): PartitionBounds(0, 0) for index in range(3)}
    client.delete_topic(topic)
    with pytest.raises(TopicNotFound):
        client.topic(topic)


def test_the_broker_decides_on_partitions_where_nobody_says(client: Client, topic: str) -> None:
    assert client.create_topic(topic) == 4


def test_settings_are_told_apart_by_who_set_them(client: Client, topic: str) -> None:
    client.create_topic(topic, settings={"retention.ms": "5000"})
    settings = {each.name: each for each in client.topic_settings(topic)}
    assert (settings["retention.ms"].value, settings["retention.ms"].is_own) == ("5000", True)
    assert not settings["segment.bytes"].is_own
    assert settings["durability"].doc


def test_settings_are_changed_and_go_back(client: Client, topic: str) -> None:
    client.create_topic(topic, settings={"retention.ms": "5000"})
    client.change_topic(topic, settings={"segment.ms": "7000"}, unset=["retention.ms"])
    own = {each.name: each.value for each in client.topic_settings(topic) if each.is_own}
    assert own == {"segment.ms": "7000"}


def test_a_topic_grows(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=1)
    client.add_partitions(topic, 5)
    assert client.topic(topic).partitions == 5


def test_asking_for_a_topic_may_create_it(client: Client, topic: str) -> None:
    with pytest.raises(TopicNotFound):
        client.topic(topic)
    created = client.topic(topic, create=True)
    assert client.topic(topic) == created


def test_refusals_are_sentences_that_help(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    with pytest.raises(TopicExists, match=f"exists already; choose another name.*topic alter {topic}"):
        client.create_topic(topic)
    with pytest.raises(TopicNotFound, match="there is no topic 'nope'; see 'posthouse topic list'"):
        client.delete_topic("nope")
    with pytest.raises(TopicNotFound, match="create it with 'posthouse topic create nope', or see"):
        client.topic("nope")
    with pytest.raises(TopicNotFound):
        client.change_topic("nope", settings={"retention.ms": "1"})
    with pytest.raises(TopicNotFound):
        client.topic_settings("nope")
    with pytest.raises(RequestRefused, match="'a b' is not a valid topic name; use letters"):
        client.topic("a b", create=True)
    with pytest.raises(RequestRefused, match=r"unknown topic setting 'no\.such'"):
        client.change_topic(topic, settings={"no.such": "1"})
    with pytest.raises(RequestRefused):
        client.add_partitions(topic, 1)


def test_no_refusal_spans_lines_or_ends_with_a_full_stop(client: Client) -> None:
    with pytest.raises(ClientError) as caught:
        client.create_topic("x" * 300)
    assert "\n" not in str(caught.value) and not str(caught.value).endswith(".")
