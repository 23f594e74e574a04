"""Customers at the counter: orders at random, some of them twice, some of more money than there is."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Final, TypeAlias

from examples.bank.accounts import InsufficientFunds, Order, transfer
from examples.bank.databases import Connection, ServiceDatabase
from examples.bank.messages import Transfer
from examples.bank.opening import CLOSED, RECEIVERS, SENDERS, START_BALANCE

Pay: TypeAlias = Callable[[ServiceDatabase, Order], None]

_COUNTERS: Final = 2
_RARELY: Final = 0.1


def serve(database_url: str, count: int, seed: int, *, pace: float = 0.0, pay: Pay | None = None) -> None:
    """Orders of `count` customers at two counters, at most one every `pace` seconds at each.

    The same seed gives the same ids. A teller who was killed begins again, and skips what was done before.
    """
    share = count // _COUNTERS
    counters = [
        threading.Thread(target=_serve, args=(database_url, share, f"{seed}-{number}", pace, pay or _pay))
        for number in range(_COUNTERS)
    ]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join()


def orders(count: int, seed: str) -> Iterator[Order]:
    chance = Random(seed)
    for number in range(count):
        order = Order(
            id=f"{seed}-{number}",
            sender=chance.choice(SENDERS),
            receiver=CLOSED if chance.random() < _RARELY else chance.choice(RECEIVERS),
            amount=START_BALANCE * 2 if chance.random() < _RARELY else chance.randint(1, 100),
        )
        yield order
        if chance.random() < _RARELY:
            yield order  # the customer got no answer, and asks again


def _serve(database_url: str, count: int, seed: str, pace: float, pay: Pay) -> None:
    database = ServiceDatabase(database_url)
    for order in orders(count, seed):
        with suppress(InsufficientFunds):
            pay(database, order)
        time.sleep(pace)
    database.close()


def _pay(database: ServiceDatabase, order: Order) -> None:
    def work(connection: Connection) -> Transfer | None:
        return transfer(connection, order)

    database.do(work)
