"""Two releases with two versions of the tables: brokers are replaced in turn, and clients go on."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.cluster.releases import COMPATIBLE, INCOMPATIBLE, THIS, Brokers, brokers_of, later_release

Sql = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def brokers(url: str, tmp_path: Path) -> Iterator[Brokers]:
    with brokers_of(url, tmp_path) as made:
        yield made


class Traffic:
    """Produces and consumes with a group, until it is stopped. An error of a client ends it."""

    def __init__(self, bootstrap: str) -> None:
        common: dict[str, Any] = {"bootstrap_servers": bootstrap, "metadata_max_age_ms": 1000}
        self._producer = AIOKafkaProducer(enable_idempotence=True, **common)
        self._consumer = AIOKafkaConsumer(
            "t", group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=200, **common
        )
        self._stopping = False
        self.sent = 0
        self.received: set[bytes] = set()

    async def __aenter__(self) -> "Traffic":
        await self._producer.start()
        await self._consumer.start()
        self._tasks = [asyncio.create_task(self._produce()), asyncio.create_task(self._consume())]
        return self

    async def __aexit__(self, *error: object) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._consumer.stop()
        await self._producer.stop()

    async def _produce(self) -> None:
        while not self._stopping:
            await self._producer.send_and_wait("t", b"%d" % self.sent, partition=self.sent % 4)
            self.sent += 1
            await asyncio.sleep(0.02)

    async def _consume(self) -> None:
        async for message in self._consumer:
            assert message.value is not None
            self.received.add(message.value)

    async def progress(self) -> None:
        """Returns when more was sent and received."""
        wanted = self.sent + 20
        await self._until(lambda: b"%d" % wanted in self.received)

    async def finish(self) -> None:
        """Returns when everything that was sent was received."""
        self._stopping = True
        await self._tasks[0]
        await self._until(lambda: self.received == {b"%d" % each for each in range(self.sent)})

    async def _until(self, is_so: Any) -> None:
        async with asyncio.timeout(90):
            while not is_so():
                for each in self._tasks:
                    if each.done():
                        each.result()
                await asyncio.sleep(0.05)


async def versions(admin: str) -> dict[str, str]:
    async with httpx.AsyncClient(timeout=30) as http:
        found = (await http.get(f"http://{admin}/v1/brokers")).json()
    return {each["name"]: each["version"] for each in found["brokers"]}


async def test_brokers_are_replaced_one_after_the_other(
    url: str, sql: Sql, brokers: Brokers, tmp_path: Path
) -> None:
    later = later_release(tmp_path / "later", "99.1.0", COMPATIBLE)
    for name in "ab":
        await asyncio.to_thread(brokers.start, THIS, name)
    async with Traffic(brokers.kafka) as traffic:
        await traffic.progress()
        done = await asyncio.to_thread(later.command, "storage", "migrate", "--database", url)
        assert done.returncode == 0, done.stderr
        assert sql.execute("SELECT max(version) FROM schema_version").fetchone() == (2,)
        await traffic.progress()
        for name in "ba":
            await asyncio.to_thread(brokers.stop, name)
            # An older release still starts on the new tables: an upgrade can be given up.
            await asyncio.to_thread(brokers.start, THIS, name)
            await traffic.progress()
            await asyncio.to_thread(brokers.stop, name)
            await asyncio.to_thread(brokers.start, later, name)
            await traffic.progress()
        await traffic.finish()
        assert await versions(brokers.admin("a")) == {"a": "99.1.0", "b": "99.1.0"}


async def test_tables_that_running_brokers_cannot_use(
    url: str, sql: Sql, brokers: Brokers, tmp_path: Path
) -> None:
    later = later_release(tmp_path / "later", "99.2.0", COMPATIBLE, INCOMPATIBLE)
    await asyncio.to_thread(brokers.start, THIS, "a")
    done = await asyncio.to_thread(later.command, "storage", "migrate", "--database", url)
    assert done.returncode == 1
    assert f"cannot be used by brokers that run: a (release {THIS.version})" in done.stderr
    assert sql.execute("SELECT max(version) FROM schema_version").fetchone() == (1,)
    await asyncio.to_thread(brokers.stop, "a")
    done = await asyncio.to_thread(later.command, "storage", "migrate", "--database", url)
    assert (done.returncode, sql.execute("SELECT max(version) FROM schema_version").fetchone()) == (0, (3,))
    with pytest.raises(AssertionError, match="the broker did not start"):
        await asyncio.to_thread(brokers.start, THIS, "a")
    await asyncio.to_thread(brokers.start, later, "a")
    assert await versions(brokers.admin("a")) == {"a": "99.2.0"}
