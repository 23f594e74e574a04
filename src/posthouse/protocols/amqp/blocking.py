"""Blocked publishers: the reasons, and connection.blocked and unblocked for the client."""

from enum import Enum

from pamqp.commands import Connection

from posthouse.protocols.amqp.codec import encode
from posthouse.protocols.flow_control import Outbox


class BlockReason(Enum):
    STORAGE = "low on disk"
    QUEUE = "a queue is full"


class Blocking:
    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._reasons: set[BlockReason] = set()
        self.tells = False
        """Whether the client has the capability `connection.blocked`."""

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def add(self, reason: BlockReason) -> None:
        if self.tells and not self._reasons:
            self._outbox.send(encode.method(0, Connection.Blocked(reason.value)))
        self._reasons.add(reason)

    def remove(self, reason: BlockReason) -> None:
        if reason in self._reasons:
            self._reasons.remove(reason)
            if self.tells and not self._reasons:
                self._outbox.send(encode.method(0, Connection.Unblocked()))
