"""Dead letters: how they count when an application publishes them again, and when they are there."""

from typing import Any

import pytest
from pamqp.commands import Basic, Queue, Tx

from tests.protocols.amqp.as_rabbitmq.client import Client
from tests.wire.amqp import Content


async def _queues(client: Client, name: str, **arguments: Any) -> tuple[str, str]:
    """A queue, and the one that its dead letters go to."""
    dead = f"{name}-dead"
    await client.ask(1, Queue.Declare(queue=dead, exclusive=True))
    onward = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    await client.ask(1, Queue.Declare(queue=name, exclusive=True, arguments=onward | arguments))
    return name, dead


async def _got(client: Client, queue: str) -> Content:
    """RabbitMQ moves dead letters on its own time."""
    while True:
        got = await client.ask(1, Basic.Get(queue=queue, no_ack=True))
        if isinstance(got, Content):
            return got


async def _rejected(client: Client, queue: str) -> None:
    got = await client.ask(1, Basic.Get(queue=queue))
    client.send(1, Basic.Reject(got.method.delivery_tag, False))


def _counts(message: Content) -> list[tuple[str, str, int]]:
    deaths: Any = (message.properties.headers or {})["x-death"]
    return [(death["queue"], death["reason"], death["count"]) for death in deaths]


async def test_a_dead_letter_that_is_published_again_goes_on_counting(client: Client, name: str) -> None:
    work, dead = await _queues(client, name)
    headers: Any = {"tries": "mine"}
    for number in range(1, 5):
        await client.send_all(work, 1, headers=headers)
        await _rejected(client, work)
        message = await _got(client, dead)
        assert _counts(message) == [(work, "rejected", number)]
        headers = message.properties.headers
        assert headers["tries"] == "mine"
        assert headers["x-first-death-queue"] == work


async def test_another_reason_is_another_count(client: Client, name: str) -> None:
    work, dead = await _queues(client, name)
    await client.send_all(work, 1)
    await _rejected(client, work)
    headers = (await _got(client, dead)).properties.headers
    await client.send_all(work, 1, headers=headers, expiration="1")
    message = await _got(client, dead)
    assert _counts(message) == [(work, "expired", 1), (work, "rejected", 1)]
    deaths: Any = (message.properties.headers or {})["x-death"]
    assert deaths[0]["original-expiration"] == "1"
    assert "original-expiration" not in deaths[1]


async def test_the_first_expiration_is_kept(client: Client, name: str) -> None:
    work, dead = await _queues(client, name)
    headers: Any = {}
    for number in range(1, 4):
        await client.send_all(work, 1, headers=headers, expiration=str(number))
        message = await _got(client, dead)
        headers = message.properties.headers
        assert _counts(message) == [(work, "expired", number)]
        assert headers["x-death"][0]["original-expiration"] == "1"
        assert message.properties.expiration is None


@pytest.mark.parametrize("told", ["text", 7, [], {"a": 1}])
async def test_what_is_no_list_of_deaths_is_replaced(client: Client, name: str, told: Any) -> None:
    work, dead = await _queues(client, name)
    await client.send_all(work, 1, headers={"x-death": told})
    await _rejected(client, work)
    message = await _got(client, dead)
    assert _counts(message) == [(work, "rejected", 1)]
    assert "x-first-death-queue" not in (message.properties.headers or {})


async def test_a_publisher_tells_of_other_deaths(client: Client, name: str) -> None:
    work, dead = await _queues(client, name)
    told: Any = [
        {"queue": "other", "reason": "maxlen", "count": 7},
        {"queue": work, "reason": "rejected", "count": 3},
    ]
    await client.send_all(work, 1, headers={"x-death": told})
    await _rejected(client, work)
    assert _counts(await _got(client, dead)) == [(work, "rejected", 4), ("other", "maxlen", 7)]


async def test_told_deaths_end_a_cycle(client: Client, name: str) -> None:
    work, dead = await _queues(client, name)
    told: Any = [{"queue": dead, "reason": "expired", "count": 1}]
    await client.send_all(work, 1, headers={"x-death": told}, expiration="1")
    await client.send_all(work, 1, headers={"other": True}, expiration="2")
    message = await _got(client, dead)
    assert "other" in (message.properties.headers or {}), "the first one would go round in circles"
    assert await client.count(dead) == 0


async def test_a_queue_that_is_too_long_has_its_dead_letters_when_it_confirms(
    client: Client, name: str
) -> None:
    work, dead = await _queues(client, name, **{"x-max-length": 1})
    await client.send_all(work, 1)
    for number in range(1, 11):
        await client.send_all(work, 1)
        assert await client.count(dead) == number


async def test_no_time_to_live_is_a_dead_letter_when_it_is_confirmed(client: Client, name: str) -> None:
    work, dead = await _queues(client, name, **{"x-message-ttl": 0})
    for number in range(1, 11):
        await client.send_all(work, 1)
        assert await client.count(dead) == number


async def test_rejects_of_a_transaction_are_dead_letters_when_it_is_committed(
    client: Client, name: str
) -> None:
    work, dead = await _queues(client, name)
    await client.ask(2, Tx.Select())
    await client.send_all(work, 5)
    for number in range(1, 6):
        got = await client.ask(2, Basic.Get(queue=work))
        client.send(2, Basic.Reject(got.method.delivery_tag, False))
        await client.ask(2, Tx.Commit())
        assert await client.count(dead) == number
