"""Eventual consistency for applications: a change in a database and a message about it, both or neither.

`Outbox` publishes in the application's own transaction, `Inbox` acts once for each message. `HalfMessages` is
for those who cannot have a table. It is on the client's side: nothing here imports the broker.
"""

from posthouse.consistency.async_check_back import AsyncHalfMessages
from posthouse.consistency.check_back import HalfMessages
from posthouse.consistency.decisions import Decision, HalfMessage
from posthouse.consistency.errors import (
    BadMessage,
    ConsistencyError,
    DecidedOtherwise,
    NoTransaction,
    UnknownConnection,
)
from posthouse.consistency.inbox import AsyncInbox, Inbox, Newness, Update
from posthouse.consistency.outbox import AsyncOutbox, Outbox

__all__ = [
    "AsyncHalfMessages",
    "AsyncInbox",
    "AsyncOutbox",
    "BadMessage",
    "ConsistencyError",
    "DecidedOtherwise",
    "Decision",
    "HalfMessage",
    "HalfMessages",
    "Inbox",
    "Newness",
    "NoTransaction",
    "Outbox",
    "UnknownConnection",
    "Update",
]
