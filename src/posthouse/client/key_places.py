"""Where the records of a key or message id may be: asked of the broker's key index."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from posthouse.client.cluster import Cluster, TopicInfo
from posthouse.client.errors import UNSUPPORTED_VERSION, ClientError, IncompatibleBroker, refused
from posthouse.client.spans import Span
from posthouse.protocols.kafka.codec.own.key_places import (
    KeyPlacesAnswer,
    KeyPlacesRange,
    KeyPlacesRequest,
    KeyPlacesResponse,
)
from posthouse.records.record_names import Name

_RANGES_AT_ONCE = 1000


class NoKeyIndex(ClientError):
    """The topic or the broker has no key index: all records have to be read."""


@dataclass(slots=True)
class _Found:
    """What is known of one partition."""

    partition: int
    first: int
    end: int
    spans: list[Span] = field(default_factory=list)

    def add(self, answer: KeyPlacesAnswer) -> None:
        spans = [Span(each.first, each.end) for each in answer.spans]
        if answer.error_code:
            # All of it is to be read: the error is that of the fetch which follows.
            spans, self.first = [Span(self.first, self.end)], self.end
        else:
            self.first = answer.next
        self.spans += spans


def key_places(
    cluster: Cluster, info: TopicInfo, name: Name, wanted: Sequence[tuple[int, Span]], *, gap: int
) -> list[tuple[Span, ...]]:
    """For each partition with its span of offsets: in which parts of it all records of the name are, rising.
    Parts that are at most `gap` offsets from each other are one.

    Raises NoKeyIndex.
    """
    found = [_Found(partition, *span) for partition, span in wanted]
    left = [each for each in found if each.first < each.end]
    while left:
        some = left[:_RANGES_AT_ONCE]
        before = [each.first for each in some]
        request = KeyPlacesRequest(
            topic_id=info.id,
            kind=name.kind,
            name=name.value,
            gap=gap,
            ranges=[
                KeyPlacesRange(partition=each.partition, first=each.first, end=each.end) for each in some
            ],
        )
        for each, answer in zip(some, _ask(cluster, request, info.name).ranges, strict=True):
            each.add(answer)
        if before == [each.first for each in some]:
            raise NoKeyIndex("the broker did not get on with its answer about places of a key")
        left = [each for each in left if each.first < each.end]
    return [tuple(each.spans) for each in found]


def _ask(cluster: Cluster, request: KeyPlacesRequest, topic: str) -> KeyPlacesResponse:
    try:
        response = cluster.any().ask(request, KeyPlacesResponse)
    except IncompatibleBroker as error:  # Kafka, or an older Posthouse
        raise NoKeyIndex(str(error)) from None
    if response.error_code == UNSUPPORTED_VERSION:
        raise NoKeyIndex(response.error_message or "the broker has no key index")
    if response.error_code:
        raise refused(response.error_code, response.error_message, topic, needs="read")
    return response
