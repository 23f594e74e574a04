"""SegmentManifest and RenewHold at a broker whose log is on its own disk."""

from posthouse.protocols.kafka.codec.own.renew_hold import RenewHoldRequest, RenewHoldResponse
from posthouse.protocols.kafka.codec.own.segment_manifest import (
    SegmentManifestRange,
    SegmentManifestRequest,
    SegmentManifestResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from tests.protocols.kafka.wire import Wire


async def test_there_are_no_objects(wire: Wire) -> None:
    topic = await wire.create_topic("t")
    request = SegmentManifestRequest(ranges=[SegmentManifestRange(topic_id=topic, first=0, end=9)])
    answer = await wire.ask(request, SegmentManifestResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == "the log of this broker is on its own disk"
    assert answer.ranges == []


async def test_there_are_no_holds(wire: Wire) -> None:
    for is_released in (False, True):
        request = RenewHoldRequest(hold=bytes(16), is_released=is_released)
        assert await wire.ask(request, RenewHoldResponse) == RenewHoldResponse(is_held=False)
