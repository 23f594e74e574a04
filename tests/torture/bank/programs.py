"""What runs in the processes of the bank: the example's own programs, its relay, and programs that break a
promise on purpose."""

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from confluent_kafka import Producer

from examples.bank.accounts import SETTLES, Order, debit, settle
from examples.bank.consuming import consume
from examples.bank.credits import CREDITS, credit
from examples.bank.databases import Connection, ServiceDatabase
from examples.bank.messages import RECEIPTS, TRANSFERS, Transfer
from examples.bank.teller import serve
from posthouse.consistency import Inbox
from posthouse.consistency.databases import open_database
from posthouse.consistency.log_target import LogTarget
from posthouse.consistency.message_ids import HEADER
from posthouse.consistency.relaying import Relaying

_LEASE_SECONDS: Final = 1.0
"""Shorter than usual: another relay takes the shards of one that was killed in the same round."""
_POLL_SECONDS: Final = 0.25
_PACE_SECONDS: Final = 0.02
"""So that a round has time for kills."""


def relay(database_url: str, bootstrap: str) -> None:
    with closing(LogTarget(bootstrap)) as target:
        Relaying(
            lambda: open_database(database_url),
            target,
            f"{os.getpid()}",
            lease_seconds=_LEASE_SECONDS,
            poll_seconds=_POLL_SECONDS,
        ).run()


def consume_transfers(database_url: str, bootstrap: str) -> None:
    consume(database_url, bootstrap, TRANSFERS, CREDITS, credit)


def consume_receipts(database_url: str, bootstrap: str) -> None:
    consume(database_url, bootstrap, RECEIPTS, SETTLES, settle)


def serve_customers(database_url: str, bootstrap: str, count: int, seed: int) -> None:
    serve(database_url, count, seed, pace=_PACE_SECONDS)


class NoInbox:
    """Takes every message for a new one. It notes the ids, so that this is all that is wrong."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    @contextmanager
    def once(self, connection: Any, message: Any) -> Iterator[bool]:
        with self._inbox.once(connection, message):
            yield True


def consume_transfers_without_inbox(database_url: str, bootstrap: str) -> None:
    consume(database_url, bootstrap, TRANSFERS, CREDITS, credit, inbox=NoInbox(Inbox(CREDITS)))


def serve_and_publish_after_commit(database_url: str, bootstrap: str, count: int, seed: int) -> None:
    """As people do it without an outbox: the change is committed, then the message is sent."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def pay(database: ServiceDatabase, order: Order) -> None:
        def work(connection: Connection) -> Transfer | None:
            return debit(connection, order)

        made = database.do(work)
        if made is not None:
            _send(producer, made)

    serve(database_url, count, seed, pace=_PACE_SECONDS, pay=pay)
    producer.flush()


def _send(producer: Producer, transfer: Transfer) -> None:
    producer.produce(
        TRANSFERS,
        json.dumps(transfer.as_json()),
        key=transfer.sender,
        headers=[(HEADER, transfer.id.encode())],
    )
    producer.poll(0)
