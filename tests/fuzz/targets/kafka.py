"""Kafka's headers, every request in every version, the responses that our client reads, and what consumers
tell each other."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from struct import Struct

from posthouse.broker.groups.patterns import TopicPattern
from posthouse.client.assignments import decode_assignment
from posthouse.model.errors import InvalidPattern
from posthouse.protocols.kafka.codec.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from posthouse.protocols.kafka.codec.own.key_places import (
    KeyPlacesAnswer,
    KeyPlacesRange,
    KeyPlacesRequest,
    KeyPlacesResponse,
    KeyPlacesSpan,
)
from posthouse.protocols.kafka.codec.own.renew_hold import RenewHoldRequest, RenewHoldResponse
from posthouse.protocols.kafka.codec.own.segment_manifest import (
    AbortedTransactionPart,
    SegmentManifestAnswer,
    SegmentManifestRange,
    SegmentManifestRequest,
    SegmentManifestResponse,
    SegmentPart,
)
from posthouse.protocols.kafka.codec.primitives import Buffer, DecodeError
from posthouse.protocols.kafka.codec.registry import APIS, Api
from posthouse.protocols.kafka.consumer_protocol import ConsumerProtocol
from posthouse.protocols.kafka.frames import RECEIVE_BUFFER, FrameError, FrameReader
from posthouse.protocols.kafka.otlp import MalformedMetrics, decode_metrics
from tests.fuzz.kafka_samples import samples
from tests.fuzz.target import Target
from tests.protocols.kafka import otlp_writer

_CHOICE = Struct(">hh")
_MAX_FRAME = 100_000


def _joined(chunks: list[Buffer]) -> bytes:
    return b"".join(chunks)


def header(data: bytes) -> None:
    with suppress(DecodeError):
        decoded, pos = decode_request_header(memoryview(data))
        assert 8 <= pos <= len(data)
        if decoded.supported:
            key, version = decoded.api_key, decoded.api_version
            again = encode_request_header(key, version, decoded.correlation_id, decoded.client_id)
            assert decode_request_header(memoryview(again)) == (decoded, len(again))


def _header_seeds() -> Iterator[bytes]:
    for key, version, client in ((0, 13, "c"), (18, 4, "librdkafka"), (3, 0, None), (999, 1, "x")):
        if key in APIS:
            yield encode_request_header(key, version, 7, client)
        else:
            yield _CHOICE.pack(key, version) + bytes(6)
    yield encode_request_header(18, 4, 1, "a")[:-1] + b"\x02\x05\x02ab\xff\x01\x00"


def _chosen(data: bytes) -> tuple[Api, int, memoryview] | None:
    """An API by the first two bytes, its version by the next."""
    if len(data) < _CHOICE.size:
        return None
    key, version = _CHOICE.unpack_from(data)
    api = APIS.get(key)
    return None if api is None else (api, version, memoryview(data)[_CHOICE.size :])


def request(data: bytes) -> None:
    if (chosen := _chosen(data)) is None:
        return
    api, version, body = chosen
    with suppress(DecodeError):
        decoded = api.decode_request(version, body, 0)
        if version == api.max_version:
            encoded = _joined(api.encode_request(decoded))
            again = api.decode_request(version, memoryview(encoded), 0)
            # Not the messages: a number that is none does not equal itself.
            assert _joined(api.encode_request(again)) == encoded


def _request_seeds() -> Iterator[bytes]:
    for key, version, body in samples("request", newest_only=False):
        yield _CHOICE.pack(key, version) + body
    end_together = APIS[10_000]
    example = end_together.request_type(name="stream", sequence=3)  # type: ignore[call-arg]
    yield _CHOICE.pack(10_000, 0) + _joined(end_together.encode_request(example))
    manifest = SegmentManifestRequest(ranges=[SegmentManifestRange(partition=1, end=9)])
    yield _CHOICE.pack(10_001, 0) + _joined(APIS[10_001].encode_request(manifest))
    yield _CHOICE.pack(10_002, 0) + _joined(APIS[10_002].encode_request(RenewHoldRequest()))
    places = KeyPlacesRequest(name=b"key", ranges=[KeyPlacesRange(end=9)])
    yield _CHOICE.pack(10_003, 0) + _joined(APIS[10_003].encode_request(places))


def _response_seeds() -> Iterator[bytes]:
    aborted, segments = [AbortedTransactionPart(last=4)], [SegmentPart(address="key", size=99, last=9)]
    answer = SegmentManifestAnswer(next=9, aborted=aborted, segments=segments)
    manifest = SegmentManifestResponse(ranges=[answer])
    yield _CHOICE.pack(10_001, 0) + _joined(APIS[10_001].encode_response(0, manifest))
    yield _CHOICE.pack(10_002, 0) + _joined(APIS[10_002].encode_response(0, RenewHoldResponse()))
    found = KeyPlacesResponse(ranges=[KeyPlacesAnswer(next=9, spans=[KeyPlacesSpan(first=3, end=4)])])
    yield _CHOICE.pack(10_003, 0) + _joined(APIS[10_003].encode_response(0, found))
    for key, version, body in samples("response", newest_only=True):
        yield _CHOICE.pack(key, version) + body


def response(data: bytes) -> None:
    if (chosen := _chosen(data)) is None:
        return
    api, _, body = chosen
    with suppress(DecodeError):
        decoded = api.decode_response(body, 0)
        encoded = _joined(api.encode_response(api.max_version, decoded))
        again = api.decode_response(memoryview(encoded), 0)
        assert _joined(api.encode_response(api.max_version, again)) == encoded
    with suppress(DecodeError):
        correlation_id, pos = decode_response_header(api.key, api.max_version, body)
        head = encode_response_header(api.key, api.max_version, correlation_id)
        assert decode_response_header(api.key, api.max_version, memoryview(head))[0] == correlation_id
        assert pos >= len(head)


def consumers(data: bytes) -> None:
    protocol = ConsumerProtocol()
    protocol.subscription("consumer", data)
    assigned = protocol.assignment(data)
    encoded = protocol.encoded_assignment(assigned)
    assert protocol.assignment(encoded) == assigned
    assert len(decode_assignment(encoded)) == len(assigned)
    decode_assignment(data)


def _consumer_seeds() -> Iterable[bytes]:
    topics = b"\0\0\0\x02\0\x01a\0\x03b.c"
    owned = b"\0\0\0\x01\0\x01a\0\0\0\x02\0\0\0\0\0\0\0\x01"
    nothing = b"\xff\xff\xff\xff"
    return (
        b"\0\0" + topics + nothing,
        b"\0\x01" + topics + b"\0\0\0\x02uu" + owned,
        b"\0\x03" + topics + nothing + owned + b"\0\0\0\x07\0\x04rack",
        b"\0\0" + owned + nothing,
    )


def pattern(data: bytes) -> None:
    text, _, name = data.decode(errors="replace").partition("\n")
    with suppress(InvalidPattern):
        TopicPattern(text).matches(name[:249])


def _pattern_seeds() -> Iterable[bytes]:
    return (
        b"orders-.*\norders-eu",
        b"(a|b)+c{2,5}$\nabcc",
        b"^[^a-z0-9_]\\.[\\w]+\nA.b",
        b"(?:a+)+b\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac",
        b"(?P<name>x?){30}y\nxxxxxxxxxxxxxxxx",
        b"\\d\\.\\D[]x]\n1.y]",
    )


def frames(data: bytes) -> None:
    """However a stream is cut, the same frames come out of it; but those that a fault comes with are lost."""
    if not data:
        return
    pieces, is_sound = _frames(data[1:], data[0] + 1)
    whole, is_sound_as_well = _frames(data[1:], len(data))
    assert is_sound == is_sound_as_well
    assert whole == (pieces if is_sound else pieces[: len(whole)])


def _frames(stream: bytes, piece: int) -> tuple[list[bytes], bool]:
    reader = FrameReader(memoryview(bytearray(RECEIVE_BUFFER)), _MAX_FRAME)
    found: list[bytes] = []
    position = 0
    while position < len(stream):
        buffer = reader.buffer()
        size = min(piece, len(buffer), len(stream) - position)
        buffer[:size] = stream[position : position + size]
        position += size
        try:
            found += map(bytes, reader.received(size))
        except FrameError:
            return found, False
        assert reader.held <= 16 * len(stream) + RECEIVE_BUFFER
    return found, True


def _frame_seeds() -> Iterable[bytes]:
    length = Struct(">i").pack
    one = length(5) + b"hello"
    return (
        b"\x03" + one * 3,
        b"\x00" + length(0) * 4,
        b"\x07" + length(20_000) + bytes(1000),
        b"\x01" + length(-1),
    )


def pushed_metrics(data: bytes) -> None:
    with suppress(MalformedMetrics):
        json.dumps([asdict(point) for point in decode_metrics(data, 0).points], allow_nan=False)


def _metrics_seeds() -> Iterator[bytes]:
    resource = otlp_writer.field(1, otlp_writer.attribute("rack", otlp_writer.field(1, "a")))
    yield otlp_writer.metrics(otlp_writer.gauge("g", 2.5, "ms"), resource=resource)
    yield otlp_writer.metrics(otlp_writer.total("s", -3), otlp_writer.histogram("h", 4, 8.0))


TARGETS = (
    Target(name="client-metrics", run=pushed_metrics, seeds=_metrics_seeds),
    Target(name="kafka-header", run=header, seeds=_header_seeds, longest=512),
    Target(name="kafka-request", run=request, seeds=_request_seeds),
    Target(name="kafka-response", run=response, seeds=_response_seeds),
    Target(name="kafka-frames", run=frames, seeds=_frame_seeds),
    Target(name="consumer-protocol", run=consumers, seeds=_consumer_seeds),
    Target(name="topic-pattern", run=pattern, seeds=_pattern_seeds, longest=400),
)
