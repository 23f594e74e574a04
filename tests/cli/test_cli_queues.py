"""Queues, exchanges and bindings by the program."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from posthouse.cli.durations import shown_duration
from tests.cli.programs import Serving, inside, one_sentence


@contextmanager
def channel_of(serving: Serving) -> Iterator[BlockingChannel]:
    host, port = serving.amqp.split(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        connection.close()


@pytest.fixture
def queue(serving: Serving, topic: str) -> Iterator[str]:
    """A queue with three messages, the second of which is no text."""
    name = f"q-{topic}"
    with channel_of(serving) as channel:
        channel.queue_declare(name, durable=True)
        for body in (b"first\nline", b"\xff\xfe", b"third"):
            properties = pika.BasicProperties(content_type="text/plain", headers={"tenant": "a"})
            channel.basic_publish("", name, body, properties)
    yield name
    inside("queue", "delete", name, admin=serving.admin)


def output(serving: Serving, *arguments: str) -> str:
    done = inside(*arguments, admin=serving.admin)
    assert done.returncode == 0, done
    return done.stdout


def said(serving: Serving, *arguments: str) -> str:
    done = inside(*arguments, admin=serving.admin)
    assert (done.returncode, done.stdout) == (0, ""), done
    return done.stderr.rstrip("\n")


def parsed(serving: Serving, *arguments: str) -> Any:
    return json.loads(output(serving, *arguments, "--json"))


def test_a_queue_with_messages_is_listed(serving: Serving, queue: str) -> None:
    [found] = parsed(serving, "queue", "list", "--search", queue)
    assert (found["name"], found["ready"], found["unacked"], found["state"]) == (queue, 3, 0, "unconsumed")
    header, row = output(serving, "queue", "list", "--search", queue).splitlines()
    assert header.split() == ["queue", "namespace", "state", "ready", "unacked", "consumers", "oldest"]
    assert row.split()[:6] == [queue, "/", "unconsumed", "3", "0", "0"]
    assert queue in output(serving, "queue", "list", "--stuck")
    assert queue in output(serving, "queue", "list", "--state", "unconsumed", "--namespace", "/")
    assert said(serving, "queue", "list", "--search", queue, "--state", "empty") == "there are no such queues"
    unknown = one_sentence(inside("queue", "list", "--state", "sad", admin=serving.admin), 2)
    assert "'empty', 'consumed', 'stalled', 'unconsumed'" in unknown


def test_a_queue_is_described(serving: Serving, queue: str) -> None:
    shown = output(serving, "queue", "describe", queue)
    assert "definition.durable" in shown and "dead_letter_queues" in shown
    assert parsed(serving, "queue", "describe", queue)["definition"]["durable"] is True
    missing = inside("queue", "describe", "no/such", admin=serving.admin)
    assert "no/such" in one_sentence(missing, 1)
    assert "nowhere" in one_sentence(
        inside("queue", "describe", queue, "-N", "nowhere", admin=serving.admin), 1
    )


def test_a_queue_that_was_declared_with_numbers_and_has_a_consumer(serving: Serving, topic: str) -> None:
    name = f"n-{topic}"
    arguments = {
        "x-message-ttl": 3_600_000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    with channel_of(serving) as channel:
        channel.queue_declare(name, durable=True, arguments=arguments)
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume(name, lambda *delivered: None, consumer_tag="watcher")
        shown = output(serving, "queue", "describe", name)
        channel.queue_delete(name)
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line}
    assert rows["watcher"][4:] == ["7", "0", "0"]
    assert rows["definition.durable"][1] == "yes"
    assert rows["definition.message_ttl_ms"][1] == "3600000"
    assert rows["definition.dead_letter_exchange"][1] == "(default)"


def test_peeking_takes_nothing(serving: Serving, queue: str) -> None:
    lines = output(serving, "queue", "peek", queue, "--json").splitlines()
    bodies = [json.loads(line)["body"] for line in lines]
    assert [(body["encoding"], body["data"]) for body in bodies] == [
        ("text", "first\nline"),
        ("base64", "//4="),
        ("text", "third"),
    ]
    done = inside("queue", "peek", queue, "-n", "1", admin=serving.admin)
    [oldest] = done.stdout.splitlines()[1:]
    assert oldest.endswith(r"first\nline") and queue in oldest
    assert done.stderr == "2 messages more are ready\n"
    assert parsed(serving, "queue", "describe", queue)["ready"] == 3


def test_purge_and_delete(serving: Serving, queue: str) -> None:
    not_empty = inside("queue", "delete", queue, "--if-empty", admin=serving.admin)
    assert queue in one_sentence(not_empty, 1)
    assert said(serving, "queue", "purge", queue) == f"deleted 3 messages of queue {queue!r}"
    assert said(serving, "queue", "peek", queue) == f"queue {queue!r} has no messages that are ready"
    assert said(serving, "queue", "delete", queue, "--if-empty", "--if-unused") == f"deleted queue {queue!r}"
    assert queue in one_sentence(inside("queue", "purge", queue, admin=serving.admin), 1)


def test_moving(serving: Serving, queue: str) -> None:
    target = f"{queue}-target"
    with channel_of(serving) as channel:
        channel.queue_declare(target)
    assert said(serving, "queue", "move", queue, target, "-n", "2") == (
        f"moved 2 messages of queue {queue!r}: 2 to {target!r}"
    )
    moved = parsed(serving, "queue", "move", queue, target)
    assert (moved["moved"], moved["to"]) == (1, {target: 1})
    counts = {each["name"]: each["ready"] for each in parsed(serving, "queue", "list", "--search", queue)}
    assert counts == {queue: 0, target: 3}
    said(serving, "queue", "delete", target)


def test_requeue_leaves_what_is_no_dead_letter(serving: Serving, queue: str) -> None:
    first, *more = said(serving, "queue", "requeue", queue).splitlines()
    assert first == f"moved 0 messages of queue {queue!r}"
    assert more and more[0].startswith("3 messages stay where they are: ")
    said(serving, "queue", "purge", queue)
    with channel_of(serving) as channel:
        channel.basic_publish("", queue, b"alone")
    [_, one] = said(serving, "queue", "requeue", queue).splitlines()
    assert one.startswith("1 message stays where it is: ")


def test_exchanges_and_bindings(serving: Serving, queue: str) -> None:
    with channel_of(serving) as channel:
        channel.exchange_declare(f"{queue}-x", "topic", durable=True)
        channel.queue_bind(queue, f"{queue}-x", "orders.#")
    [exchange] = parsed(serving, "exchange", "list", "--search", f"{queue}-x")
    assert (exchange["kind"], exchange["bindings"]) == ("topic", 1)
    assert "(default)" in output(serving, "exchange", "list")
    _, row = output(serving, "binding", "list", "--to", queue).splitlines()
    assert row.split() == [f"{queue}-x", "/", "orders.#", queue]
    assert len(parsed(serving, "binding", "list", "--from", f"{queue}-x")) == 1
    assert said(serving, "binding", "list", "--from", "nope") == "there are no such bindings"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1000, "1s"),
        (61_000, "1m 1s"),
        (3_600_000, "1h"),
        (90_061_000, "1d 1h"),
        (86_400_500, "1d"),
    ],
)
def test_durations_for_people(ms: int, text: str) -> None:
    assert shown_duration(ms) == text


def test_limits_of_a_queue(serving: Serving, queue: str) -> None:
    none = f"queue '{queue}': no limits\n0.0/s in, 0.0/s out, backlog 3, not draining"
    assert said(serving, "queue", "limit", queue) == none
    done = said(serving, "queue", "limit", queue, "--rate", "30/m", "--concurrency", "8")
    assert done == f"queue '{queue}': at most 30/m, at most 8 unsettled"
    assert said(serving, "queue", "limit", queue).splitlines()[0] == done
    found = parsed(serving, "queue", "limit", queue)
    assert (found["rate"], found["concurrency"], found["flow"]["backlog"]) == (0.5, 8, 3)
    shown = output(serving, "queue", "describe", queue)
    rows = dict(line.split() for line in shown.splitlines() if line.startswith(("limits", "flow")))
    assert (rows["limits.rate"], rows["limits.concurrency"], rows["flow.backlog"]) == ("0.5", "8", "3")
    assert said(serving, "queue", "limit", queue, "--concurrency", "2").endswith(": at most 2 unsettled")
    assert said(serving, "queue", "limit", queue, "--none") == f"queue '{queue}': lifted the limits"
    assert parsed(serving, "queue", "limit", queue)["rate"] is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--rate", "fast"), "'fast' is no rate; write a rate such as 100/s"),
        (("--rate", "1/s", "--none"), "--none goes alone"),
        (("--concurrency", "0"), "should be greater than or equal to 1"),
    ],
)
def test_limits_that_are_none(serving: Serving, queue: str, options: tuple[str, ...], sentence: str) -> None:
    done = inside("queue", "limit", queue, *options, admin=serving.admin)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())


def test_limits_of_a_queue_that_is_not_there(serving: Serving) -> None:
    done = inside("queue", "limit", "nowhere", "--rate", "1", admin=serving.admin)
    assert one_sentence(done, 1) == "there is no queue 'nowhere'"


def test_limits_of_a_group(serving: Serving, topic: str) -> None:
    """That does not exist yet."""
    group = f"g-{topic}"
    done = said(serving, "group", "limit", group, "--rate", "100/s")
    assert done == f"group '{group}': at most 100/s"
    assert said(serving, "group", "limit", group, "--none") == f"group '{group}': lifted the limits"
