"""Payloads of schema registries, whose schemas are in a topic of the same broker."""

import base64
import io
import json
from typing import Any

import fastavro
import httpx

from posthouse.broker.access.acls import Acl
from posthouse.broker.access.operations import Kind, Operation
from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client

_ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}],
}
_RECORDS = "/v1/topics/orders/records"


def _framed(schema_id: int, payload: bytes) -> dict[str, str]:
    data = b"\x00" + schema_id.to_bytes(4, "big") + payload
    return {"value": base64.b64encode(data).decode(), "encoding": "base64"}


def _order(**fields: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(_ORDER), fields)
    return out.getvalue()


async def _register(http: httpx.AsyncClient, schema_id: int, schema: str, **more: str) -> None:
    """As Confluent's registry does."""
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    value = {
        "subject": "orders-value",
        "version": 1,
        "id": schema_id,
        "schema": schema,
        "deleted": False,
        **more,
    }
    record = {"key": key, "key_encoding": "json", "value": value, "encoding": "json"}
    answered(await http.post("/v1/topics/_schemas/records", json={"records": [record]}))


async def _topics(http: httpx.AsyncClient) -> None:
    answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
    settings = {"cleanup.policy": "compact"}
    answered(
        await http.post("/v1/topics", json={"name": "_schemas", "partitions": 1, "settings": settings}), 201
    )


async def _values(http: httpx.AsyncClient) -> list[Any]:
    found = answered(await http.get(_RECORDS, params={"partition": 0, "offset": 0}))
    return [each["value"] for each in found["records"]]


async def test_avro_is_decoded_by_the_schema_in_the_topic() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topics(http)
        records = [_framed(7, _order(id=1, item="tea")), _framed(8, b"\x02"), _framed(7, b"\x02\x90")]
        answered(await http.post(_RECORDS, json={"records": records}))
        assert [each["encoding"] for each in await _values(http)] == ["hex", "hex", "hex"]
        await _register(http, 7, json.dumps(_ORDER))
        first, second, third = await _values(http)
        assert (first["encoding"], first["data"], first["schema_id"]) == ("avro", {"id": 1, "item": "tea"}, 7)
        assert (second["encoding"], second["schema_id"]) == ("hex", 8)
        assert "its schema 8 is not in the topic '_schemas'" in second["note"]
        assert "it cannot be read as Avro with schema 7: " in third["note"]
        await _register(http, 8, '"long"')
        assert (await _values(http))[1]["data"] == 1


async def test_protocol_buffers_are_shown_by_number() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topics(http)
        records = [_framed(9, b"\x00\x08\x96\x01\x12\x03tea"), _framed(10, b"\x02\x02\x12\x03tea")]
        answered(await http.post(_RECORDS, json={"records": records}))
        first, second = await _values(http)
        assert (first["encoding"], first["data"]) == ("protobuf", {"1": 150, "2": "tea"})
        assert "by their numbers" in first["note"]
        assert second["encoding"] == "hex"
        await _register(http, 10, 'syntax = "proto3";', schemaType="PROTOBUF")
        assert (await _values(http))[1]["data"] == {"2": "tea"}


async def test_what_else_is_in_the_topic_does_no_harm() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topics(http)
        odd = [{"key": "k", "value": value} for value in ("{", "7", '{"id": "x"}', "x" * 300_000)]
        answered(await http.post("/v1/topics/_schemas/records", json={"records": odd}))
        answered(
            await http.post("/v1/topics/_schemas/records", json={"records": [{"key": "k", "value": None}]})
        )
        await _register(http, 7, "{no schema")
        answered(await http.post(_RECORDS, json={"records": [_framed(7, b"\x02")]}))
        [value] = await _values(http)
        assert "the schema is not valid JSON" in value["note"]


async def test_a_new_topic_of_that_name_has_other_schemas() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await _topics(http)
        answered(await http.post(_RECORDS, json={"records": [_framed(7, b"\x02")]}))
        await _register(http, 7, '"long"')
        assert (await _values(http))[0]["data"] == 1
        answered(await http.delete("/v1/topics/_schemas"), 204)
        answered(await http.post("/v1/topics", json={"name": "_schemas", "partitions": 1}), 201)
        assert (await _values(http))[0]["encoding"] == "hex"


async def test_schemas_are_for_those_who_may_read_them() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await _topics(admin)
        answered(await admin.post(_RECORDS, json={"records": [_framed(7, b"\x02")]}))
        await _register(admin, 7, '"long"')
        acl = Acl(kind=Kind.TOPIC, name="orders", principal="User:ann", operation=Operation.READ)
        await broker.app.broker.access.acls.add([acl])
        assert (await _values(admin))[0]["encoding"] == "avro"
        assert (await _values(ann))[0]["encoding"] == "hex"
