"""PushTelemetry: the metrics of a client, which the broker keeps and may write to a file."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from posthouse.broker.telemetry.points import PushedMetrics
from posthouse.model.errors import CorruptBatch, Inflated
from posthouse.protocols.kafka.codec.generated.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode, Refused
from posthouse.protocols.kafka.handler import Context, Deferred, Handler
from posthouse.protocols.kafka.handlers.get_telemetry_subscriptions import MOST_BYTES, identity_of
from posthouse.protocols.kafka.otlp import MalformedMetrics, decode_metrics
from posthouse.records.compression import Codec, decompress

_CODECS = frozenset(map(int, Codec))
_reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="client metrics")
"""One push at a time: decoding metrics must never take more than a part of one core."""


def handle(context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse | Deferred:
    if request.client_instance_id == ZERO_UUID:
        raise Refused(ErrorCode.INVALID_REQUEST, "a client that pushes must have an id")
    if request.compression_type not in _CODECS:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression {request.compression_type}"
        )
    if len(request.metrics) > MOST_BYTES:
        raise Refused(ErrorCode.TELEMETRY_TOO_LARGE, f"a push may have {MOST_BYTES} bytes")
    clients = context.broker.client_metrics
    identity = identity_of(context, request.client_instance_id)
    is_wanted = clients.check_push(identity, request.subscription_id, is_last=request.terminating)
    if not (is_wanted and request.metrics):
        return PushTelemetryResponse()

    def finish(pushed: PushedMetrics) -> PushTelemetryResponse:
        clients.keep(identity, pushed)
        return PushTelemetryResponse()

    data, codec = bytes(request.metrics), Codec(request.compression_type)
    reading = asyncio.get_running_loop().run_in_executor(_reader, _read, data, codec, context.broker.now_ms())
    return Deferred(reading, finish)


def _read(data: bytes, codec: Codec, now_ms: int) -> PushedMetrics:
    try:
        return decode_metrics(decompress(codec, data, max_output=MOST_BYTES), now_ms)
    except Inflated as error:
        raise Refused(ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from None
    except (CorruptBatch, MalformedMetrics) as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None


def _refuse(
    context: Context, request: PushTelemetryRequest, code: ErrorCode, message: str
) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=code)


HANDLER = Handler(key=72, handle=handle, refuse=_refuse)
