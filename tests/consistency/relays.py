"""Relays for tests, and what they need."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from posthouse.client import Client
from posthouse.client.errors import ClientError
from posthouse.consistency import Outbox
from posthouse.consistency.databases import Database, open_database
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.outbox_table import Batch, OutboxMessage, OutboxTable
from posthouse.consistency.relay import Counts, Relay, Target
from posthouse.consistency.relaying import Relaying
from posthouse.testing import ThreadBroker
from tests.consistency.applications import plain_connection


def publish(url: str, topic: str, *values: str, key: str | None = None) -> None:
    with closing(plain_connection(url)) as connection:
        for value in values:
            Outbox().publish(connection, topic, value, key=key)
        connection.commit()


def table_of(database: Database, owner: str = "a", lease_seconds: float = 60) -> OutboxTable:
    return OutboxTable(database, owner, lease_seconds=lease_seconds)


def values(client: Client, topic: str) -> list[str]:
    return [(message.value or b"").decode() for message in client.messages(topic)]


class Killed(BaseException):
    """No handler of an error stops it, as kill -9."""


class DyingTarget:
    """Dies before or after a batch is in the log."""

    def __init__(self, target: Target, dies: str | None) -> None:
        self._target = target
        self._dies = dies

    def last_number(self, name: str) -> int:
        return self._target.last_number(name)

    def write(self, name: str, batch: Batch, *, alone: bool = False) -> None:
        if self._dies == "before":
            raise Killed
        self._target.write(name, batch, alone=alone)
        if self._dies == "after":
            raise Killed

    def refusal(self, name: str, messages: Sequence[OutboxMessage]) -> ClientError | None:
        return self._target.refusal(name, messages)


@contextmanager
def relay_of(
    url: str,
    broker: ThreadBroker,
    *,
    owner: str = "a",
    dies: str | None = None,
    batch_size: int = 500,
    target: LogTarget | None = None,
) -> Iterator[Relay]:
    with open_database(url) as database, LogTarget(broker.kafka) as made:
        table = table_of(database, owner)
        yield Relay(table, DyingTarget(target or made, dies), Counts(), batch_size=batch_size)


def released(url: str) -> None:
    """As if the leases of all relays were over."""
    with open_database(url) as database, database.transaction():
        database.run("UPDATE posthouse_outbox_shard SET lease_until = 0")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def relaying(
    url: str, broker: ThreadBroker, *, owner: str = "a", poll_seconds: float = 0.2
) -> Iterator[Relaying]:
    with LogTarget(broker.kafka) as target:
        running = Relaying(lambda: open_database(url), target, owner, poll_seconds=poll_seconds)
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            yield running
        finally:
            running.stop.set()
            thread.join(60)
            assert not thread.is_alive()
