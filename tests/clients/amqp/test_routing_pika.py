"""Exchanges and bindings, by pika's blocking connection."""

from typing import Any

import pytest
from pika import BasicProperties
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from tests.clients.amqp.blocking import get, get_all


def queues(channel: Any, name: str, *endings: str) -> list[str]:
    """Exclusive ones, which go with the connection."""
    made = [f"{name}-{ending}" for ending in endings]
    for queue in made:
        channel.queue_declare(queue, exclusive=True)
    return made


def exchange(channel: Any, name: str, kind: str, **options: Any) -> str:
    channel.exchange_declare(name, kind, auto_delete=options.pop("auto_delete", True), **options)
    return name


def test_default_exchange(channel: Any, name: str) -> None:
    first, second = queues(channel, name, "first", "second")
    channel.basic_publish("", first, b"to the first", mandatory=True)
    assert get_all(channel, first) == [b"to the first"]
    assert get_all(channel, second) == []


def test_fanout(channel: Any, name: str) -> None:
    exchange(channel, name, "fanout")
    bound = queues(channel, name, "a", "b", "c")
    for queue in bound:
        channel.queue_bind(queue, name)
    [other] = queues(channel, name, "other")
    channel.basic_publish(name, "any key", b"news", mandatory=True)
    assert [get_all(channel, queue) for queue in bound] == [[b"news"]] * 3
    assert get_all(channel, other) == []


def test_direct(channel: Any, name: str) -> None:
    exchange(channel, name, "direct")
    errors, everything = queues(channel, name, "errors", "all")
    channel.queue_bind(errors, name, "error")
    for level in ("info", "warning", "error"):
        channel.queue_bind(everything, name, level)
    for level in ("info", "error", "warning"):
        channel.basic_publish(name, level, level.encode(), mandatory=True)
    assert get_all(channel, errors) == [b"error"]
    assert get_all(channel, everything) == [b"info", b"error", b"warning"]


def test_a_queue_that_is_bound_twice_gets_a_message_once(channel: Any, name: str) -> None:
    exchange(channel, name, "topic")
    [queue] = queues(channel, name, "queue")
    channel.queue_bind(queue, name, "a.*")
    channel.queue_bind(queue, name, "*.b")
    channel.queue_bind(queue, name, "*.b")
    channel.basic_publish(name, "a.b", b"once", mandatory=True)
    assert get_all(channel, queue) == [b"once"]


TOPICS = {
    "*.orange.*": {"quick.orange.rabbit", "lazy.orange.elephant"},
    "*.*.rabbit": {"quick.orange.rabbit", "lazy.pink.rabbit"},
    "lazy.#": {"lazy", "lazy.orange.elephant", "lazy.pink.rabbit", "lazy.brown.fox.at.home"},
    "#": {
        *("", "lazy", "quick", "quick.orange.rabbit", "lazy.orange.elephant", "lazy.pink.rabbit"),
        *("lazy.brown.fox.at.home", "a..b"),
    },
    "#.rabbit.#": {"quick.orange.rabbit", "lazy.pink.rabbit"},
    "lazy": {"lazy"},
    "*": {"lazy", "quick"},  # the empty key has no word at all
    "": {""},
    "a.*.b": {"a..b"},
    "#.at.#": {"lazy.brown.fox.at.home"},
    "*.#": {
        *("lazy", "quick", "quick.orange.rabbit", "lazy.orange.elephant", "lazy.pink.rabbit"),
        *("lazy.brown.fox.at.home", "a..b"),
    },
}
KEYS = sorted(set().union(*TOPICS.values()))


def test_topic(channel: Any, name: str) -> None:
    exchange(channel, name, "topic")
    found: dict[str, set[str]] = {}
    bound = queues(channel, name, *(str(index) for index in range(len(TOPICS))))
    for queue, pattern in zip(bound, TOPICS, strict=True):
        channel.queue_bind(queue, name, pattern)
    for key in KEYS:
        channel.basic_publish(name, key, key.encode(), mandatory=True)
    for queue, pattern in zip(bound, TOPICS, strict=True):
        found[pattern] = {body.decode() for body in get_all(channel, queue)}
    assert found == TOPICS


