"""What is measured of a relay: how fast it sends what waits, and how soon a message is with its consumer."""

import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import psycopg

from bench.consistency.contenders import Connection, Contender, Message
from bench.consistency.receiving import Overdue, Receiver
from bench.consistency.stage import LOG, PARTITIONS, Cpu, Stage
from posthouse.client import Client

KEYS: Final = 100
VALUE_BYTES: Final = 256
_WARM_UP: Final = 200
_PATIENCE: Final = 180.0
_EMPTY: Final = 30.0


class Failed(Exception):
    """A relay that did not do its work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rows: int = 20_000
    """That wait when the relay finds them."""
    rate: int = 100
    """Transactions with one message each, a second."""
    seconds: float = 20.0
    rounds: int = 5


Figures = Mapping[str, float]


def measured(stage: Stage, contender: Contender, plan: Plan, topic: str) -> Figures:
    """One round of one relay. Raises Failed."""
    with Client(stage.broker.address) as client:
        client.create_topic(topic, partitions=PARTITIONS)
    with stage.new_database() as database:
        contender.prepare(database)
        with (
            Receiver(stage.broker.address, topic, PARTITIONS) as receiver,
            stage.relay(contender, database, topic) as relay,
            psycopg.connect(database) as connection,
        ):
            run = _Run(stage, contender, topic, relay, receiver, connection)
            try:
                run.warm_up()
                figures = {**run.backlog(plan.rows), **run.latency(plan.rate, plan.seconds)}
            except Overdue as error:
                raise Failed(f"{error}; see {LOG}") from None
            return {**figures, "repeated": receiver.repeated, "out of order": receiver.out_of_order}


class _Run:
    def __init__(
        self,
        stage: Stage,
        contender: Contender,
        topic: str,
        relay: "subprocess.Popen[bytes]",
        receiver: Receiver,
        connection: Connection,
    ) -> None:
        self._stage = stage
        self._contender = contender
        self._topic = topic
        self._relay = relay
        self._receiver = receiver
        self._connection = connection
        self._messages = _messages()
        self._sent = 0

    def warm_up(self) -> None:
        """Until the relay has started. One that reads the write-ahead log misses what was before."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            self._publish(1)
            try:
                self._receiver.wait(1, 1.0)
                break
            except Overdue:
                if self._relay.poll() is not None or time.monotonic() > deadline:
                    raise
        # What was published while it started may be lost to it.
        self._come_to_rest()
        self._sent = len(self._receiver.times)
        self._publish(_WARM_UP)
        self._receiver.wait(self._sent, _PATIENCE)
        self._come_to_rest()

    def backlog(self, count: int) -> Figures:
        self._publish(count, commits=False)
        before = self._stage.cpu(self._relay)
        begun = time.perf_counter()
        self._connection.commit()
        seconds = self._receiver.wait(self._sent, _PATIENCE) - begun
        self._come_to_rest()
        used = self._stage.cpu(self._relay).since(before)
        return {"rows/s": count / seconds, **_per_row(used, count, "waiting")}

    def latency(self, rate: int, seconds: float) -> Figures:
        committed: dict[tuple[str, int], float] = {}
        count = int(rate * seconds)
        before = self._stage.cpu(self._relay)
        begun = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, begun + number / rate - time.perf_counter()))
            [message] = self._publish(1)
            key, place, _ = message.value.split(b" ", 2)
            committed[key.decode(), int(place)] = time.perf_counter()
        self._receiver.wait(self._sent, _PATIENCE)
        self._come_to_rest()
        used = self._stage.cpu(self._relay).since(before)
        took = sorted((self._receiver.times[each] - at) * 1000 for each, at in committed.items())
        return {
            "p50": statistics.median(took),
            "p99": took[int(len(took) * 0.99)],
            **_per_row(used, count, "single"),
        }

    def _publish(self, count: int, *, commits: bool = True) -> list[Message]:
        messages = [next(self._messages) for _ in range(count)]
        self._contender.insert(self._connection, self._topic, messages)
        if commits:
            self._connection.commit()
        self._sent += count
        return messages

    def _come_to_rest(self) -> None:
        """Rows are removed behind the last message, which belongs to the work."""
        if not self._contender.removes:
            time.sleep(0.5)
            return
        table = "posthouse_outbox" if not self._contender.program else "outbox"
        deadline = time.monotonic() + _EMPTY
        while True:
            [[left]] = self._connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchall()
            self._connection.commit()
            if not left:
                return
            if time.monotonic() > deadline:
                raise Failed(f"{left} rows stay in the outbox")
            time.sleep(0.1)


def _messages() -> Iterator[Message]:
    """Each key has the numbers 0, 1, 2 …"""
    number = 0
    while True:
        for each in range(KEYS):
            key = f"customer-{each}"
            yield Message(key=key, value=f"{key} {number} ".encode().ljust(VALUE_BYTES, b"x"))
        number += 1


def _per_row(used: Cpu, count: int, load: str) -> dict[str, float]:
    """Microseconds."""
    return {
        f"relay CPU, {load}": used.relay / count * 1e6,
        f"database CPU, {load}": used.database / count * 1e6,
        f"broker CPU, {load}": used.broker / count * 1e6,
    }
