"""The wire client itself: frames in pieces, and responses that belong to another request."""

import pytest

from posthouse.protocols.kafka.codec.generated.metadata import MetadataRequest, MetadataResponse
from posthouse.protocols.kafka.codec.generated.produce import ProduceResponse
from posthouse.protocols.kafka.codec.headers import decode_request_header, response_frame
from posthouse.protocols.kafka.codec.registry import APIS
from tests.wire.kafka import SIZE, FrameSplitter, PendingRequest, RequestEncoder, framed

METADATA = APIS[3]


def metadata_response(correlation_id: int) -> memoryview:
    body = METADATA.encode_response(METADATA.max_version, MetadataResponse(cluster_id="c"))
    frame = response_frame(METADATA.key, METADATA.max_version, correlation_id, body)
    return memoryview(b"".join(frame)[SIZE.size :])


def pending(correlation_id: int = 1) -> PendingRequest:
    return PendingRequest(api_key=METADATA.key, version=METADATA.max_version, correlation_id=correlation_id)


def test_requests_are_numbered() -> None:
    requests = RequestEncoder("c")
    sent = [requests.encode(MetadataRequest()) for _ in range(2)]
    headers = [decode_request_header(memoryview(b"".join(chunks))[SIZE.size :])[0] for chunks, _ in sent]
    assert [(each.correlation_id, each.client_id) for each in headers] == [(1, "c"), (2, "c")]
    assert [each for _, each in sent] == [pending(1), pending(2)]


@pytest.mark.parametrize("piece", [1, 3, 4, 7, 1000])
def test_frames_however_they_are_cut(piece: int) -> None:
    stream = framed(b"one") + framed(b"") + framed(b"three")
    splitter = FrameSplitter()
    found = [
        bytes(frame)
        for start in range(0, len(stream), piece)
        for frame in splitter.feed(stream[start : start + piece])
    ]
    assert found == [b"one", b"", b"three"]


def test_a_response() -> None:
    assert pending().response(metadata_response(1), MetadataResponse).cluster_id == "c"


def test_a_response_to_another_request() -> None:
    with pytest.raises(AssertionError, match="another request"):
        pending().response(metadata_response(2), MetadataResponse)


def test_a_response_of_another_kind() -> None:
    with pytest.raises(AssertionError):
        pending().response(metadata_response(1), ProduceResponse)
