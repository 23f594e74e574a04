"""GetTelemetrySubscriptions: the metrics that a client should push, and the interval."""

import uuid

from posthouse.broker.telemetry.subscriptions import ClientIdentity
from posthouse.protocols.kafka.codec.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from posthouse.protocols.kafka.codec.primitives import ZERO_UUID
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.protocols.kafka.handler import Context, Handler
from posthouse.records.compression import Codec

MOST_BYTES = 256 * 1024
"""Maximum size of one push, before and after decompression."""
_LONGEST_NAME = 1000
"""In characters: the names of thousands of clients are kept in memory."""
_ACCEPTED = [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]


def handle(context: Context, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    is_new = request.client_instance_id == ZERO_UUID
    instance = uuid.uuid4().bytes if is_new else request.client_instance_id
    wanted = context.broker.client_metrics.ask(identity_of(context, instance))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(map(int, _ACCEPTED)),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=MOST_BYTES,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )


def identity_of(context: Context, instance: bytes) -> ClientIdentity:
    address, _, port = context.client_peer.rpartition(":")
    name, version = context.software
    return ClientIdentity(
        client_instance_id=str(uuid.UUID(bytes=bytes(instance))),
        client_id=(context.client_id or "")[:_LONGEST_NAME],
        client_software_name=name[:_LONGEST_NAME],
        client_software_version=version[:_LONGEST_NAME],
        client_source_address=address,
        client_source_port=port,
    )


def _refuse(
    context: Context, request: GetTelemetrySubscriptionsRequest, code: ErrorCode, message: str
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(error_code=code, client_instance_id=request.client_instance_id)


HANDLER = Handler(key=71, handle=handle, refuse=_refuse)
