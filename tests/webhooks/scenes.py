"""A broker with a topic, and webhooks on it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from posthouse.broker.broker import Broker
from posthouse.broker.topics import NewTopic
from posthouse.broker.webhooks.definition import Begin, Retries, Target, Webhook
from posthouse.model.errors import PosthouseError
from posthouse.records.batch import iter_headers
from posthouse.records.header_section import decode_section, encode_section
from posthouse.records.raw import RawRecord, iter_raw
from posthouse.records.record import body_of
from tests.webhooks.receivers import PATIENCE

QUICK = Retries(max_attempts=5, first_delay_seconds=0.02, longest_delay_seconds=0.2)


def webhook(url: str, name: str = "hook", topic: str | None = "orders", **fields: Any) -> Webhook:
    """Fields of a webhook and of its target."""
    of_target = {"form", "batch", "concurrency", "rate", "timeout_seconds"}
    target = Target(url=url, **{each: fields.pop(each) for each in list(fields) if each in of_target})
    fields.setdefault("retries", QUICK)
    fields.setdefault("begin", Begin.EARLIEST)
    return Webhook(name=name, topic=topic, target=target, created_ms=1, secrets=(), **fields)


async def create_topic(broker: Broker, name: str = "orders", partitions: int = 1) -> None:
    [created] = await broker.create_topics([NewTopic(name=name, partitions=partitions, overrides={})])
    if isinstance(created, PosthouseError):
        raise created


async def produce(
    broker: Broker,
    *records: tuple[bytes | None, bytes],
    topic: str = "orders",
    partition: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
    timestamp: int | None = None,
) -> None:
    """Keys and values; durable on return."""
    loop = asyncio.get_running_loop()
    written: list[asyncio.Future[int | PosthouseError]] = []
    for key, value in records:
        done: asyncio.Future[int | PosthouseError] = loop.create_future()
        now = broker.now_ms() if timestamp is None else timestamp
        place = broker.topic(topic)
        broker.record_waves.add(place, partition, key, value, encode_section(headers), now, done.set_result)
        written.append(done)
    for result in await asyncio.gather(*written):
        if isinstance(result, PosthouseError):
            raise result


async def records(broker: Broker, topic: str) -> list[RawRecord]:
    """All of partition 0."""
    found: list[RawRecord] = []
    named = broker.topic(topic)
    end = broker.bounds(named, 0).end
    part = await broker.read(named, 0, 0, 1 << 24)
    view = memoryview(part.data)
    for at, header in iter_headers(part.data):
        found += iter_raw(body_of(view[at : at + header.length], header), header, 0, end)
    return found


def headers_of(record: RawRecord) -> dict[str, str]:
    return {
        name.decode(): (value or b"").decode(errors="replace")
        for name, value in decode_section(record.headers)
    }


async def until(is_so: Callable[[], bool]) -> None:
    """For states that tell nobody when they change."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():
            await asyncio.sleep(0.01)


def lag(broker: Broker, name: str = "hook") -> int:
    return broker.webhooks.lag(broker.webhooks.get(name))
