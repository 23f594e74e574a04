"""The service that money leaves from.

Debit and message are one transaction: both happen, or neither. The debit locks the row of the account, so the
transfers of one account are published in the order of their numbers.
"""

from dataclasses import dataclass
from typing import Final

from examples.bank.databases import Connection
from examples.bank.messages import TRANSFERS, Receipt, Transfer
from posthouse.consistency import Outbox

SCHEMA: Final = """
CREATE TABLE account (
    id text PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0),
    transfers bigint NOT NULL DEFAULT 0
);
CREATE TABLE transfer (
    id text PRIMARY KEY,
    sender text NOT NULL REFERENCES account,
    number bigint NOT NULL,
    receiver text NOT NULL,
    amount bigint NOT NULL CHECK (amount > 0),
    state text NOT NULL DEFAULT 'sent',
    UNIQUE (sender, number)
);
CREATE TABLE settlement (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sender text NOT NULL,
    number bigint NOT NULL
);
"""
SETTLES: Final = "accounts"
"""The name of the consumer of receipts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a customer asks for. The id is the customer's: who asks again, because no answer came, gives it
    again."""

    id: str
    sender: str
    receiver: str
    amount: int


class InsufficientFunds(Exception):
    pass


def transfer(connection: Connection, order: Order) -> Transfer | None:
    """Debit the sender, and publish the transfer; None if that was done before. Raises InsufficientFunds."""
    made = debit(connection, order)
    if made is not None:
        Outbox().publish(connection, TRANSFERS, made.as_json(), key=made.sender, message_id=made.id)
    return made


def debit(connection: Connection, order: Order) -> Transfer | None:
    """The change alone; None if it was made before. Raises InsufficientFunds."""
    known = connection.execute("SELECT 1 FROM transfer WHERE id = %s", [order.id]).fetchone()
    if known is not None:
        return None
    debited = connection.execute(
        "UPDATE account SET balance = balance - %s, transfers = transfers + 1 "
        "WHERE id = %s AND balance >= %s RETURNING transfers",
        [order.amount, order.sender, order.amount],
    ).fetchone()
    if debited is None:
        raise InsufficientFunds(f"{order.sender} has less than {order.amount}")
    made = Transfer(
        id=order.id,
        sender=order.sender,
        number=debited[0],
        receiver=order.receiver,
        amount=order.amount,
    )
    connection.execute(
        "INSERT INTO transfer (id, sender, number, receiver, amount) VALUES (%s, %s, %s, %s, %s)",
        [made.id, made.sender, made.number, made.receiver, made.amount],
    )
    return made


def settle(connection: Connection, value: bytes) -> None:
    """A receipt: the end of a transfer, or its way back."""
    receipt = Receipt.of(value)
    state = "credited" if receipt.is_credited else "returned"
    connection.execute("UPDATE transfer SET state = %s WHERE id = %s", [state, receipt.transfer])
    connection.execute(
        "INSERT INTO settlement (sender, number) VALUES (%s, %s)", [receipt.sender, receipt.number]
    )
    if not receipt.is_credited:
        connection.execute(
            "UPDATE account SET balance = balance + (SELECT amount FROM transfer WHERE id = %s) "
            "WHERE id = %s",
            [receipt.transfer, receipt.sender],
        )
