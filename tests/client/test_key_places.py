"""Places of a key that come in parts, and brokers that do not know them."""

import pytest

from posthouse.client.cluster import TopicInfo
from posthouse.client.errors import IncompatibleBroker, RequestRefused
from posthouse.client.key_places import NoKeyIndex, key_places
from posthouse.client.spans import Span, SpanFetches
from posthouse.protocols.kafka.codec.own.key_places import (
    KeyPlacesAnswer,
    KeyPlacesResponse,
    KeyPlacesSpan,
)
from posthouse.records.record_names import Name, NameKind
from tests.client.test_manifests import Answering

TOPIC = TopicInfo(name="orders", id=bytes(16), leaders=(0, 0))
NAME = Name(NameKind.KEY, b"k")


def told(*answers: tuple[int, int, list[tuple[int, int]]]) -> KeyPlacesResponse:
    """Each with error, next and spans."""
    return KeyPlacesResponse(
        ranges=[
            KeyPlacesAnswer(
                error_code=error,
                next=next,
                spans=[KeyPlacesSpan(first=first, end=end) for first, end in spans],
            )
            for error, next, spans in answers
        ]
    )


def asked(cluster: Answering, *spans: Span) -> list[tuple[Span, ...]]:
    return key_places(cluster, TOPIC, NAME, list(enumerate(spans)), gap=3)


def test_parts_are_asked_for_until_they_are_complete() -> None:
    cluster = Answering(told((0, 5, [(0, 1), (4, 5)]), (0, 9, [])), told((0, 9, [(8, 9)])))
    assert asked(cluster, Span(0, 9), Span(0, 9)) == [(Span(0, 1), Span(4, 5), Span(8, 9)), ()]
    assert [[(each.partition, each.first) for each in one.ranges] for one in cluster.asked] == [
        [(0, 0), (1, 0)],
        [(0, 5)],
    ]
    assert {(each.gap, each.name, each.kind) for each in cluster.asked} == {(3, b"k", 0)}
    assert asked(Answering(), Span(4, 4)) == [()]


def test_a_partition_that_is_refused_is_read_as_a_whole() -> None:
    assert asked(Answering(told((3, 0, []))), Span(2, 9)) == [(Span(2, 9),)]


def test_brokers_without_an_index() -> None:
    old = Answering(IncompatibleBroker("no KeyPlaces"))
    plain = Answering(KeyPlacesResponse(error_code=35, error_message="no index"))
    endless = Answering(told((0, 0, [])))
    for cluster, sentence in ((old, "no KeyPlaces"), (plain, "no index"), (endless, "did not get on")):
        with pytest.raises(NoKeyIndex, match=sentence):
            asked(cluster, Span(0, 9))
    with pytest.raises(RequestRefused, match="orders"):
        asked(Answering(KeyPlacesResponse(error_code=29)), Span(0, 9))


def test_a_fetch_is_as_large_as_its_span() -> None:
    fetches = SpanFetches([Span(3, 4), Span(7, 900)], 1000, 150_000)
    assert [fetches.following(offset) for offset in (0, 3, 4, 8, 900)] == [3, 3, 7, 8, 1000]
    assert [fetches.size(offset) for offset in (3, 7, 50, 80, 899)] == [1, 65_536, 131_072, 150_000, 1]
