"""librdkafka pushes its metrics where the broker asks for them."""

import asyncio
import json
import time
from pathlib import Path

from confluent_kafka import Producer

from posthouse.testing import AsyncBroker
from tests.stored import stored_in


def produce_until_pushed(kafka: str, pushed: Path) -> None:
    producer = Producer({"bootstrap.servers": kafka, "client.id": "measured"})
    producer.produce("t", b"x")
    assert producer.flush(30) == 0
    deadline = time.monotonic() + 30
    while not pushed.read_text():
        assert time.monotonic() < deadline
        producer.poll(0.05)


async def test_librdkafka_pushes_its_metrics(tmp_path: Path) -> None:
    pushed = tmp_path / "metrics.jsonl"
    async with AsyncBroker(**stored_in(), client_metrics=pushed) as broker:
        subscriptions = broker.app.broker.metrics_subscriptions
        await subscriptions.change("all", lambda _: {"metrics": "*", "interval.ms": "100"})
        await asyncio.to_thread(produce_until_pushed, broker.kafka, pushed)
    first = json.loads(pushed.read_text().splitlines()[0])
    assert first["client_id"] == "measured"
    assert "librdkafka" in first["client_software_name"] or "confluent" in first["client_software_name"]
    assert any(point["name"].startswith("org.apache.kafka.producer") for point in first["metrics"])
