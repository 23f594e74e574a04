"""A metadata response with very many topics, encoded in chunks.

Encoding 50,000 topics takes a good part of a second, during which no other client would be served. Here the
event loop runs between chunks, and the response is assembled from their bytes:

    bytes before the topics | number of topics | topic, topic, … | bytes after the topics
"""

import asyncio
from collections.abc import Iterable, Iterator
from struct import Struct

from posthouse.protocols.kafka.codec.generated.metadata import (
    MetadataResponse,
    MetadataResponseTopic,
    encode_metadata_response,
)
from posthouse.protocols.kafka.codec.primitives import Buffer, Message, uvarint
from posthouse.protocols.kafka.codec.registry import APIS

STRETCH = 200
"""Topics and partitions per chunk: about a millisecond."""

_API = APIS[3]
_pack_count = Struct(">i").pack


class ManyTopics(MetadataResponse):
    """`topics` is empty: they are encoded already."""

    __slots__ = ("count", "encoded")

    count: int
    """The number of topics in `encoded`."""
    encoded: list[Buffer]


async def take_topics(response: ManyTopics, version: int, topics: Iterable[MetadataResponseTopic]) -> None:
    """Encode the topics. They are taken from the iterator one by one, so that creating them is spread out
    too."""
    empty = MetadataResponse(brokers=[], topics=[])
    before, after = _surroundings(version, empty)
    response.count, response.encoded = 0, []
    for stretch in _stretches(topics):
        empty.topics = stretch
        body = memoryview(b"".join(encode_metadata_response(version, empty)))
        start = len(before) + len(_count(version, len(stretch)))
        response.encoded.append(body[start : len(body) - len(after)])
        response.count += len(stretch)
        await asyncio.sleep(0)


def _stretches(topics: Iterable[MetadataResponseTopic]) -> Iterator[list[MetadataResponseTopic]]:
    stretch: list[MetadataResponseTopic] = []
    size = 0
    for topic in topics:
        stretch.append(topic)
        size += 1 + len(topic.partitions)
        if size >= STRETCH:
            yield stretch
            stretch, size = [], 0
    if stretch:
        yield stretch


def encode(version: int, response: Message) -> list[Buffer]:
    """Encode as the codec does; for `ManyTopics` the result has the same bytes."""
    assert isinstance(response, MetadataResponse)
    if not isinstance(response, ManyTopics):
        return encode_metadata_response(version, response)
    before, after = _surroundings(version, response)
    return [before + _count(version, response.count), *response.encoded, after]


def _surroundings(version: int, response: MetadataResponse) -> tuple[bytes, bytes]:
    """The bytes before the number of topics and behind the topics, found by comparing zero topics with
    one."""
    response.topics = []
    none = b"".join(encode_metadata_response(version, response))
    response.topics = [MetadataResponseTopic(name="")]
    one = b"".join(encode_metadata_response(version, response))
    response.topics = []
    number = _count(version, 0)
    # The numbers 0 and 1 differ in their last byte, and no earlier byte differs.
    last = next(position for position, byte in enumerate(none) if byte != one[position])
    start = last + 1 - len(number)
    return none[:start], none[start + len(number) :]


def _count(version: int, topics: int) -> bytes:
    if _API.is_flexible(version):
        return uvarint(topics + 1)
    packed: bytes = _pack_count(topics)
    return packed
