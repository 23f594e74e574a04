"""A metadata response of very many topics, encoded a stretch at a time.

Encoding 50,000 topics takes a good part of a second in which nobody else would be served. Here the event loop
has its turns between stretches, and the response is put together from their bytes:

    what precedes the topics | how many | topic, topic, … | what follows them
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
"""So many topics and partitions take about a millisecond."""

_API = APIS[3]
_pack_count = Struct(">i").pack


class ManyTopics(MetadataResponse):
    """`topics` is empty: they are encoded already."""

    __slots__ = ("count", "encoded")

    count: int
    """How many topics `encoded` holds."""
    encoded: list[Buffer]


async def take_topics(response: ManyTopics, version: int, topics: Iterable[MetadataResponseTopic]) -> None:
    """Encode the topics. They are asked for one by one, so that making them is spread over the turns too."""
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
    """As the codec does, and for `ManyTopics` the same bytes."""
    assert isinstance(response, MetadataResponse)
    if not isinstance(response, ManyTopics):
        return encode_metadata_response(version, response)
    before, after = _surroundings(version, response)
    return [before + _count(version, response.count), *response.encoded, after]


def _surroundings(version: int, response: MetadataResponse) -> tuple[bytes, bytes]:
    """What precedes the number of topics and what follows them, found by comparing none with one."""
    response.topics = []
    none = b"".join(encode_metadata_response(version, response))
    response.topics = [MetadataResponseTopic(name="")]
    one = b"".join(encode_metadata_response(version, response))
    response.topics = []
    number = _count(version, 0)
    # The numbers 0 and 1 differ in their last byte, and nothing does before that.
    last = next(position for position, byte in enumerate(none) if byte != one[position])
    start = last + 1 - len(number)
    return none[:start], none[start + len(number) :]


def _count(version: int, topics: int) -> bytes:
    if _API.is_flexible(version):
        return uvarint(topics + 1)
    packed: bytes = _pack_count(topics)
    return packed
