"""Moves messages from an outbox to the log: those of a shard one batch after the other, in order."""

import logging
from dataclasses import dataclass
from typing import Final, Protocol

from posthouse.client.errors import ClientError
from posthouse.consistency.errors import LeaseLost
from posthouse.consistency.log_target import is_about_messages
from posthouse.consistency.outbox_table import Batch, OutboxMessage, OutboxTable

log = logging.getLogger(__name__)

BATCH_SIZE: Final = 500


class Target(Protocol):
    def write(self, name: str, batch: Batch) -> None:
        """Returns when all messages of the batch are there, once. Raises ClientError."""

    def refusal(self, name: str, message: OutboxMessage) -> str | None:
        """Why the message alone is not taken; None if it is. Raises ClientError."""


@dataclass(slots=True)
class Counts:
    sent: int = 0
    batches: int = 0
    set_aside: int = 0
    errors: int = 0


class Relay:
    """Belongs to one thread. Several relays of one outbox share its shards."""

    def __init__(
        self, table: OutboxTable, target: Target, counts: Counts, *, batch_size: int = BATCH_SIZE
    ) -> None:
        self._table = table
        self._target = target
        self._batch_size = batch_size
        self._name = table.name()
        self.counts = counts

    def send_all(self) -> int:
        """Everything that is due and that no other relay has; returns the number of messages. Raises
        ClientError."""
        before = self.counts.sent
        while shards := self._table.busy_shards():
            if not sum([self._send_shard(shard) for shard in shards]):
                break  # other relays have got there first
        return self.counts.sent - before

    def _send_shard(self, shard: int) -> int:
        """Returns how many batches were looked at."""
        table = self._table
        if not table.take(shard):
            return 0
        looked_at = 1
        try:
            batch = table.batch_under_way(shard)
            while batch is not None or (batch := table.next_batch(shard, self._batch_size)) is not None:
                self._send(shard, batch)
                batch = None
                looked_at += 1
        except LeaseLost as error:
            log.warning("outbox: %s; it took longer than the lease to send a batch", error)
            return looked_at
        except ClientError:
            table.release(shard)  # another relay may reach the broker
            raise
        table.release(shard)
        return looked_at

    def _send(self, shard: int, batch: Batch) -> None:
        name = f"{self._name}.{shard}"
        left: Batch | None = batch
        try:
            self._target.write(name, batch)
        except ClientError as error:
            if not is_about_messages(error):
                raise
            left = self._without_refused(shard, name, batch)
            if left is not None:
                self._target.write(name, left)
        if left is not None:
            self.counts.sent += len(left.messages)
            self.counts.batches += 1

    def _without_refused(self, shard: int, name: str, batch: Batch) -> Batch | None:
        """One message must not hold up the others."""
        reasons = {}
        for message in batch.messages:
            reason = self._target.refusal(name, message)
            if reason is not None:
                log.warning(
                    "outbox: message %s for topic %r is set aside: %s", message.id, message.topic, reason
                )
                reasons[message.row] = reason
        self.counts.set_aside += len(reasons)
        return self._table.set_aside(shard, batch, reasons)
