"""The management API works on a channel without a client, and shares what the AMQP front end has."""

import httpx

from posthouse.app import App
from posthouse.listener_settings import Address
from posthouse.protocols.front_ends import FRONT_ENDS
from posthouse.settings import Settings
from posthouse.testing import AsyncBroker

Q = "/api/queues/%2F/q"


async def test_queues_are_declared_without_an_amqp_listener() -> None:
    async with (
        AsyncBroker(amqp=None) as broker,
        httpx.AsyncClient(base_url=f"http://{broker.admin}") as http,
    ):
        assert (await http.put(Q, json={})).status_code == 201
        assert [each["name"] for each in (await http.get("/api/queues")).json()] == ["q"]


async def test_a_broker_without_the_amqp_front_end_refuses_declarations() -> None:
    address = Address("127.0.0.1", 0)
    only_admin = [each for each in FRONT_ENDS if each.protocol.name == "admin"]
    app = App(Settings(memory=True, kafka=None, amqp=None, admin=address), front_ends=only_admin)
    await app.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://{app.listeners['admin']}") as http:
            answer = await http.put(Q, json={})
            assert (answer.status_code, "does not serve AMQP" in answer.json()["reason"]) == (400, True)
            assert (await http.get("/api/queues")).json() == []
    finally:
        await app.stop()