def test_headers(channel: Any, name: str) -> None:
    exchange(channel, name, "headers")
    both, either, presence, anything = queues(channel, name, "all", "any", "presence", "nothing")
    wanted = {"format": "pdf", "pages": 3}
    channel.queue_bind(both, name, arguments={"x-match": "all", **wanted})
    channel.queue_bind(either, name, arguments={"x-match": "any", **wanted})
    channel.queue_bind(presence, name, arguments={"format": None})
    channel.queue_bind(anything, name, arguments={})
    for body, headers in {
        b"both": wanted,
        b"more": wanted | {"colour": True},
        b"format": {"format": "pdf", "pages": 4},
        b"pages": {"pages": 3},
        b"other": {"format": "zip"},
        b"none": None,
    }.items():
        channel.basic_publish(name, "ignored", body, BasicProperties(headers=headers), mandatory=True)
    assert get_all(channel, both) == [b"both", b"more"]
    assert get_all(channel, either) == [b"both", b"more", b"format", b"pages"]
    assert get_all(channel, presence) == [b"both", b"more", b"format", b"other"]
    assert get_all(channel, anything) == [b"both", b"more", b"format", b"pages", b"other", b"none"]


def test_unbind(channel: Any, name: str) -> None:
    exchange(channel, name, "direct", auto_delete=False)
    [queue] = queues(channel, name, "queue")
    channel.queue_bind(queue, name, "key")
    channel.basic_publish(name, "key", b"one", mandatory=True)
    channel.queue_unbind(queue, name, "key")
    with pytest.raises(UnroutableError):
        channel.basic_publish(name, "key", b"two", mandatory=True)
    channel.exchange_delete(name)
    assert get_all(channel, queue) == [b"one"]


def test_exchange_to_exchange(channel: Any, name: str) -> None:
    """Also in a ring, which must end."""
    source = exchange(channel, f"{name}-source", "topic", auto_delete=False)
    middle = exchange(channel, f"{name}-middle", "fanout", auto_delete=False)
    target = exchange(channel, f"{name}-target", "direct", auto_delete=False)
    channel.exchange_bind(middle, source, "orders.#")
    channel.exchange_bind(target, middle)
    channel.exchange_bind(source, target, "orders.new")
    near, far = queues(channel, name, "near", "far")
    channel.queue_bind(near, middle)
    channel.queue_bind(far, target, "orders.new")
    channel.basic_publish(source, "orders.new", b"new", mandatory=True)
    channel.basic_publish(source, "orders.old", b"old", mandatory=True)
    assert get_all(channel, near) == [b"new", b"old"]
    assert get_all(channel, far) == [b"new"]
    channel.exchange_unbind(target, middle)
    channel.basic_publish(source, "orders.new", b"again", mandatory=True)
    assert get_all(channel, near) == [b"again"]
    assert get_all(channel, far) == []
    for each in (source, middle, target):
        channel.exchange_delete(each)


def test_alternate_exchange(channel: Any, name: str) -> None:
    """It gets what the exchange could not route; what it cannot route either is unroutable."""
    strays = exchange(channel, f"{name}-strays", "fanout", auto_delete=False)
    exchange(channel, name, "direct", auto_delete=False, arguments={"alternate-exchange": strays})
    known, stray = queues(channel, name, "known", "stray")
    channel.queue_bind(known, name, "known")
    channel.queue_bind(stray, strays)
    channel.basic_publish(name, "known", b"one", mandatory=True)
    channel.basic_publish(name, "unknown", b"two", mandatory=True)
    assert get_all(channel, known) == [b"one"]
    found = get(channel, stray)
    assert found is not None
    assert (found.body, found.method.exchange, found.method.routing_key) == (b"two", name, "unknown")
    channel.queue_unbind(stray, strays)
    with pytest.raises(UnroutableError):
        channel.basic_publish(name, "unknown", b"three", mandatory=True)
    for each in (name, strays):
        channel.exchange_delete(each)


def test_carbon_copies(channel: Any, name: str) -> None:
    """The headers CC and BCC name further routing keys; only BCC is taken off."""
    to, copy, blind = queues(channel, name, "to", "cc", "bcc")
    headers = {"CC": [copy], "BCC": [blind], "kept": "yes"}
    channel.basic_publish("", to, b"letter", BasicProperties(headers=headers), mandatory=True)
    for queue in (to, copy, blind):
        found = get(channel, queue)
        assert found is not None
        assert found.properties.headers == {"CC": [copy], "kept": "yes"}


