"""A second, independent reading of Kafka's schemas: kafka-python's.

kafka-python ships Kafka's JSON files and knows their original field names, so this also proves that our
names are Kafka's.
"""

import functools
import uuid
import warnings
from typing import Any

import pytest
from hypothesis import given

from posthouse.protocols.kafka.codec.primitives import ZERO_UUID, Message
from tests.protocols.kafka.codec.codec_cases import REQUESTS, RESPONSES, Case
from tools.kafka_codec.schema import Field, Struct, load

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.api_header import ResponseClassRegistry
    from kafka.protocol.api_message import ApiMessage

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

# APIs that kafka-python has no schema of; kio is then the only oracle.
_NO_SCHEMA = "kafka-python does not speak the consumer group protocol of KIP-848"
_NO_SHARES = "kafka-python does not speak of share groups"
_NO_TOKENS = "kafka-python does not speak of delegation tokens"
_NO_TELEMETRY = "kafka-python does not send its metrics"
_NO_STREAMS = "kafka-python does not speak of streams groups"
NOT_COVERED = {
    "consumer_group_heartbeat": _NO_SCHEMA,
    "consumer_group_describe": _NO_SCHEMA,
    "share_group_heartbeat": _NO_SHARES,
    "share_group_describe": _NO_SHARES,
    "share_fetch": _NO_SHARES,
    "share_acknowledge": _NO_SHARES,
    "describe_share_group_offsets": _NO_SHARES,
    "alter_share_group_offsets": _NO_SHARES,
    "delete_share_group_offsets": _NO_SHARES,
    "create_delegation_token": _NO_TOKENS,
    "renew_delegation_token": _NO_TOKENS,
    "expire_delegation_token": _NO_TOKENS,
    "describe_delegation_token": _NO_TOKENS,
    "get_telemetry_subscriptions": _NO_TELEMETRY,
    "push_telemetry": _NO_TELEMETRY,
    "streams_group_heartbeat": _NO_STREAMS,
    "streams_group_describe": _NO_STREAMS,
}


@functools.cache
def peer_class(name: str) -> Any:
    """kafka-python's message straight from the JSON: its own subclasses patch some fields.

    A new class replaces theirs in their registry, and their clients in this process could no longer decode
    responses: so the registry is put back.
    """
    registry = ResponseClassRegistry._response_class_registry
    before = dict(registry)
    created = type(name, (ApiMessage,), {})
    registry.clear()
    registry.update(before)
    return created


def covered(cases: list[Case]) -> list[Any]:
    params = []
    for case in cases:
        reason = NOT_COVERED.get(case.range.package)
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        params.append(pytest.param(case, marks=marks, id=str(case)))
    return params


def to_peer(peer: Any, struct: Struct, ours: Message, version: int) -> Any:
    values = {}
    for field in struct.fields:
        nested = peer._struct.fields[field.name]
        values[field.name] = _peer_value(nested, field, getattr(ours, field.name), version)
    return peer(version=version, **values)


def _peer_value(nested: Any, field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.array:
        return [_peer_element(nested, field, item, version) for item in value]
    return _peer_element(nested, field, value, version)


def _peer_element(nested: Any, field: Field, value: Any, version: int) -> Any:
    if field.struct is not None:
        return to_peer(nested.data_class, field.struct, value, version)
    if field.kind == "uuid":
        return None if value == ZERO_UUID else uuid.UUID(bytes=value)
    return value


def same(peer: Any, struct: Struct, ours: Message) -> bool:
    return all(
        _same_value(getattr(peer, field.name), field, getattr(ours, field.name)) for field in struct.fields
    )


def _same_value(peer: Any, field: Field, ours: Any) -> bool:
    if peer is None or ours is None:
        return bool((ZERO_UUID if peer is None and field.kind == "uuid" else peer) == ours)
    if field.array:
        return len(peer) == len(ours) and all(map(_same_element, peer, [field] * len(ours), ours))
    return _same_element(peer, field, ours)


def _same_element(peer: Any, field: Field, ours: Any) -> bool:
    if field.struct is not None:
        return same(peer, field.struct, ours)
    if field.kind == "uuid":
        return bool((ZERO_UUID if peer is None else peer.bytes) == ours)
    return bool(peer == ours)


@pytest.mark.parametrize("case", covered(REQUESTS))
def test_request_written_by_kafka_python_is_read(case: Case) -> None:
    struct = load(case.range, case.version, case.side)

    @case.few(8)
    @given(case.plain_values)
    def check(plain: dict[str, Any]) -> None:
        ours = case.to_ours(plain)
        encoded = bytes(to_peer(peer_class(struct.name), struct, ours, case.version).encode())
        assert case.api.decode_request(case.version, memoryview(encoded), 0) == ours

    check()


@pytest.mark.parametrize("case", covered(RESPONSES))
def test_response_is_what_kafka_python_writes_and_reads(case: Case) -> None:
    struct = load(case.range, case.version, case.side)

    @case.few(8)
    @given(case.plain_values)
    def check(plain: dict[str, Any]) -> None:
        ours = case.to_ours(plain)
        encoded = b"".join(case.api.encode_response(case.version, ours))
        peer = peer_class(struct.name)
        assert encoded == bytes(to_peer(peer, struct, ours, case.version).encode())
        assert same(peer.decode(encoded, version=case.version), struct, ours)

    check()
