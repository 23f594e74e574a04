"""Where messages go that die, and what is told of their deaths; by pika's blocking connection."""

from itertools import pairwise
from typing import Any

import pytest

from tests.clients.amqp.blocking import count, get_all, publish, take, wait
from tests.clients.amqp.dead_letters import dead_letter_queue, deaths, first_death


@pytest.mark.parametrize("how", ["reject", "nack"])
def test_rejected_message_is_dead(channel: Any, name: str, how: str) -> None:
    dead, exchange = dead_letter_queue(channel, name)
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "buried"}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    properties: dict[str, Any] = {"message_id": "42", "headers": {"mine": "kept"}, "delivery_mode": 2}
    publish(channel, name, b"bad", **properties)
    tag = channel.basic_get(name)[0].delivery_tag
    if how == "reject":
        channel.basic_reject(tag, requeue=False)
    else:
        channel.basic_nack(tag, requeue=False)
    [found] = take(channel, dead, 1)
    assert (found.method.exchange, found.method.routing_key) == (exchange, "buried")
    assert (found.properties.message_id, found.properties.delivery_mode) == ("42", 2)
    assert found.properties.headers["mine"] == "kept"
    assert deaths(found) == [(name, "rejected", 1, "", [name])]
    assert first_death(found) == [name, "rejected", ""]


def test_rejected_message_without_a_place_to_go(channel: Any, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-dead-letter-exchange": f"{name}-missing"})
    publish(channel, name, b"a", b"b")
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    assert get_all(channel, name) == [b"b"]


def test_chain_of_deaths(channel: Any, name: str) -> None:
    """Three queues, each the dead-letter queue of the one before; all deaths are told, the last one first."""
    queues = [f"{name}-{number}" for number in range(4)]
    channel.queue_declare(queues[3], exclusive=True)
    for queue, following in pairwise(queues):
        arguments = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": following,
            "x-message-ttl": 20,
        }
        channel.queue_declare(queue, exclusive=True, arguments=arguments)
    publish(channel, queues[0], b"much travelled")
    [found] = take(channel, queues[3], 1)
    told = [(queue, reason, number) for queue, reason, number, _, _ in deaths(found)]
    assert told[0] == (queues[2], "expired", 1)
    assert set(told) == {(queue, "expired", 1) for queue in queues[:3]}
    assert first_death(found) == [queues[0], "expired", ""]


def test_death_tells_through_which_exchange_it_came(channel: Any, name: str) -> None:
    """Also the second one: that of the dead letter, with the key that it had."""
    dead, exchange = dead_letter_queue(channel, name)
    channel.exchange_declare(f"{name}-first", "fanout", auto_delete=True)
    first = {"x-dead-letter-exchange": f"{name}-first", "x-dead-letter-routing-key": "fallen"}
    channel.queue_declare(name, exclusive=True, arguments=first)
    second = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "buried", "x-message-ttl": 10}
    channel.queue_declare(f"{name}-second", exclusive=True, arguments=second)
    channel.queue_bind(f"{name}-second", f"{name}-first")
    publish(channel, name, b"x")
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    [found] = take(channel, dead, 1)
    assert deaths(found) == [
        (f"{name}-second", "expired", 1, f"{name}-first", ["fallen"]),
        (name, "rejected", 1, "", [name]),
    ]
    assert (found.method.exchange, found.method.routing_key) == (exchange, "buried")


def test_dead_letters_are_matched_by_their_headers(channel: Any, name: str) -> None:
    channel.exchange_declare(name, "headers", auto_delete=True)
    channel.queue_declare(f"{name}-dead", exclusive=True)
    channel.queue_bind(f"{name}-dead", name, arguments={"x-match": "all", "tenant": "blue"})
    channel.queue_declare(
        name, exclusive=True, arguments={"x-dead-letter-exchange": name, "x-message-ttl": 10}
    )
    publish(channel, name, b"green", headers={"tenant": "green"})
    publish(channel, name, b"blue", headers={"tenant": "blue"})
    assert [each.body for each in take(channel, f"{name}-dead", 1)] == [b"blue"]


def test_dead_letters_go_by_all_of_their_keys(channel: Any, name: str) -> None:
    """Where the queue gives them no other: then by that alone, and the carbon copies are no more."""
    dead, exchange = f"{name}-dead", f"{name}-dlx"
    channel.exchange_declare(exchange, "direct", auto_delete=True)
    channel.queue_declare(dead, exclusive=True)
    channel.queue_bind(dead, exchange, "copy")
    for key in (None, "copy"):
        queue = f"{name}-{key}"
        arguments = {"x-dead-letter-exchange": exchange, "x-message-ttl": 10}
        if key is not None:
            arguments["x-dead-letter-routing-key"] = key
        channel.queue_declare(queue, exclusive=True, arguments=arguments)
        publish(channel, queue, b"x", headers={"CC": ["copy"]})
        [found] = take(channel, dead, 1)
        assert found.properties.headers.get("CC") == (None if key else ["copy"])
        assert deaths(found) == [(queue, "expired", 1, "", [queue, "copy"])]


def test_dead_letters_keep_their_priority(channel: Any, connection: Any, name: str) -> None:
    channel.queue_declare(f"{name}-dead", exclusive=True, arguments={"x-max-priority": 5})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead", "x-max-length": 0}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    for priority in (1, 5, 3):
        publish(channel, name, b"%d" % priority, priority=priority)
    wait(lambda: count(channel, f"{name}-dead") == 3, connection)
    assert get_all(channel, f"{name}-dead") == [b"5", b"3", b"1"]


def test_dead_letter_for_a_queue_that_is_full(channel: Any, name: str) -> None:
    """It is lost; the queue that it comes from goes on."""
    full = f"{name}-full"
    channel.queue_declare(full, exclusive=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": full}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, full, b"first")
    publish(channel, name, b"second", b"third")
    channel.basic_reject(channel.basic_get(name)[0].delivery_tag, requeue=False)
    assert get_all(channel, name) == [b"third"]
    assert get_all(channel, full) == [b"first"]


def test_retry_by_a_waiting_queue(channel: Any, connection: Any, name: str) -> None:
    """The usual way to try again later: rejected, it waits in a queue that lets it expire, and comes back."""
    waiting = f"{name}-waiting"
    channel.queue_declare(
        name,
        exclusive=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": waiting},
    )
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name, "x-message-ttl": 20}
    channel.queue_declare(waiting, exclusive=True, arguments=arguments)
    publish(channel, name, b"work")
    for attempt in range(1, 4):
        [found] = take(channel, name, 1, ack=False)
        if attempt > 1:
            tries = {reason: number for _, reason, number, _, _ in deaths(found)}
            assert tries == {"rejected": attempt - 1, "expired": attempt - 1}
            assert deaths(found)[0][1] == "expired"
        channel.basic_reject(found.method.delivery_tag, requeue=False)
        channel.cancel()
    assert take(channel, name, 1)[0].body == b"work"


def test_message_that_would_die_in_circles_is_dropped(channel: Any, connection: Any, name: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": name, "x-message-ttl": 10}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish(channel, name, b"a")
    wait(lambda: count(channel, name) == 0, connection)
