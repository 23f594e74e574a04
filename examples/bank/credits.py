"""The service that money arrives at.

Credit and receipt are one transaction with the id of the transfer in the inbox. A transfer that comes again
finds its id there, and changes nothing.
"""

from typing import Final

from examples.bank.databases import Connection
from examples.bank.messages import RECEIPTS, Receipt, Transfer
from posthouse.consistency import Outbox

SCHEMA: Final = """
CREATE TABLE account (
    id text PRIMARY KEY,
    balance bigint NOT NULL DEFAULT 0,
    is_open boolean NOT NULL DEFAULT true
);
CREATE TABLE posting (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sender text NOT NULL,
    number bigint NOT NULL,
    account text NOT NULL,
    amount bigint NOT NULL,
    is_credited boolean NOT NULL
);
"""
CREDITS: Final = "credits"
"""The name of the consumer of transfers."""


def credit(connection: Connection, value: bytes) -> None:
    """A transfer: to the account, or back if the account is closed or unknown."""
    transfer = Transfer.of(value)
    credited = connection.execute(
        "UPDATE account SET balance = balance + %s WHERE id = %s AND is_open",
        [transfer.amount, transfer.receiver],
    )
    is_credited = credited.rowcount == 1
    connection.execute(
        "INSERT INTO posting (sender, number, account, amount, is_credited) VALUES (%s, %s, %s, %s, %s)",
        [transfer.sender, transfer.number, transfer.receiver, transfer.amount, is_credited],
    )
    receipt = Receipt(
        transfer=transfer.id, sender=transfer.sender, number=transfer.number, is_credited=is_credited
    )
    Outbox().publish(
        connection, RECEIPTS, receipt.as_json(), key=receipt.sender, message_id=f"receipt-{transfer.id}"
    )
