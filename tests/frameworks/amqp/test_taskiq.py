"""taskiq with taskiq-aio-pika: tasks, results, retries, both kinds of delays, and priorities."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from taskiq import SimpleRetryMiddleware
from taskiq.api import run_receiver_task
from taskiq.brokers.inmemory_broker import InmemoryResultBackend
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue
from taskiq_aio_pika.queue import QueueType

from posthouse.settings import Address
from posthouse.testing import AsyncBroker
from tests.clients.amqp.rabbit import Rabbit

SECONDS = 60.0


class Application:
    """The same broker as a client and as a worker has it, each with its own connections."""

    def __init__(self, url: str, name: str, **options: Any) -> None:
        results: InmemoryResultBackend[Any] = InmemoryResultBackend()

        def made() -> AioPikaBroker:
            settings: dict[str, Any] = {
                "exchange": Exchange(name=name),
                "task_queues": [Queue(name=name)],
                "dead_letter_queue": Queue(name=f"{name}-dead"),
            }
            broker = AioPikaBroker(url, **settings | options).with_result_backend(results)
            broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))
            return broker

        self.client, self.worker = made(), made()
        self.worker.is_worker_process = True

    def task(self, name: str, function: Callable[..., Any], **labels: Any) -> Any:
        self.worker.register_task(function, name, **labels)
        return self.client.register_task(function, name, **labels)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        await self.client.startup()
        try:
            yield
        finally:
            await self.client.shutdown()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        await self.worker.startup()
        receiving = asyncio.create_task(run_receiver_task(self.worker, max_async_tasks=1))
        try:
            yield
        finally:
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                await receiving
            await self.worker.shutdown()


async def result_of(task: Any) -> Any:
    result = await task.wait_result(check_interval=0.01, timeout=SECONDS)
    result.raise_for_error()
    return result.return_value


async def test_results_errors_and_retries(rabbit: Rabbit, name: str) -> None:
    app = Application(rabbit.url, name)
    attempts: list[int] = []

    async def add(a: int, b: int) -> int:
        return a + b

    async def flaky(works_at: int) -> int:
        attempts.append(works_at)
        if len(attempts) < works_at:
            raise ValueError("not yet")
        return len(attempts)

    sums, retried = app.task("add", add), app.task("flaky", flaky, retry_on_error=True)
    async with app.connected(), app.working():
        tasks = [await sums.kiq(number, 1) for number in range(20)]
        assert [await result_of(task) for task in tasks] == list(range(1, 21))
        assert await result_of(await retried.kiq(3)) == 3
        attempts.clear()
        with pytest.raises(ValueError, match="not yet"):
            await result_of(await retried.kiq(100))
        assert attempts == [100] * 3


@pytest.mark.parametrize("plugin", [False, True], ids=["queue", "plugin"])
async def test_delays(rabbit: Rabbit, name: str, plugin: bool) -> None:
    """By a queue whose messages expire into the exchange, or by a delayed exchange."""
    options: dict[str, Any] = {"delayed_message_exchange_plugin": True}
    if not plugin:
        options = {"delay_queue": Queue(name=f"{name}-delay", type=QueueType.CLASSIC)}
    app = Application(rabbit.url, name, **options)

    async def clock(value: str) -> float:
        return time.time()

    task = app.task("clock", clock)
    async with app.connected(), app.working():
        sent = time.time()
        later = await task.kicker().with_labels(delay=2).kiq("later")
        now = await task.kiq("now")  # on a busy machine it takes a while
        assert await result_of(later) - sent >= 2
        assert await result_of(now) < await result_of(later)


async def test_priorities_and_queues(rabbit: Rabbit, name: str) -> None:
    queues = [
        Queue(name=f"{name}-{part}", type=QueueType.CLASSIC, max_priority=10) for part in ("mail", "video")
    ]
    app = Application(rabbit.url, name, task_queues=queues)
    seen: list[str] = []

    async def note(value: str) -> None:
        seen.append(value)

    task = app.task("note", note)
    async with app.connected():
        sent = [
            await task.kicker()
            .with_labels(queue_name=f"{name}-{part}", priority=priority)
            .kiq(f"{part} {priority}")
            for part, priority in (("mail", 1), ("mail", 9), ("video", 5), ("mail", 5))
        ]
        async with app.working():
            for each in sent:
                await result_of(each)
    assert [value for value in seen if value.startswith("mail")] == ["mail 9", "mail 5", "mail 1"]
    assert sorted(seen) == ["mail 1", "mail 5", "mail 9", "video 5"]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # tasks that aio-pika forgets when it reconnects
)
async def test_going_on_after_a_restart_of_the_broker(tmp_path: Path, name: str) -> None:
    """Tasks that wait, and one that is delayed, survive; client and worker reconnect by themselves."""

    async def double(value: int) -> int:
        return value * 2

    async with AsyncBroker(data=tmp_path, amqp=Address("127.0.0.1", 0)) as running:
        rabbit = Rabbit(address=running.amqp, kafka=None)
        app = Application(rabbit.url, name, delayed_message_exchange_plugin=True, reconnect_interval=0.1)
        task = app.task("double", double)
        await app.client.startup()
        tasks = [await task.kiq(number) for number in range(5)]
        tasks.append(await task.kicker().with_labels(delay=0.8).kiq(5))
    async with AsyncBroker(data=tmp_path, amqp=Address(rabbit.host, rabbit.port)):
        async with app.working():
            assert [await result_of(each) for each in tasks] == [0, 2, 4, 6, 8, 10]
        async with await aio_pika.connect(rabbit.url) as connection:
            channel = await connection.channel()
            dead = await channel.declare_queue(f"{name}-dead", passive=True)
            assert dead.declaration_result.message_count == 0
        await app.client.shutdown()