def test_alternate_exchange_is_for_messages_that_none_of_their_keys_route(channel: Any, name: str) -> None:
    strays = exchange(channel, f"{name}-strays", "fanout", auto_delete=False)
    exchange(channel, name, "direct", auto_delete=False, arguments={"alternate-exchange": strays})
    known, stray = queues(channel, name, "known", "stray")
    channel.queue_bind(known, name, "known")
    channel.queue_bind(stray, strays)
    channel.basic_publish(name, "unknown", b"x", BasicProperties(headers={"CC": ["known"]}), mandatory=True)
    assert get_all(channel, known) == [b"x"]
    assert get_all(channel, stray) == []
    for each in (name, strays):
        channel.exchange_delete(each)


def test_mandatory_message_that_nothing_takes_comes_back(channel: Any, name: str) -> None:
    exchange(channel, name, "direct", auto_delete=False)
    properties = BasicProperties(message_id="42", headers={"a": 1})
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish(name, "nowhere", b"lost", properties, mandatory=True)
    [returned] = caught.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == (name, "nowhere")
    assert (returned.properties, returned.body) == (properties, b"lost")
    channel.basic_publish(name, "nowhere", b"nobody cares")
    channel.exchange_delete(name)


def test_publish_to_an_exchange_that_is_not_there(connection: Any, channel: Any, name: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.basic_publish(name, "key", b"", mandatory=True)
    assert caught.value.reply_code == 404
    assert f"no exchange '{name}' in vhost '/'" in caught.value.reply_text
    assert connection.channel().is_open


def test_publish_to_an_internal_exchange(channel: Any, name: str) -> None:
    exchange(channel, name, "fanout", internal=True, auto_delete=False)
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.basic_publish(name, "", b"")
    assert caught.value.reply_code == 403


def test_exchange_that_deletes_itself(connection: Any, channel: Any, name: str) -> None:
    exchange(channel, name, "fanout", auto_delete=True)
    [queue] = queues(channel, name, "queue")
    channel.exchange_declare(name, passive=True)
    channel.queue_bind(queue, name)
    channel.queue_delete(queue)
    with pytest.raises(ChannelClosedByBroker, match="404"):
        channel.exchange_declare(name, passive=True)


def test_exchange_in_use(channel: Any, name: str) -> None:
    exchange(channel, name, "fanout", auto_delete=False)
    [queue] = queues(channel, name, "queue")
    channel.queue_bind(queue, name)
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.exchange_delete(name, if_unused=True)
    assert caught.value.reply_code == 406


@pytest.mark.parametrize(
    ("kind", "options"), [("topic", {}), ("direct", {"durable": True}), ("direct", {"internal": True})]
)
def test_exchange_declared_otherwise(channel: Any, name: str, kind: str, options: dict[str, Any]) -> None:
    exchange(channel, name, "direct")
    exchange(channel, name, "direct")
    with pytest.raises(ChannelClosedByBroker) as caught:
        exchange(channel, name, kind, **options)
    assert caught.value.reply_code == 406
    assert f"inequivalent arg '{next(iter(options), 'type')}'" in caught.value.reply_text


@pytest.mark.parametrize("reserved", ["amq.mine", "", "amq.direct"])
def test_reserved_exchange_names(channel: Any, reserved: str) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.exchange_declare(reserved, "fanout", durable=True)
    assert caught.value.reply_code == (406 if reserved == "amq.direct" else 403)


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "match"])
def test_predeclared_exchanges(channel: Any, name: str, kind: str) -> None:
    channel.exchange_declare(f"amq.{kind}", passive=True)
    [queue] = queues(channel, name, "queue")
    channel.queue_bind(queue, f"amq.{kind}", name, arguments={"name": name})
    channel.basic_publish(f"amq.{kind}", name, b"x", BasicProperties(headers={"name": name}), mandatory=True)
    assert b"x" in get_all(channel, queue)


def test_the_default_exchange_cannot_be_bound(channel: Any, name: str) -> None:
    [queue] = queues(channel, name, "queue")
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_bind(queue, "", "key")
    assert caught.value.reply_code == 403


def test_bind_what_is_not_there(connection: Any, name: str) -> None:
    first = connection.channel()
    with pytest.raises(ChannelClosedByBroker, match=f"404.*no queue '{name}'"):
        first.queue_bind(name, "amq.direct", "key")
    second = connection.channel()
    second.queue_declare(name, exclusive=True)
    with pytest.raises(ChannelClosedByBroker, match=f"404.*no exchange '{name}'"):
        second.queue_bind(name, name, "key")
