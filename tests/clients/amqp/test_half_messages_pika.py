"""Half messages by pika: a producer that dies between its two steps, and another one that decides."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika import BasicProperties
from pika.exceptions import NackError

from tests.clients.amqp.blocking import Inbox, get, take, wait
from tests.clients.amqp.rabbit import Rabbit

pytestmark = pytest.mark.usefixtures("posthouse_only")

_DIES = """
import os, sys, pika
url, name = sys.argv[1:]
channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
channel.confirm_delivery()
headers = {"x-half-message": "prepare", "x-producer-group": name, "x-check-after-seconds": 0}
for order in ("stored", "not-stored"):
    properties = pika.BasicProperties(message_id=order, headers=headers)
    channel.basic_publish("", name, order.encode(), properties)
os._exit(7)
"""


def step(channel: Any, name: str, what: str, id: str, body: bytes = b"", **more: Any) -> None:
    headers = {"x-half-message": what, "x-producer-group": name}
    properties = BasicProperties(message_id=id, headers=headers)
    channel.basic_publish("", name, body, properties, **more)


@pytest.fixture
def queues(channel: Any, name: str) -> Iterator[str]:
    for queue in (name, f"posthouse.checks.{name}"):
        channel.queue_declare(queue)
    yield name
    for queue in (name, f"posthouse.checks.{name}"):
        channel.queue_delete(queue)


def test_a_producer_that_dies_is_replaced(rabbit: Rabbit, connection: Any, channel: Any, queues: str) -> None:
    died = subprocess.run([sys.executable, "-c", _DIES, rabbit.url, queues], timeout=60, check=False)
    assert died.returncode == 7
    assert get(channel, queues) is None
    decided: set[bytes] = set()

    def asked(_: Any, method: Any, properties: Any, body: bytes) -> None:
        assert properties.headers == {"x-half-message": "check", "x-producer-group": queues}
        assert body.decode() == properties.message_id
        step(other, queues, "commit" if body == b"stored" else "rollback", properties.message_id)
        decided.add(body)

    other_connection = pika.BlockingConnection(pika.URLParameters(rabbit.url))
    other = other_connection.channel()
    other.confirm_delivery()
    other.basic_consume(f"posthouse.checks.{queues}", asked, auto_ack=True)
    wait(lambda: len(decided) == 2, other_connection)
    other_connection.close()
    inbox = Inbox(channel, queues, ack=True)
    wait(lambda: len(inbox) == 1, connection)
    [message] = inbox
    assert (message.body, message.properties.message_id) == (b"stored", "stored")
    assert not message.properties.headers


def test_refusals_are_exceptions(channel: Any, queues: str) -> None:
    step(channel, queues, "prepare", "1", b"paid")
    step(channel, queues, "rollback", "1")
    with pytest.raises(NackError):
        step(channel, queues, "commit", "1")
    with pytest.raises(NackError) as refused:
        step(channel, queues, "commit", "1", mandatory=True)
    [returned] = refused.value.messages
    assert "rolled back, or parked before" in returned.method.reply_text
    step(channel, queues, "prepare", "2", b"paid, too")
    step(channel, queues, "commit", "2", mandatory=True)
    assert [each.body for each in take(channel, queues, 1)] == [b"paid, too"]
