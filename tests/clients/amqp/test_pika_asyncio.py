"""pika's asyncio adapter, unmodified: everything by callbacks."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pika import BasicProperties, URLParameters
from pika.adapters.asyncio_connection import AsyncioConnection

from tests.clients.amqp.blocking import SECONDS
from tests.clients.amqp.rabbit import Rabbit


async def told(start: Callable[[Callable[..., None]], object]) -> Any:
    """Waits for the callback that is handed to `start`; what it was called with, if one thing, comes back."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def callback(*arguments: Any) -> None:
        if not future.done():
            future.set_result(arguments[0] if len(arguments) == 1 else arguments)

    start(callback)
    return await asyncio.wait_for(future, SECONDS)


@pytest.fixture
async def connection(rabbit: Rabbit) -> AsyncIterator[Any]:
    made = await told(
        lambda opened: AsyncioConnection(
            URLParameters(rabbit.url),
            on_open_callback=opened,
            on_open_error_callback=lambda _, error: pytest.fail(f"no connection: {error}"),
        )
    )
    yield made
    if made.is_open:
        await told(lambda closed: (made.add_on_close_callback(closed), made.close()))


@pytest.fixture
async def channel(connection: Any) -> Any:
    return await told(lambda opened: connection.channel(on_open_callback=opened))


@pytest.fixture
async def queue(channel: Any, name: str) -> str:
    await told(lambda declared: channel.queue_declare(name, exclusive=True, callback=declared))
    return name


async def test_publish_with_confirms_and_consume(channel: Any, queue: str) -> None:
    confirmed: list[tuple[str, int, bool]] = []
    done = asyncio.Event()

    def confirm(frame: Any) -> None:
        confirmed.append((frame.method.NAME, frame.method.delivery_tag, frame.method.multiple))
        if frame.method.delivery_tag == 100:
            done.set()

    await told(lambda selected: channel.confirm_delivery(confirm, callback=selected))
    for number in range(100):
        channel.basic_publish("", queue, b"%d" % number, BasicProperties(message_id=str(number)))
    await asyncio.wait_for(done.wait(), SECONDS)
    assert {kind for kind, _, _ in confirmed} == {"Basic.Ack"}
    assert_all_confirmed(confirmed, 100)

    received: list[tuple[str, bytes]] = []
    all_received = asyncio.Event()

    def receive(_: Any, method: Any, properties: Any, body: bytes) -> None:
        received.append((properties.message_id, body))
        channel.basic_ack(method.delivery_tag)
        if len(received) == 100:
            all_received.set()

    channel.basic_qos(prefetch_count=10)
    channel.basic_consume(queue, receive)
    await asyncio.wait_for(all_received.wait(), SECONDS)
    assert received == [(str(number), b"%d" % number) for number in range(100)]


def assert_all_confirmed(confirmed: list[tuple[str, int, bool]], last: int) -> None:
    """Each once, whether one by one or several at a time."""
    open_tags = set(range(1, last + 1))
    for _, tag, multiple in confirmed:
        covered = {each for each in open_tags if each <= tag} if multiple else {tag}
        assert covered <= open_tags
        open_tags -= covered
    assert not open_tags


async def test_return_comes_before_the_confirm(channel: Any, name: str) -> None:
    events: list[str] = []
    confirmed = asyncio.Event()
    channel.add_on_return_callback(
        lambda _, method, properties, body: events.append(f"return {body.decode()}")
    )

    def confirm(frame: Any) -> None:
        events.append(f"ack {frame.method.delivery_tag}")
        confirmed.set()

    await told(lambda selected: channel.confirm_delivery(confirm, callback=selected))
    channel.basic_publish("", f"{name}-missing", b"lost", mandatory=True)
    await asyncio.wait_for(confirmed.wait(), SECONDS)
    assert events == ["return lost", "ack 1"]


async def test_cancel_notice(connection: Any, channel: Any, queue: str) -> None:
    tag = await told(lambda consuming: channel.basic_consume(queue, print, callback=consuming))
    other = await told(lambda opened: connection.channel(on_open_callback=opened))
    cancelled = told(channel.add_on_cancel_callback)
    waiting = asyncio.create_task(cancelled)
    await asyncio.sleep(0)
    await told(lambda deleted: other.queue_delete(queue, callback=deleted))
    assert (await waiting).method.consumer_tag == tag.method.consumer_tag


async def test_error_closes_the_channel_with_its_reason(connection: Any, channel: Any, name: str) -> None:
    closed = told(channel.add_on_close_callback)
    waiting = asyncio.create_task(closed)
    await asyncio.sleep(0)
    channel.queue_declare(f"{name}-missing", passive=True)
    _, reason = await waiting
    assert (reason.reply_code, channel.is_closed, connection.is_open) == (404, True, True)


async def test_many_channels(connection: Any, name: str) -> None:
    """Each with a queue and a consumer of its own, all at once."""
    received: dict[int, bytes] = {}
    all_received = asyncio.Event()

    async def use(number: int) -> None:
        channel = await told(lambda opened: connection.channel(on_open_callback=opened))
        queue = f"{name}-{number}"
        await told(lambda declared: channel.queue_declare(queue, exclusive=True, callback=declared))

        def receive(_: Any, method: Any, properties: Any, body: bytes) -> None:
            received[number] = body
            if len(received) == 50:
                all_received.set()

        channel.basic_consume(queue, receive, auto_ack=True)
        channel.basic_publish("", queue, b"%d" % number)

    await asyncio.gather(*(use(number) for number in range(50)))
    await asyncio.wait_for(all_received.wait(), SECONDS)
    assert received == {number: b"%d" % number for number in range(50)}


async def test_transaction(channel: Any, queue: str) -> None:
    async def ready() -> int:
        frame = await told(lambda declared: channel.queue_declare(queue, passive=True, callback=declared))
        found: int = frame.method.message_count
        return found

    await told(channel.tx_select)
    channel.basic_publish("", queue, b"one")
    assert await ready() == 0
    await told(channel.tx_rollback)
    channel.basic_publish("", queue, b"two")
    await told(channel.tx_commit)
    assert await ready() == 1
