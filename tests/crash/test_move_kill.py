"""Kills while messages are moved: each of them is in one of the two queues afterwards, and in one only."""

from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from time import sleep

import httpx
import pika

from tests.crash.served import BrokerProcess, broker

_MESSAGES = 3000
_KILLS = 3


def _channel(process: BrokerProcess) -> pika.adapters.blocking_connection.BlockingChannel:
    return pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{process.amqp}/")).channel()


def _move(process: BrokerProcess) -> None:
    with suppress(httpx.HTTPError):
        body = {"to": "target", "limit": _MESSAGES}
        httpx.post(f"http://{process.admin}/v1/queues/%2F/source/move", json=body, timeout=30)


def _drained(process: BrokerProcess, queue: str) -> list[int]:
    channel = _channel(process)
    found: list[int] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None or body is None:
            return found
        found.append(int(body))


def test_kills_neither_lose_nor_double_messages_that_are_moved(tmp_path: Path) -> None:
    random = Random(4711)
    with broker(tmp_path) as process:
        channel = _channel(process)
        for name in ("source", "target"):
            channel.queue_declare(name, durable=True)
        channel.tx_select()
        for number in range(_MESSAGES):
            channel.basic_publish("", "source", str(number).encode(), pika.BasicProperties(delivery_mode=2))
        channel.tx_commit()
    counts = []
    for _ in range(_KILLS):
        with broker(tmp_path) as process:
            channel = _channel(process)
            moving = Thread(target=_move, args=(process,))
            moving.start()
            while not channel.queue_declare("target", passive=True).method.message_count:
                sleep(0.001)
            sleep(random.random() * 0.02)
            process.kill()
            moving.join()
        with broker(tmp_path) as process:
            channel = _channel(process)
            there = [
                channel.queue_declare(name, passive=True).method.message_count
                for name in ("source", "target")
            ]
            assert sum(there) == _MESSAGES
            counts.append(there[1])
            httpx.post(
                f"http://{process.admin}/v1/queues/%2F/target/move",
                json={"to": "source", "limit": _MESSAGES},
                timeout=30,
            ).raise_for_status()
    assert any(0 < count < _MESSAGES for count in counts), "no kill was in the middle of a move"
    with broker(tmp_path) as process:
        assert sorted(_drained(process, "source")) == list(range(_MESSAGES))
        assert _drained(process, "target") == []
