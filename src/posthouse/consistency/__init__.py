"""Eventual consistency for applications: a change in a database and a message about it, both or neither.

`Outbox` publishes in the application's own transaction, `Inbox` acts once for each message. It is on the
client's side: nothing here imports the broker.
"""

from posthouse.consistency.errors import (
    BadMessage,
    ConsistencyError,
    NoTransaction,
    UnknownConnection,
)
from posthouse.consistency.inbox import AsyncInbox, Inbox, Newness, Update
from posthouse.consistency.outbox import AsyncOutbox, Outbox

__all__ = [
    "AsyncInbox",
    "AsyncOutbox",
    "BadMessage",
    "ConsistencyError",
    "Inbox",
    "Newness",
    "NoTransaction",
    "Outbox",
    "UnknownConnection",
    "Update",
]
