"""Moves messages from an outbox to the log: those of a shard one batch after the other, in order."""

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from posthouse.client.errors import ClientError
from posthouse.consistency.errors import BrokerAhead, LeaseLost
from posthouse.consistency.outbox_table import Batch, OutboxMessage, OutboxTable, ShardTurn
from posthouse.consistency.refusals import MessagesRefused, ahead, is_about_messages, is_about_topic

log = logging.getLogger(__name__)

BATCH_SIZE: Final = 500
_BATCHES_OF_A_TURN: Final = 10
"""Then the other shards have their turns."""


class Target(Protocol):
    def last_number(self, name: str) -> int:
        """Of the batches that are there; 0 if there are none. Raises ClientError."""

    def write(self, name: str, batch: Batch, *, alone: bool = False) -> None:
        """Returns when all messages of the batch are there. Raises ClientError and BrokerAhead, and
        MessagesRefused if all but some are there."""

    def refusal(self, name: str, messages: Sequence[OutboxMessage]) -> ClientError | None:
        """Why one of the messages is not taken; None if all are. Raises ClientError."""


@dataclass(slots=True)
class Counts:
    sent: int = 0
    batches: int = 0
    set_aside: int = 0
    errors: int = 0


class Relay:
    """Belongs to one thread. Several relays of one outbox share its shards."""

    def __init__(
        self,
        table: OutboxTable,
        target: Target,
        counts: Counts,
        *,
        batch_size: int = BATCH_SIZE,
        stop: threading.Event | None = None,
    ) -> None:
        table.check()
        self._table = table
        self._target = target
        self._batch_size = batch_size
        self._stop = stop or threading.Event()
        self._rounds = 0
        self.counts = counts

    def send_all(self) -> int:
        """Everything that is due and that no other relay has; returns the number of messages. Raises
        ClientError when all shards have had a turn."""
        before = self.counts.sent
        while not self._stop.is_set() and (shards := self._table.busy_shards()):
            first = self._rounds % len(shards)
            self._rounds += 1
            if not self._round([*shards[first:], *shards[:first]]):
                break  # other relays have got there first
        return self.counts.sent - before

    def _round(self, shards: Sequence[int]) -> int:
        """Returns how many batches were looked at."""
        looked_at = 0
        first_error: ClientError | None = None
        for shard in shards:
            if self._stop.is_set():
                break
            try:
                looked_at += self._send_shard(shard)
            except ClientError as error:  # of one topic, perhaps: it must not hold up the others
                log.debug("outbox: shard %d: %s", shard, error)
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return looked_at

    def _send_shard(self, shard: int) -> int:
        """Returns how many batches were looked at."""
        turn = self._table.take(shard)
        if turn is None:
            return 0
        try:
            return self._turn(shard, turn)
        except LeaseLost as error:
            log.warning("outbox: %s; it took longer than the lease to send a batch", error)
            return 1
        except ClientError:
            self._table.release(shard)  # another relay may reach the broker
            raise

    def _turn(self, shard: int, turn: ShardTurn) -> int:
        table = self._table
        batch = turn.under_way
        looked_at = 1
        try:
            # Before a number is given. A relay that died behind that would leave a batch that has the number
            # of another one, and that the next relay takes for sent.
            last = self._target.last_number(turn.name)
            if last > turn.number:
                raise ahead(turn.name, last)
            while batch is not None or (batch := table.next_batch(shard, self._batch_size)) is not None:
                self._send(shard, turn.name, batch)
                batch = None
                looked_at += 1
                if looked_at > _BATCHES_OF_A_TURN or self._stop.is_set():
                    table.finish(shard)
                    break
        except BrokerAhead as error:
            # Raises LeaseLost if another relay has the shard: then that one has sent the batch.
            table.stop(shard, str(error), batch if batch is not None and batch.is_new else None)
            log.error("outbox: shard %d is stopped: %s", shard, error)
            return 1
        return looked_at

    def _send(self, shard: int, name: str, batch: Batch) -> None:
        left: Batch | None = batch
        try:
            self._target.write(name, batch)
        except MessagesRefused as error:
            left = self._set_aside(shard, batch, error.reasons)
        except ClientError as error:
            if not is_about_messages(error):
                raise
            left = self._without_refused(shard, name, batch)
            if left is not None:
                # Alone, as they were tried: together they may be larger than their topic takes.
                self._target.write(name, left, alone=True)
        if left is not None:
            self.counts.sent += len(left.messages)
            self.counts.batches += 1

    def _without_refused(self, shard: int, name: str, batch: Batch) -> Batch | None:
        """One message must not hold up the others."""
        by_topic: dict[str, list[OutboxMessage]] = {}
        for message in batch.messages:
            by_topic.setdefault(message.topic, []).append(message)
        reasons: dict[int, str] = {}
        for messages in by_topic.values():
            first, *others = messages
            error = self._refusal(shard, name, [first])
            if error is not None and is_about_topic(error):
                reasons |= {each.row: str(error) for each in messages}
                continue
            if error is not None:
                reasons[first.row] = str(error)
            reasons |= self._refused(shard, name, others)
        return self._set_aside(shard, batch, reasons)

    def _set_aside(self, shard: int, batch: Batch, reasons: Mapping[int, str]) -> Batch | None:
        """Returns what is left of the batch."""
        for message in batch.messages:
            if message.row in reasons:
                log.warning(
                    "outbox: message %s for topic %r is set aside: %s",
                    message.id,
                    message.topic,
                    reasons[message.row],
                )
        self.counts.set_aside += len(reasons)
        return self._table.set_aside(shard, batch, reasons)

    def _refused(self, shard: int, name: str, messages: Sequence[OutboxMessage]) -> dict[int, str]:
        """By halves, because few of many are: rows and reasons."""
        error = self._refusal(shard, name, messages) if messages else None
        if error is None:
            return {}
        if len(messages) == 1:
            return {messages[0].row: str(error)}
        half = len(messages) // 2
        return self._refused(shard, name, messages[:half]) | self._refused(shard, name, messages[half:])

    def _refusal(self, shard: int, name: str, messages: Sequence[OutboxMessage]) -> ClientError | None:
        self._table.renew(shard)  # many of these may take longer than a lease
        return self._target.refusal(name, messages)
