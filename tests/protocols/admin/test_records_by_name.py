"""Records by HTTP, by key and message id: the same with and without an index, page by page."""

from typing import Any

import pytest

from posthouse.testing import AsyncBroker
from tests.protocols.admin.clients import answered, client

ORDERS = "/v1/topics/orders/records"


@pytest.mark.parametrize("is_indexed", [False, True])
async def test_records_are_found_by_name_and_time_page_by_page(is_indexed: bool) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        settings = {"index.keys": "true"} if is_indexed else {}
        body = {"name": "orders", "partitions": 2, "settings": settings}
        answered(await http.post("/v1/topics", json=body), 201)
        for number in range(60):
            record = {
                "key": f"k{number % 3}",
                "value": str(number),
                "partition": number % 2,
                "timestamp": 1000 + number,
                "headers": [
                    {"name": "KEYS", "value": f"w{number % 5} w"},
                    {"name": "UNIQ_KEY", "value": f"id{number}"},
                ],
            }
            answered(await http.post(ORDERS, json={"records": [record]}))
        await broker.app.broker.key_index.catch_up()

        async def found(**parameters: Any) -> list[int]:
            values: list[int] = []
            after = ""
            while True:
                page = answered(await http.get(ORDERS, params={**parameters, "after": after}))
                values += [int(each["value"]["data"]) for each in page["records"]]
                if page["next"] is None:
                    assert page["complete"]
                    return values
                after = page["next"]

        def expected(*, key: int | None = None, word: int | None = None) -> list[int]:
            chosen = [
                n for n in range(60) if (key is None or n % 3 == key) and (word is None or n % 5 == word)
            ]
            return sorted(chosen, key=lambda n: (n % 2, n))

        for limit in (1, 3, 100):
            assert await found(key="k1", limit=limit) == expected(key=1)
            assert await found(key="w2", limit=limit) == expected(word=2)
        assert await found(message_id="id17") == [17]
        assert await found(message_id="k1") == []
        assert await found(key="id17") == []
        assert await found(key="k1", partition=1) == [n for n in expected(key=1) if n % 2]
        within = [n for n in expected(key=1) if 1010 <= 1000 + n <= 1030]
        assert await found(key="k1", timestamp=1010, until=1030, limit=2) == within


async def test_an_index_saves_reading() -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        body = {"name": "orders", "partitions": 1, "settings": {"index.keys": "true"}}
        answered(await http.post("/v1/topics", json=body), 201)
        for number in range(50):
            answered(await http.post(ORDERS, json={"records": [{"key": str(number), "value": "x" * 500}]}))
        before = answered(await http.get(ORDERS, params={"key": "7"}))["scanned_bytes"]
        await broker.app.broker.key_index.catch_up()
        page = answered(await http.get(ORDERS, params={"key": "7"}))
        assert len(page["records"]) == 1
        assert page["scanned_bytes"] * 20 < before
        metrics = (await http.get("/metrics")).text
        assert "posthouse_key_index_behind_records 0" in metrics
        assert "posthouse_key_index_records_total 50" in metrics


@pytest.mark.parametrize(
    ("parameters", "word"),
    [({"key": "a", "message_id": "b"}, "not both"), ({"until": 5}, "until belongs to a search")],
)
async def test_contradictions_are_named(parameters: dict[str, Any], word: str) -> None:
    async with AsyncBroker() as broker, client(broker) as http:
        answered(await http.post("/v1/topics", json={"name": "orders", "partitions": 1}), 201)
        answer = await http.get(ORDERS, params=parameters)
        assert answer.status_code == 400 and word in answer.json()["detail"]
