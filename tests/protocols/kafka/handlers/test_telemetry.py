"""Clients' metrics over the wire (KIP-714)."""

import json
from pathlib import Path

import pytest

from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.codec.generated.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from posthouse.protocols.kafka.codec.generated.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from posthouse.protocols.kafka.errors import ErrorCode
from posthouse.records.compression import Codec, compress
from posthouse.testing import AsyncBroker
from tests.protocols.kafka.handlers.test_configs import APPEND, SET, change, describe
from tests.protocols.kafka.otlp_writer import gauge, metrics
from tests.protocols.kafka.wire import Wire

CLIENT_METRICS = 16
NO_PRODUCER = bytes(16)
DATA = metrics(gauge("org.apache.kafka.g", 2.5))


async def subscribe(wire: Wire, *settings: tuple[str, int, str | None], name: str = "s") -> int:
    return (await change(wire, *settings, kind=CLIENT_METRICS, name=name))[0]


async def ask(wire: Wire, client: bytes = NO_PRODUCER) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=client)
    return await wire.ask(request, GetTelemetrySubscriptionsResponse)


async def push(wire: Wire, client: bytes, subscription: int, data: bytes = DATA, codec: int = 0) -> int:
    request = PushTelemetryRequest(
        client_instance_id=client, subscription_id=subscription, compression_type=codec, metrics=data
    )
    return (await wire.ask(request, PushTelemetryResponse)).error_code


async def test_subscriptions_are_settings(wire: Wire) -> None:
    found = {each.name: each for each in (await describe(wire, CLIENT_METRICS, "s")).configs}
    assert {name: each.value for name, each in found.items()} == {
        "interval.ms": "300000",
        "match": "",
        "metrics": "",
    }
    assert {each.config_source for each in found.values()} == {5}
    assert await subscribe(wire, ("metrics", SET, "org.a"), ("interval.ms", SET, "100")) == 0
    assert await subscribe(wire, ("metrics", APPEND, "org.b")) == 0
    found = {each.name: each for each in (await describe(wire, CLIENT_METRICS, "s")).configs}
    assert (found["metrics"].value, found["metrics"].config_source) == ("org.a,org.b", 7)
    assert (found["metrics"].config_type, found["interval.ms"].config_type) == (7, 3)
    assert await subscribe(wire, ("interval.ms", SET, "1")) == ErrorCode.INVALID_REQUEST
    assert await subscribe(wire, ("match", SET, "x=y")) == ErrorCode.INVALID_CONFIG
    assert await subscribe(wire, ("nonsense", SET, "1")) == ErrorCode.INVALID_REQUEST
    assert await subscribe(wire, ("metrics", SET, "x"), name="") == ErrorCode.INVALID_REQUEST
    assert await subscribe(wire, ("interval.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG


async def test_a_client_asks_and_pushes(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    async with AsyncBroker(client_metrics=file) as broker, Wire(broker.kafka) as wire:
        await wire.ask(
            ApiVersionsRequest(client_software_name="software", client_software_version="1.2"),
            ApiVersionsResponse,
        )
        match = "client_software_name=soft.*"
        assert (
            await subscribe(wire, ("metrics", SET, "*"), ("interval.ms", SET, "100"), ("match", SET, match))
            == 0
        )
        answer = await ask(wire)
        assert answer.client_instance_id != NO_PRODUCER
        assert (answer.requested_metrics, answer.push_interval_ms) == (["*"], 100)
        assert answer.accepted_compression_types == [4, 3, 1, 2]
        assert answer.delta_temporality
        for codec in Codec:
            client = bytes([codec + 1]) * 16
            wanted = await ask(wire, client)
            data = compress(codec, DATA)
            assert await push(wire, client, wanted.subscription_id, data, codec) == 0
        kept = [each for each in broker.app.broker.client_metrics if each.last is not None]
        assert len(kept) == len(Codec)
        for each in kept:
            assert each.last is not None
            assert each.last.points[0].value == 2.5
            assert each.identity.client_software_version == "1.2"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["client_software_name"] for line in lines} == {"software"}
    assert {line["client_id"] for line in lines} == {"test"}
    assert [line["metrics"][0]["name"] for line in lines] == ["org.apache.kafka.g"] * len(Codec)


async def test_what_is_refused(wire: Wire) -> None:
    client = b"c" * 16
    assert await subscribe(wire, ("metrics", SET, "*")) == 0
    wanted = (await ask(wire, client)).subscription_id
    assert (await ask(wire, client)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await push(wire, NO_PRODUCER, wanted) == ErrorCode.INVALID_REQUEST
    assert await push(wire, client, wanted, codec=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert await push(wire, client, wanted, bytes(300_000)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert await push(wire, client, wanted + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert (await ask(wire, client)).error_code == 0
    assert await push(wire, client, wanted) == 0
    assert await push(wire, client, wanted) == ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize(
    ("data", "codec", "code"),
    [
        (b"\x0b", Codec.NONE, ErrorCode.INVALID_RECORD),
        (b"nonsense", Codec.ZSTD, ErrorCode.INVALID_RECORD),
        (compress(Codec.GZIP, bytes(300_000)), Codec.GZIP, ErrorCode.TELEMETRY_TOO_LARGE),
    ],
)
async def test_pushes_that_cannot_be_read(wire: Wire, data: bytes, codec: Codec, code: ErrorCode) -> None:
    client = b"c" * 16
    assert await subscribe(wire, ("metrics", SET, "*")) == 0
    wanted = (await ask(wire, client)).subscription_id
    assert await push(wire, client, wanted, data, codec) == code


async def test_what_is_not_asked_for_is_taken_and_forgotten() -> None:
    async with AsyncBroker() as broker, Wire(broker.kafka) as wire:
        client = b"c" * 16
        wanted = (await ask(wire, client)).subscription_id
        assert await push(wire, client, wanted) == 0
        assert [each.last for each in broker.app.broker.client_metrics] == [None]


async def test_one_connection_with_ever_new_ids_is_throttled(wire: Wire) -> None:
    codes = [(await ask(wire)).error_code for _ in range(17)]
    assert codes == [0] * 16 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
