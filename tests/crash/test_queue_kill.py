"""Kills under load: no confirmed message is lost, none whose end is durable comes back, and order is kept."""

import os
from pathlib import Path
from random import Random

import pytest

from tests.crash.queue_checker import Delivery, QueueHistory, check_queues
from tests.crash.queue_load import QueueLoad, declare, drain
from tests.crash.workload import broker

ROUNDS = int(os.environ.get("POSTHOUSE_QUEUE_KILLS", "12"))
QUEUES = ("billing", "shipping")


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_kills_lose_nothing_confirmed_and_bring_nothing_settled_back(tmp_path: Path) -> None:
    random = Random(4711)
    history = QueueHistory(QUEUES)
    for number in range(ROUNDS):
        with broker(tmp_path) as process:
            if number == 0:
                declare(process.amqp, QUEUES)
            load = QueueLoad(process.amqp, history, number)
            load.start()
            load.wait_for(
                confirmed=len(history.confirmed) + random.randrange(1, 300),
                settled=len(history.settled) + random.randrange(1, 100),
            )
            process.kill()
            load.finish()
    with broker(tmp_path) as process:
        drain(process.amqp, history)
    assert check_queues(history) == []
    assert any(delivery.redelivered for delivery in history.deliveries), "nothing was in flight at any kill"


def test_the_check_fails_when_the_disk_forgets(tmp_path: Path) -> None:
    """The negative control: the journal is gone and the segments are cut while the broker is dead."""
    history = QueueHistory(QUEUES)
    with broker(tmp_path) as process:
        declare(process.amqp, QUEUES)
        load = QueueLoad(process.amqp, history, 0)
        load.start()
        load.wait_for(confirmed=400, settled=20)
        process.kill()
        load.finish()
    for journal in (tmp_path / "journal").glob("*.wal"):
        journal.unlink()
    for segment in (tmp_path / "topics").rglob("*.log"):
        with segment.open("r+b") as file:
            file.truncate(segment.stat().st_size // 2)
    with broker(tmp_path) as process:
        declare(process.amqp, QUEUES)
        drain(process.amqp, history)
    assert any("was confirmed" in anomaly for anomaly in check_queues(history))


def _history(*deliveries: Delivery) -> QueueHistory:
    history = QueueHistory(("q",), sent={"p:0", "p:1"}, confirmed={"p:0", "p:1"})
    for delivery in deliveries:
        history.deliver(delivery)
    return history


def test_the_checker_finds_each_anomaly() -> None:
    first, second = Delivery("q", "p:0", False), Delivery("q", "p:1", False)
    assert check_queues(_history(first, second)) == []
    assert check_queues(_history(first)) == ["p:1 was confirmed and never came to q"]
    assert check_queues(_history(second, first)) == ["p:0 came to q after p:1"]
    assert check_queues(_history(first, second, Delivery("q", "p:0", True))) == []
    assert "p:7 in q was never sent" in check_queues(_history(first, second, Delivery("q", "p:7", False)))
    history = _history(first, second)
    history.settled.add(("q", "p:0"))
    history.deliver(Delivery("q", "p:0", True))
    assert check_queues(history) == ["p:0 came back to q after its end was durable"]
