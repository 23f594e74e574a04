"""Every version of every API that is advertised answers a plain request, read with kio's eyes."""

import dataclasses
import datetime
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from posthouse.protocols.kafka.codec.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from posthouse.protocols.kafka.served_apis import HANDLERS
from tests.protocols.kafka.wire import Wire
from tools.kafka_codec.apis import APIS
from tools.kafka_codec.schema import kio_type

SERVED = [(api, version) for api in APIS if api.key in HANDLERS for version in api.versions]

# What a plain request needs besides zeroes.
FIELDS: dict[str, Any] = {
    "client_software_name": "test",
    "client_software_version": "1",
    "acks": -1,
    "session_epoch": -1,
    "response_partition_limit": 10,
    "endpoint_type": 1,
    "member_id": "m",
}

# Members of groups and producers introduce themselves first; these come out of nowhere. And nobody has to
# log in, or has permissions.
REFUSED = {
    "join_group": ErrorCode.invalid_group_id,
    "sync_group": ErrorCode.invalid_group_id,
    "heartbeat": ErrorCode.invalid_group_id,
    "leave_group": ErrorCode.invalid_group_id,
    "offset_delete": ErrorCode.group_id_not_found,
    "consumer_group_heartbeat": ErrorCode.invalid_group_id,
    "init_producer_id": ErrorCode.invalid_request,
    "add_offsets_to_txn": ErrorCode.invalid_group_id,
    "streams_group_heartbeat": ErrorCode.invalid_request,
    "share_group_heartbeat": ErrorCode.invalid_group_id,
    "share_fetch": ErrorCode.invalid_group_id,
    "share_acknowledge": ErrorCode.invalid_group_id,
    "alter_share_group_offsets": ErrorCode.invalid_group_id,
    "delete_share_group_offsets": ErrorCode.invalid_group_id,
    "end_txn": ErrorCode.invalid_producer_id_mapping,
    "sasl_handshake": ErrorCode.illegal_sasl_state,
    "sasl_authenticate": ErrorCode.illegal_sasl_state,
    "describe_acls": ErrorCode.security_disabled,
    "push_telemetry": ErrorCode.invalid_request,
    "create_delegation_token": ErrorCode.delegation_token_request_not_allowed,
    "renew_delegation_token": ErrorCode.delegation_token_request_not_allowed,
    "expire_delegation_token": ErrorCode.delegation_token_request_not_allowed,
    "describe_delegation_token": ErrorCode.delegation_token_request_not_allowed,
}


def plain(entity: type[Any]) -> Any:
    values = {}
    for field in dataclasses.fields(entity):
        if field.name in FIELDS:
            values[field.name] = FIELDS[field.name]
        elif field.default is dataclasses.MISSING:
            values[field.name] = _zero(field)
    return entity(**values)


def _zero(field: "dataclasses.Field[Any]") -> Any:
    kinds: dict[str, Any] = {
        "bool": False,
        "string": "",
        "bytes": b"",
        "timedelta_i32": datetime.timedelta(),
        "timedelta_i64": datetime.timedelta(),
        "uuid": None,
    }
    if "tuple" in str(field.type):
        return ()
    return kinds.get(field.metadata.get("kafka_type", ""), 0)


@pytest.mark.parametrize(
    ("api", "version"), SERVED, ids=[f"{api.package}-v{version}" for api, version in SERVED]
)
async def test_answers(api: Any, version: int, wire: Wire) -> None:
    await wire.create_topic("t", 2)
    answer = await wire.ask_kio(plain(kio_type(api, version, "request")), kio_type(api, version, "response"))
    expected = REFUSED.get(api.package, ErrorCode.none)
    assert getattr(answer, "error_code", expected) == expected


async def test_advertised_is_what_is_served(wire: Wire) -> None:
    answer = await wire.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), ApiVersionsResponse
    )
    assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == {
        api.key: (0 if api.key == 0 else api.min_version, api.max_version)
        for api in APIS
        if api.key in HANDLERS
    } | {10_000: (0, 0), 10_001: (0, 0), 10_002: (0, 0), 10_003: (0, 0)}
    assert 4 not in HANDLERS, "what brokers say among themselves"
