"""What an operator does at night, by command line alone, on a broker of its own."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from confluent_kafka import Producer
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError

from posthouse.client import Client
from tests.cli.programs import SECONDS, Serving, inside

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("night") / "data") as serving:
        yield serving


def connect(broker: Serving) -> pika.BlockingConnection:
    host, port = broker.amqp.split(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))


def run(broker: Serving, *arguments: str) -> str:
    done = inside(*arguments, bootstrap=broker.kafka, admin=broker.admin)
    assert done.returncode == 0, done
    return done.stdout


def parsed(broker: Serving, *arguments: str) -> Any:
    return json.loads(run(broker, *arguments, "--json"))


def publish(channel: BlockingChannel, queue: str, count: int) -> None:
    channel.confirm_delivery()
    for number in range(count):
        channel.basic_publish("", queue, b"mail %d" % number)


def test_a_stuck_queue_is_found_and_its_oldest_message_looked_at(broker: Serving) -> None:
    connection = connect(broker)
    channel = connection.channel()
    for name in ("stuck", "healthy", "idle"):
        channel.queue_declare(name, durable=True)
    publish(channel, "stuck", 3)
    # A consumer that took one message and never acknowledges it: the others wait behind its prefetch.
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("stuck", lambda *delivered: None)
    connection.process_data_events(time_limit=1)

    [stuck] = parsed(broker, "queue", "list", "--stuck")
    assert (stuck["name"], stuck["state"], stuck["ready"], stuck["unacked"]) == ("stuck", "stalled", 2, 1)
    [oldest] = run(broker, "queue", "peek", "stuck", "-n", "1").splitlines()[1:]
    assert oldest.endswith("mail 1")
    assert parsed(broker, "queue", "describe", "stuck")["ready"] == 2
    connection.close()


def test_dead_letters_go_back_to_where_they_died(broker: Serving) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("mails.dead", durable=True)
    channel.queue_declare(
        "mails",
        durable=True,
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "mails.dead"},
    )
    publish(channel, "mails", 4)
    for _ in range(4):
        method, _, _ = channel.basic_get("mails")
        assert method is not None and method.delivery_tag is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
    deadline = time.monotonic() + SECONDS
    while parsed(broker, "queue", "describe", "mails.dead")["ready"] < 4:
        assert time.monotonic() < deadline
    connection.close()

    assert parsed(broker, "queue", "describe", "mails")["dead_letter_queues"] == ["mails.dead"]
    assert "mails (rejected)" in run(broker, "queue", "peek", "mails.dead", "-n", "1")
    moved = parsed(broker, "queue", "requeue", "mails.dead")
    assert (moved["moved"], moved["to"]) == (4, {"mails": 4})
    counts = {each["name"]: each["ready"] for each in parsed(broker, "queue", "list", "--search", "mails")}
    assert counts == {"mails": 4, "mails.dead": 0}


def test_a_lagging_group_is_found_and_reset_to_an_hour_ago(broker: Serving) -> None:
    now = time.time_ns() // 1_000_000
    with Client(broker.kafka) as client:
        client.create_topic("orders", partitions=1)
        with client.producer("orders") as producer:
            for number in range(100):
                producer.send(b"x", timestamp=now - (100 - number) * HOUR_MS // 10)
        client.commit_offsets("billing", {("orders", 0): 5})
        client.commit_offsets("reports", {("orders", 0): 99})

    worst, *others = parsed(broker, "group", "list", "--lag")
    assert (worst["group"], worst["lag"]) == ("billing", 95)
    assert [(each["group"], each["lag"]) for each in others] == [("reports", 1)]
    plan = parsed(broker, "group", "reset", "billing", "--to", "1 hour ago", "--dry-run")
    assert plan["offsets"] == [{"topic": "orders", "partition": 0, "old": 5, "new": 91}]
    run(broker, "group", "reset", "billing", "--to", "1 hour ago")
    [offset] = parsed(broker, "group", "describe", "billing")["offsets"]
    assert (offset["committed"], offset["lag"]) == (91, 9)
    run(broker, "group", "reset", "billing", "--to", "-2")
    assert parsed(broker, "group", "describe", "billing")["offsets"][0]["lag"] == 2


def test_a_connection_is_closed(broker: Serving) -> None:
    connection = connect(broker)
    connection.channel()
    [runaway] = [each for each in parsed(broker, "connection", "list") if each["protocol"] == "amqp"]
    assert runaway["peer"] in run(broker, "connection", "list")
    run(broker, "connection", "close", runaway["peer"])
    with pytest.raises(AMQPConnectionError):
        while True:
            connection.process_data_events(time_limit=1)
    assert not [each for each in parsed(broker, "connection", "list") if each["peer"] == runaway["peer"]]


def test_a_hanging_transaction_is_aborted(broker: Serving) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.kafka, "transactional.id": "hung", "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("payments", b"half done")
    producer.flush(SECONDS)

    [hung] = parsed(broker, "transaction", "list")
    assert hung["id"] == "hung" and hung["partitions"][0]["topic"] == "payments"
    assert "payments:" in run(broker, "transaction", "list")
    run(broker, "transaction", "abort", "hung")
    assert parsed(broker, "transaction", "list") == []
    assert run(broker, "consume", "payments", "--from-beginning") == ""


def test_what_fills_the_disk(broker: Serving, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_text("\n".join("x" * 1000 for _ in range(20_000)))
    run(broker, "produce", "logs", "--file", str(file))
    largest = next(each for each in parsed(broker, "disk")["logs"])
    assert (largest["kind"], largest["name"]) == ("topic", "logs") and largest["bytes"] > 20_000_000
    row = re.search(r"^logs +topic +([\d.]+) MiB +(\d+)%", run(broker, "disk"), re.MULTILINE)
    assert row and 19 < float(row[1]) < 22 and int(row[2]) > 10
    run(broker, "topic", "trim", "logs", "--everything")


def test_all_of_it_is_on_one_screen(broker: Serving) -> None:
    connection = connect(broker)
    channel = connection.channel()
    channel.queue_declare("seen", durable=True)
    publish(channel, "seen", 2)
    connection.close()
    with Client(broker.kafka) as client:
        client.create_topic("read", partitions=1)
        with client.producer("read") as producer:
            producer.send(b"x")
        client.commit_offsets("reader", {("read", 0): 0})
    screen = run(broker, "status", "-n", "100")
    assert " ready " in screen and "listener kafka" in screen
    for section in ("lagging group", "queue with messages", "what fills the disk", "/s in", "/s published"):
        assert section in screen


def test_a_two_phase_commit_is_decided_for_its_owner(tmp_path: Path) -> None:
    with Serving(tmp_path / "data", "--transaction-two-phase-commit-enable") as broker:
        with Client(broker.kafka) as client:
            for id in ("kept", "dropped"):
                producer = client.two_phase_producer(id)
                producer.recover()
                producer.begin()
                producer.send("payments", id.encode())
                producer.prepare()
                producer.close()
        found = {each["id"]: each for each in parsed(broker, "transaction", "list")}
        assert {each["state"] for each in found.values()} == {"prepared"}
        shown = run(broker, "transaction", "list")
        assert "prepared" in shown and "none" in shown and found["kept"]["owner"] in shown
        name = f"{found['kept']['producer_id']}/{found['kept']['producer_epoch']}"
        for wrong, code in (("1/2", 1), ("1", 2), ("x/1", 2), (f"{name}x", 2)):
            done = inside("transaction", "commit", "kept", "--producer", wrong, admin=broker.admin)
            assert done.returncode == code, done
        run(broker, "transaction", "commit", "kept", "--producer", name)
        assert parsed(broker, "transaction", "abort", "dropped")["state"] == "aborted"
        assert parsed(broker, "transaction", "list") == []
        assert run(broker, "consume", "payments", "--from-beginning") == "kept\n"
