"""The client side of Kafka's wire protocol, without I/O: requests become frames, frames become responses.

Every client of the tests that chooses its own requests is a face of this module:

    tests/protocols/kafka/wire.py     asyncio streams; also single versions, as kio writes them
    tests/simulation/kafka_wire.py    an asyncio protocol, for the simulated network
    tests/hostile/peers.py            a blocking socket
    bench/wire.py, bench/groups.py    frames that are built before the clock runs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import TypeVar

from posthouse.protocols.kafka.codec.headers import decode_response_header, request_frame
from posthouse.protocols.kafka.codec.primitives import Buffer, Message
from posthouse.protocols.kafka.codec.registry import APIS, Api

SIZE = Struct(">i")
"""In front of every frame: its length without these bytes."""

ResponseT = TypeVar("ResponseT", bound=Message)

# By name, because comparing types would load the codec of every API.
_BY_REQUEST = {f"{api.name}Request": api for api in APIS.values()}


def api_of(request: Message) -> Api:
    return _BY_REQUEST[type(request).__name__]


def framed(payload: bytes) -> bytes:
    return SIZE.pack(len(payload)) + payload


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request that was sent, and so the layout of its response."""

    api_key: int
    version: int
    correlation_id: int

    def body_start(self, payload: memoryview) -> int:
        """Where the body of a response frame (without its size) starts."""
        correlation_id, start = decode_response_header(self.api_key, self.version, payload)
        assert correlation_id == self.correlation_id, "a response to another request"
        return start

    def response(self, payload: memoryview, expected: type[ResponseT]) -> ResponseT:
        """Only for requests in the newest version, which is all that the client side of the codec reads."""
        decoded = APIS[self.api_key].decode_response(payload, self.body_start(payload))
        assert isinstance(decoded, expected)
        return decoded


class RequestEncoder:
    """Numbers the requests of one connection."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._correlation_id = 0

    def encode(self, request: Message) -> tuple[list[Buffer], PendingRequest]:
        """The chunks of a frame, in the newest version."""
        api = api_of(request)
        return self.encode_body(api.key, api.max_version, api.encode_request(request))

    def encode_body(
        self, api_key: int, version: int, body: Sequence[Buffer]
    ) -> tuple[list[Buffer], PendingRequest]:
        """A body that something else has encoded, in any version."""
        self._correlation_id += 1
        chunks = request_frame(api_key, version, self._correlation_id, self._client_id, list(body))
        return chunks, PendingRequest(api_key=api_key, version=version, correlation_id=self._correlation_id)


class FrameSplitter:
    """Cuts what a connection received into frames, however it was cut on the way."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that are whole now, without their sizes."""
        self._rest += data
        frames: list[memoryview] = []
        start = 0
        while len(self._rest) - start >= SIZE.size:
            end = start + SIZE.size + SIZE.unpack_from(self._rest, start)[0]
            if len(self._rest) < end:
                break
            frames.append(memoryview(bytes(self._rest[start + SIZE.size : end])))
            start = end
        del self._rest[:start]
        return frames
