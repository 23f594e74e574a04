"""The first day of the bank: tables of both services, with those of outbox and inbox, and the first money."""

from typing import Final

import psycopg

from examples.bank import accounts, credits
from posthouse.consistency.databases import open_database
from posthouse.consistency.outbox_table import init

SENDERS: Final = [f"giro-{number}" for number in range(6)]
RECEIVERS: Final = [f"savings-{number}" for number in range(4)]
CLOSED: Final = "savings-closed"
START_BALANCE: Final = 1_000_000
TOTAL: Final = START_BALANCE * len(SENDERS)
"""All the money there is, at any time."""


def open_bank(accounts_url: str, credits_url: str) -> None:
    for url in (accounts_url, credits_url):
        with open_database(url) as database:
            init(database)
    with psycopg.connect(accounts_url) as connection:
        connection.execute(accounts.SCHEMA.encode())
        for sender in SENDERS:
            connection.execute("INSERT INTO account (id, balance) VALUES (%s, %s)", [sender, START_BALANCE])
    with psycopg.connect(credits_url) as connection:
        connection.execute(credits.SCHEMA.encode())
        for receiver in (*RECEIVERS, CLOSED):
            is_open = receiver != CLOSED
            connection.execute("INSERT INTO account (id, is_open) VALUES (%s, %s)", [receiver, is_open])
