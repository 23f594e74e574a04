"""Kills under load: no confirmed message is lost, none whose end is durable comes back, and order is kept."""

import os
from pathlib import Path
from random import Random

import pytest

from tests.checker.history import Ack, Deliver, Publish
from tests.checker.judge import check
from tests.checker.report import Kind
from tests.crash.loads import Recorder
from tests.crash.orders import check_orders
from tests.crash.queue_load import QUEUES, QueueLoad, declare
from tests.crash.served import broker, forget
from tests.stored import IS_SHARED

ROUNDS = int(os.environ.get("POSTHOUSE_QUEUE_KILLS", "8"))


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_kills_lose_nothing_confirmed_and_bring_nothing_settled_back(tmp_path: Path) -> None:
    random = Random(4711)
    recorder = Recorder()
    clients = QueueLoad(recorder)
    for number in range(ROUNDS):
        with broker(tmp_path) as process:
            if number == 0:
                declare(process.amqp)
            load = clients.start(process.amqp)
            recorder.wait_for_more(
                {Publish: len(QUEUES) * random.randrange(1, 300), Ack: random.randrange(1, 100)}
            )
            load.end_with(process)
    with broker(tmp_path) as process:
        clients.drain(process.amqp)
    history = recorder.history
    assert check(history).anomalies == []
    assert check_orders(history) == []
    deliveries = [each for each in history if isinstance(each, Deliver)]
    assert any(each.redelivered for each in deliveries), "nothing was in flight at any kill"


@pytest.mark.skipif(IS_SHARED, reason="cuts the files of a data directory")
def test_the_check_fails_when_the_disk_forgets(tmp_path: Path) -> None:
    recorder = Recorder()
    clients = QueueLoad(recorder)
    with broker(tmp_path) as process:
        declare(process.amqp)
        load = clients.start(process.amqp)
        recorder.wait_for_more({Publish: 800, Ack: 20})
        load.end_with(process)
    forget(tmp_path)
    with broker(tmp_path) as process:
        declare(process.amqp)
        clients.drain(process.amqp)
    assert Kind.LOST_MESSAGE in check(recorder.history).kinds
