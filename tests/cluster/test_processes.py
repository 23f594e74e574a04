"""Nodes as processes: killed, stopped and woken up."""

import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pika
import pytest
from confluent_kafka import Producer

from posthouse.client import Client
from posthouse.client.errors import ClientError

SECONDS = 20


class NodeProcess:
    def __init__(self, url: str, name: str, *how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.serving_node", url, name, *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.ready = json.loads(line)

    def address(self, listener: str) -> tuple[str, int]:
        host, _, port = self.ready["listeners"][listener].rpartition(":")
        return host, int(port)

    @property
    def kafka(self) -> str:
        return str(self.ready["listeners"]["kafka"])

    def end(self) -> str:
        """What it has logged."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.communicate(timeout=SECONDS)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise


@contextmanager
def two(url: str, *how: str) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    first = NodeProcess(url, "a", *how)
    try:
        second = NodeProcess(url, "b", *how)
        try:
            assert (first.ready["role"], second.ready["role"]) == ("coordinator", "member")
            yield first, second
        finally:
            second.end()
    finally:
        first.end()


def until_topics_are_listed(node: NodeProcess, seconds: float) -> float:
    """How long it took until the node, in whichever role, gave an answer."""
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        try:
            answer = httpx.get(f"http://{node.ready['listeners']['admin']}/v1/topics", timeout=seconds)
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        if answer.status_code == 200:
            return time.monotonic() - begun
    raise AssertionError("no answer")


def until_a_topic_is_created(node: NodeProcess) -> None:
    """By the coordinator: the broker is that, or has begun anew as a member."""
    deadline = time.monotonic() + SECONDS
    for attempt in itertools.count():
        try:
            with Client(node.kafka) as client:
                client.create_topic(f"after-{attempt}")
                return
        except ClientError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_killed_holder_is_replaced(url: str) -> None:
    with two(url) as (first, second):
        producer = Producer({"bootstrap.servers": second.kafka})
        producer.produce("t", "1")
        assert producer.flush(SECONDS) == 0
        first.process.kill()
        first.process.wait()
        assert until_topics_are_listed(second, 10) < 5
        producer.produce("t", "2")
        assert producer.flush(SECONDS) == 0


def test_a_standby_takes_over_within_ten_seconds(url: str) -> None:
    with two(url, "usual-times") as (first, second):
        first.process.kill()
        first.process.wait()
        assert until_topics_are_listed(second, 15) < 10


def test_a_killed_standby_does_not_disturb(url: str) -> None:
    with two(url) as (first, second):
        second.process.kill()
        second.process.wait()
        # For some seconds it is still named as the leader of partitions: clients try again.
        producer = Producer({"bootstrap.servers": first.kafka})
        for number in range(20):
            producer.produce(f"t{number}", "1")
        assert producer.flush(SECONDS) == 0


def test_a_holder_that_was_stopped_answers_nothing_when_it_wakes_up(url: str) -> None:
    with two(url) as (first, second):
        with Client(first.kafka) as client:
            client.create_topic("before")
        waiting = [socket.create_connection(first.address(name)) for name in ("kafka", "amqp", "admin")]
        time.sleep(0.3)
        first.process.send_signal(signal.SIGSTOP)
        kafka, amqp, admin = waiting
        # ApiVersions version 0, the protocol header, a list of topics: answered from memory in normal times
        kafka.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        amqp.sendall(b"AMQP\x00\x00\x09\x01")
        admin.sendall(b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert until_topics_are_listed(second, 10) < 5
        first.process.send_signal(signal.SIGCONT)
        for each in waiting:
            each.settimeout(SECONDS)
            try:
                answer = each.recv(1000)
            except ConnectionError:
                answer = b""
            assert answer == b""
            each.close()
        until_a_topic_is_created(first)
        said = first.end()
        assert "loses its lease as the coordinator of epoch 1" in said
        assert "broker a is a member" in said


def test_a_holder_that_was_stopped_with_no_other_broker_goes_on(url: str) -> None:
    first = NodeProcess(url, "a")
    first.process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    first.process.send_signal(signal.SIGCONT)
    until_topics_are_listed(first, 10)
    with Client(first.kafka) as client:
        client.create_topic("t")
    assert "loses its lease" not in first.end()


def test_pika_with_a_list_of_hosts(url: str) -> None:
    with two(url) as (first, second):
        hosts = [pika.ConnectionParameters(*each.address("amqp")) for each in (first, second)]
        connection = pika.BlockingConnection(hosts)
        connection.channel().queue_declare("q")
        first.process.kill()
        first.process.wait()
        with pytest.raises(pika.exceptions.AMQPError):
            connection.channel()
        hosts = [
            pika.ConnectionParameters(*each.address("amqp"), connection_attempts=10, retry_delay=0.5)
            for each in (second,)
        ]
        connection = pika.BlockingConnection(hosts)
        connection.channel().queue_declare("q")
        connection.close()


def test_a_clean_stop_hands_the_lease_over_at_once(url: str) -> None:
    with two(url) as (first, second):
        assert "stopped" in first.end()
        assert until_topics_are_listed(second, 10) < 3
