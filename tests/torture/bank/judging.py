"""When a round is over: everything comes to rest, the log has every message once and in order, and the books
of the bank are right."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import psycopg

from examples.bank.audit import audit
from examples.bank.messages import RECEIPTS, TRANSFERS, Receipt, Transfer
from posthouse.client import Client, Start
from posthouse.consistency.databases import open_database
from posthouse.consistency.outbox_table import OutboxTable
from tests.torture.bank.arena import PARTITIONS, Arena

PATIENCE: Final = 120.0
"""Only what hangs needs so long, however busy the machine is."""
_PAUSE: Final = 0.03


class Stuck(Exception):
    """Something does not come to an end."""


class Lost(Exception):
    """Something is not in the log: it cannot come to rest, and the books say nothing."""


class LogReader:
    """One topic, a part of it after each round. Every sender has the numbers 1, 2, 3 …"""

    def __init__(self, topic: str, kind: type[Transfer] | type[Receipt]) -> None:
        self._topic = topic
        self._kind = kind
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)
        self._last: Counter[str] = Counter()
        self.count: Counter[str] = Counter()
        """How many messages of each sender there are."""

    def read(self, client: Client) -> list[str]:
        """What is new; returns what is wrong with it."""
        wrong = []
        for partition, offset in self._offsets.items():
            for message in client.messages(self._topic, Start.at(offset), partitions=[partition]):
                self._offsets[partition] = message.offset + 1
                said = self._kind.of(message.value or b"")
                if said.number != self._last[said.sender] + 1:
                    wrong.append(
                        f"{self._topic}: number {said.number} of {said.sender} comes after "
                        f"{self._last[said.sender]} in the log"
                    )
                self._last[said.sender] = said.number
                self.count[said.sender] += 1
        return wrong


class Judge:
    """Of one bank, from its opening on."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._transfers = LogReader(TRANSFERS, Transfer)
        self._receipts = LogReader(RECEIPTS, Receipt)

    def verdict(self) -> list[str]:
        """Everything runs, and nobody kills any more. Returns what is wrong."""
        arena = self._arena
        try:
            self._wait(lambda: not arena.is_counter_open, "the teller does not come to an end")
            if ended := arena.ended_by_themselves():
                return ended
            return [*self._at_rest(), *audit(arena.accounts_url, arena.credits_url)]
        except Lost as error:
            return [str(error)]
        except Stuck as error:
            return [str(error), *arena.ended_by_themselves(), *audit(arena.accounts_url, arena.credits_url)]

    def _at_rest(self) -> list[str]:
        """One step after the other: nothing new comes behind an outbox that is empty."""
        arena = self._arena
        sent = self._sent()
        with Client(arena.kafka, timeout=PATIENCE) as client:
            self._wait(lambda: _is_empty(arena.accounts_url), "the outbox of accounts does not become empty")
            wrong = self._transfers.read(client)
            _check_all_there(TRANSFERS, self._transfers, sent)
            transfers = sent.total()
            posted = "SELECT count(*) FROM posting"
            self._wait(lambda: _count(arena.credits_url, posted) >= transfers, "transfers are not applied")
            self._wait(lambda: _is_empty(arena.credits_url), "the outbox of credits does not become empty")
            wrong += self._receipts.read(client)
            _check_all_there(RECEIPTS, self._receipts, sent)
            settled = "SELECT count(*) FROM settlement"
            self._wait(lambda: _count(arena.accounts_url, settled) >= transfers, "receipts are not applied")
        return wrong

    def _sent(self) -> Counter[str]:
        with psycopg.connect(self._arena.accounts_url) as connection:
            rows = connection.execute("SELECT id, transfers FROM account WHERE transfers > 0").fetchall()
        return Counter(dict(rows))

    @property
    def transfers(self) -> int:
        """How many there were."""
        return self._sent().total()

    def _wait(self, holds: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if self._arena.ended_by_themselves() and not self._arena.is_counter_open:
                raise Stuck(f"{otherwise}: a process is gone")
            if time.monotonic() > deadline:
                raise Stuck(f"{otherwise} in {PATIENCE:g} s")
            time.sleep(_PAUSE)


def _check_all_there(topic: str, log: LogReader, sent: Counter[str]) -> None:
    """Raises Lost."""
    if lost := [
        f"{topic}: of {sender} there are {log.count[sender]} messages in the log, for {number} transfers"
        for sender, number in sent.items()
        if log.count[sender] < number
    ]:
        raise Lost("; ".join(lost))


def _is_empty(url: str) -> bool:
    with open_database(url) as database:
        return not OutboxTable(database, "", lease_seconds=1).state().waiting


def _count(url: str, statement: str) -> int:
    with psycopg.connect(url) as connection:
        [[number]] = connection.execute(statement.encode()).fetchall()
    return int(number)
