"""ApiVersions is how client and broker find common ground, so it answers even what it does not know."""

import struct

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ResponseV0
from kio.serial import entity_reader

from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.wire import Wire
from tests.wire.kafka import framed


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
async def test_an_unknown_version_is_told_what_there_is(version: int, wire: Wire) -> None:
    wire.writer.write(framed(struct.pack(">hhih", 18, version, 77, -1) + b"whatever"))
    payload = await wire.receive_frame()
    assert struct.unpack_from(">i", payload) == (77,)
    answer, size = entity_reader(ResponseV0)(payload, 4)
    assert size == len(payload) - 4
    assert int(answer.error_code) == ErrorCode.UNSUPPORTED_VERSION
    [own] = [each for each in answer.api_keys if each.api_key == 18]
    assert (own.min_version, own.max_version) == (0, 4)


@pytest.mark.parametrize("name", ["", "-x", "x ", "a/b", "x-"])
async def test_software_names_are_checked(name: str, wire: Wire) -> None:
    answer = await wire.ask(
        ApiVersionsRequest(client_software_name=name, client_software_version="1.0"), ApiVersionsResponse
    )
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_produce_reports_from_zero(wire: Wire) -> None:
    """librdkafka switches features off otherwise, though nobody is served below 3."""
    answer = await wire.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), ApiVersionsResponse
    )
    [produce] = [each for each in answer.api_keys if each.api_key == 0]
    assert (produce.min_version, produce.max_version) == (0, 13)
