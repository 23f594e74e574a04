"""Totals of the whole broker: those of all topics and queues, also of deleted ones."""

from typing import Any

import httpx

from tests.protocols.admin.clients import answered
from tests.protocols.admin.conftest import Scene
from tests.protocols.admin.metrics.scraping import scrape


async def _traffic(http: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = answered(await http.get("/v1/overview"))["traffic"]
    return found


async def _work(scene: Scene) -> None:
    """Three records to a topic; three messages to a queue, of which one is got and acknowledged."""
    answered(await scene.http.post("/v1/topics", json={"name": "t", "partitions": 2}), 201)
    records = {"records": [{"value": "x", "partition": each} for each in (0, 1, 0)]}
    answered(await scene.http.post("/v1/topics/t/records", json=records))
    queue = await scene.channel.declare_queue("q")
    await scene.publish(b"1", b"2", b"3")
    await (await queue.get()).ack()
    counters = scene.broker.app.broker.namespaces.get("/").queues["q"].counters
    while not counters.acked:
        await scene.http.get("/health/live")


async def test_they_are_the_sums_of_the_metrics(scene: Scene) -> None:
    assert set((await _traffic(scene.http)).values()) == {0}
    await _work(scene)
    traffic = await _traffic(scene.http)
    metrics = await scrape(scene.broker)

    def summed(name: str) -> float:
        return sum(value for (metric, _), value in metrics.values.items() if metric == name)

    for name in ("records_in", "bytes_in", "records_out", "bytes_out"):
        assert traffic[name] == summed(f"posthouse_topic_{name}_total")
    for name in ("published", "delivered", "got", "acked", "redelivered", "dead_lettered", "expired"):
        assert traffic[name] == summed(f"posthouse_queue_{name}_messages_total")
    assert (traffic["records_in"], traffic["published"], traffic["got"], traffic["acked"]) == (6, 3, 1, 1)


async def test_they_do_not_fall_when_topics_and_queues_are_deleted(scene: Scene) -> None:
    await _work(scene)
    before = await _traffic(scene.http)
    answered(await scene.http.delete("/v1/topics/t"), 204)
    await (await scene.channel.get_queue("q")).delete(if_empty=False)
    assert await _traffic(scene.http) == before
    await _work(scene)
    assert await _traffic(scene.http) == {name: 2 * value for name, value in before.items()}
