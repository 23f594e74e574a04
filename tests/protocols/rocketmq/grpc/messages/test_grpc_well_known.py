import pytest
from google.protobuf.duration_pb2 import Duration as TheirDuration
from google.protobuf.timestamp_pb2 import Timestamp as TheirTimestamp

from posthouse.protocols.rocketmq.grpc.messages.well_known import Duration, Timestamp

TIMES = [0, 1, 999, 1000, 1_700_000_000_123, -1, -999, -1000, -1001, -1_700_000_000_123]


@pytest.mark.parametrize("ms", TIMES)
def test_milliseconds(ms: int) -> None:
    time, span = TheirTimestamp(), TheirDuration()
    time.FromMilliseconds(ms)
    span.FromMilliseconds(ms)
    assert Timestamp.from_ms(ms) == Timestamp(seconds=time.seconds, nanos=time.nanos)
    assert Duration.from_ms(ms) == Duration(seconds=span.seconds, nanos=span.nanos)
    assert (Timestamp.from_ms(ms).ms, Duration.from_ms(ms).ms) == (ms, ms)


def test_they_are_rounded_down() -> None:
    assert Timestamp(seconds=1, nanos=1_999_999).ms == 1001
    assert Timestamp(seconds=-1, nanos=999_999).ms == -1000
    assert Duration(nanos=-1).ms == -1


def test_any_numbers_that_a_peer_sends() -> None:
    assert Timestamp(seconds=(1 << 63) - 1, nanos=-(1 << 31)).ms == ((1 << 63) - 1) * 1000 - 2148
