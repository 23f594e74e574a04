"""Records that are produced at a time, by HTTP."""

import asyncio
import time
from typing import Any

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import USERS, answered, client
from tests.protocols.admin.test_half_messages import values, with_topic

PATH = "/v1/topics/t/delayed-records"


async def test_a_record_comes_when_it_is_due() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http)
        at = int(time.time() * 1000) + 1500
        headers = [{"name": "h", "value": "x"}]
        record = {"deliver_at": at, "key": "k", "value": "later", "headers": headers}
        delayed = answered(await http.post(PATH, json=record))
        assert delayed["deliver_at"] == at
        answered(await http.post(PATH, json={"deliver_at": 0, "value": {"n": 1}, "encoding": "json"}))
        async with asyncio.timeout(60):
            while len(await values(http)) < 2:
                await asyncio.sleep(0.02)
        found = answered(await http.get("/v1/topics/t/records", params={"key": "k"}))["records"]
        assert [(each["value"]["data"], each["partition"]) for each in found] == [
            ("later", delayed["partition"])
        ]
        assert found[0]["timestamp"] >= at and found[0]["headers"][0]["name"] == "h"


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"value": None}, 400),
        ({"partition": 9}, 404),
        ({"deliver_at": 2**62}, 400),
        ({"value": "x" * 5000}, 413),
    ],
)
async def test_what_is_refused(fields: dict[str, Any], status: int) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        await with_topic(http, settings={"max.message.bytes": "1000"})
        answered(await http.post(PATH, json={"deliver_at": 0, "value": "v"} | fields), status)
        answered(
            await http.post("/v1/topics/missing/delayed-records", json={"deliver_at": 0, "value": "v"}), 404
        )


async def test_permissions() -> None:
    async with (
        AsyncBroker(users=USERS) as broker,
        client(broker, "admin") as admin,
        client(broker, "ann") as ann,
    ):
        await with_topic(admin)
        answered(await ann.post(PATH, json={"deliver_at": 0, "value": "v"}), 403)
