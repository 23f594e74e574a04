"""Connections by HTTP: listed and closed."""

import asyncio

import aio_pika

from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.kafka.wire import Wire


async def test_connections_of_every_protocol_are_listed() -> None:
    async with AsyncBroker() as broker, client(broker) as http, Wire(broker.kafka) as wire:
        await wire.create_topic("t", 1)
        found = answered(await http.get("/v1/connections"))
        by_protocol = {each["protocol"]: each for each in found["items"]}
        assert set(by_protocol) == {"http", "kafka"}
        host, port = wire.writer.get_extra_info("sockname")
        kafka = by_protocol["kafka"]
        assert (kafka["peer"], kafka["listener"], kafka["user"]) == (f"{host}:{port}", "kafka", None)
        assert kafka["received_bytes"] > 0


async def test_a_connection_is_closed() -> None:
    async with AsyncBroker() as broker, client(broker) as http, Wire(broker.kafka) as wire:
        await wire.create_topic("t", 1)
        host, port = wire.writer.get_extra_info("sockname")
        answered(await http.delete(f"/v1/connections/{host}:{port}"), 204)
        assert await asyncio.wait_for(wire.reader.read(), 30) == b""
        answered(await http.delete(f"/v1/connections/{host}:{port}"), 404)


async def test_an_amqp_connection_is_closed() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        connection = await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/")
        await connection.channel()
        closed = asyncio.Event()
        connection.close_callbacks.add(lambda *_: closed.set())
        [found] = [
            each
            for each in answered(await http.get("/v1/connections"))["items"]
            if each["protocol"].startswith("amqp")
        ]
        assert found["namespace"] == "/"
        answered(await http.delete(f"/v1/connections/{found['peer']}"), 204)
        await asyncio.wait_for(closed.wait(), 30)


async def test_a_list_shows_few_of_very_many_channels() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        async with await aio_pika.connect(f"amqp://guest:guest@{broker.amqp}/") as connection:
            for _ in range(25):
                await connection.channel()
            [found] = [
                each
                for each in answered(await http.get("/v1/connections"))["items"]
                if each["protocol"].startswith("amqp")
            ]
            assert [each["number"] for each in found["channels"]] == list(range(1, 21))
            assert found["channels_total"] == 25
            alone = answered(await http.get(f"/v1/connections/{found['peer']}"))
            assert [each["number"] for each in alone["channels"]] == list(range(1, 26))
        answered(await http.get("/v1/connections/127.0.0.1:1"), 404)


async def test_the_own_connection_may_be_closed() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        [found] = answered(await http.get("/v1/connections"))["items"]
        answered(await http.delete(f"/v1/connections/{found['peer']}"), 204)
        [other] = answered(await http.get("/v1/connections"))["items"]
        assert other["peer"] != found["peer"]


async def test_only_administrators_see_and_close_connections() -> None:
    async with AsyncBroker(users=USERS) as broker, client(broker, "ann") as ann:
        answered(await ann.get("/v1/connections"), 403)
        answered(await ann.get("/v1/connections/127.0.0.1:1"), 403)
        answered(await ann.delete("/v1/connections/127.0.0.1:1"), 403)
