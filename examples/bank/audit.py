"""What an auditor finds in the books of both services, when no transfer is on its way."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg

from examples.bank.databases import Connection
from examples.bank.opening import TOTAL

_BALANCES: Final = "SELECT coalesce(sum(balance), 0)::bigint FROM account"
_SENT: Final = """
SELECT sender, count(*), max(number), sum(amount)::bigint,
       coalesce(sum(amount) FILTER (WHERE state = 'credited'), 0)::bigint,
       count(*) FILTER (WHERE state = 'sent')
FROM transfer GROUP BY sender ORDER BY sender
"""
_POSTED: Final = """
SELECT sender, count(*), max(number), sum(amount)::bigint,
       coalesce(sum(amount) FILTER (WHERE is_credited), 0)::bigint, 0
FROM posting GROUP BY sender ORDER BY sender
"""
_OUT_OF_ORDER: Final = """
SELECT sender, number, place FROM (
    SELECT sender, number, row_number() OVER (PARTITION BY sender ORDER BY id) AS place, id FROM {}
) AS found WHERE number <> place ORDER BY id LIMIT 5
"""
_SETTLED: Final = "SELECT sender, count(*) FROM settlement GROUP BY sender ORDER BY sender"
_INBOX: Final = "SELECT count(*) FROM posthouse_inbox"
_OUTBOX: Final = "SELECT count(*) FROM posthouse_outbox"


def audit(accounts_url: str, credits_url: str) -> list[str]:
    """What is wrong; empty if nothing is. Everything must be settled."""
    with psycopg.connect(accounts_url) as accounts, psycopg.connect(credits_url) as credits:
        checks = (_of_money, _of_transfers, _of_boxes)
        return [finding for check in checks for finding in check(accounts, credits)]


def _of_money(accounts: Connection, credits: Connection) -> Iterator[str]:
    total = _number(accounts, _BALANCES) + _number(credits, _BALANCES)
    if total != TOTAL:
        yield f"money is not conserved: there are {total} instead of {TOTAL}"


def _of_transfers(accounts: Connection, credits: Connection) -> Iterator[str]:
    """In the books of `credits` each sender's numbers are 1, 2, 3 …, as many as transfers were made, and the
    amounts are the same: then each transfer was applied once, and in order."""
    sent, posted = _rows(accounts, _SENT), _rows(credits, _POSTED)
    if sent != posted:
        yield f"postings {posted} for transfers {sent}: sender, how many, last, amount, credited, open"
    settled = _rows(accounts, _SETTLED)
    if settled != [row[:2] for row in sent]:
        yield f"receipts were not applied once each: {settled} for {[row[:2] for row in sent]} transfers"
    for connection, table in ((credits, "posting"), (accounts, "settlement")):
        for sender, number, place in _rows(connection, _OUT_OF_ORDER.format(table)):
            yield f"{table} {place} of {sender} has the number {number}: out of order, or not applied once"


def _of_boxes(accounts: Connection, credits: Connection) -> Iterator[str]:
    transfers = _number(accounts, "SELECT count(*) FROM transfer")
    for name, connection in (("accounts", accounts), ("credits", credits)):
        if waiting := _number(connection, _OUTBOX):
            yield f"the outbox of {name} has {waiting} messages"
        if (received := _number(connection, _INBOX)) != transfers:
            yield f"the inbox of {name} has {received} messages, for {transfers} transfers"


def _number(connection: Connection, statement: str) -> int:
    [[number]] = _rows(connection, statement)
    return int(number)


def _rows(connection: Connection, statement: str) -> Sequence[tuple[Any, ...]]:
    return connection.execute(statement.encode()).fetchall()
