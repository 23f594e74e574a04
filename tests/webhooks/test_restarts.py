"""Nothing is lost when the broker is killed, and nothing is forgotten."""

import asyncio
import json
from pathlib import Path

import httpx

from tests.served import ServedBroker
from tests.webhooks.receivers import PATIENCE, Received, Receiver, Reply, receiver

MESSAGES = 120
KILLS = 2


async def _api(broker: ServedBroker, method: str, path: str, body: object = None) -> dict[str, object]:
    async with httpx.AsyncClient(base_url=f"http://{broker.admin}", timeout=PATIENCE) as http:
        answer = await http.request(method, f"/v1/{path}", json=body)
        assert answer.status_code < 300, answer.text
        return dict(answer.json()) if answer.content else {}


async def _produce(broker: ServedBroker, numbers: range) -> None:
    records = [{"key": str(number % 4), "value": str(number)} for number in numbers]
    await _api(broker, "POST", "topics/orders/records", {"records": records})


def _served(data: Path) -> ServedBroker:
    return ServedBroker(data, webhook_allow="127.0.0.0/8")


async def test_no_message_is_lost_when_the_broker_is_killed_and_keys_keep_their_order(tmp_path: Path) -> None:
    count = 0

    def answer(received: Received) -> Reply:
        nonlocal count
        count += 1
        return Reply(status=500 if count % 7 == 0 else 200)

    async with receiver(answer) as endpoint:
        broker = _served(tmp_path / "data")
        try:
            await _api(broker, "POST", "topics", {"name": "orders", "partitions": 2})
            hook = {"name": "hook", "topic": "orders", "url": endpoint.url, "ordered": True}
            await _api(broker, "POST", "webhooks", {**hook, "first_delay_seconds": 0.05})
            for kill in range(KILLS):
                some = range(kill * MESSAGES // KILLS, (kill + 1) * MESSAGES // KILLS)
                await _produce(broker, some)
                await endpoint.got(len(endpoint.received) + len(some) // 3)
                await asyncio.to_thread(broker.kill)
                broker = _served(tmp_path / "data")
            await endpoint.until(lambda it: len(set(_succeeded(it))) == MESSAGES)
            while (await _api(broker, "GET", "webhooks/hook"))["lag"]:
                await asyncio.sleep(0.05)
        finally:
            await asyncio.to_thread(broker.kill)
    for key in range(4):
        first = [number for number in dict.fromkeys(_succeeded(endpoint)) if number % 4 == key]
        assert first == sorted(first), f"key {key}: a message overtook another one"


def _succeeded(endpoint: Receiver) -> list[int]:
    """In their order, with those that came again."""
    return [
        json.loads(each.body) for number, each in enumerate(endpoint.received, start=1) if number % 7 != 0
    ]
