"""Dead letters as pika's blocking connection shows them."""

from typing import Any

from tests.clients.amqp.blocking import Delivery


def dead_letter_queue(channel: Any, name: str) -> tuple[str, str]:
    """A queue, and the exchange before it."""
    exchange, queue = f"{name}-dlx", f"{name}-dead"
    channel.exchange_declare(exchange, "topic", auto_delete=True)
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind(queue, exchange, "#")
    return queue, exchange


def deaths(delivery: Delivery) -> list[tuple[str, str, int, str, list[str]]]:
    """The last one first; each was timed, which is checked here."""
    found = delivery.properties.headers["x-death"]
    assert all(death["time"].year > 2000 for death in found)
    return [
        (death["queue"], death["reason"], death["count"], death["exchange"], death["routing-keys"])
        for death in found
    ]


def first_death(delivery: Delivery) -> list[str]:
    headers = delivery.properties.headers
    return [headers[f"x-first-death-{what}"] for what in ("queue", "reason", "exchange")]
