"""A relay that runs until it is told to stop, over losses of the database and of the broker."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from posthouse.client.errors import ClientError
from posthouse.consistency.databases import Database
from posthouse.consistency.errors import DatabaseLost
from posthouse.consistency.outbox_table import OutboxTable
from posthouse.consistency.relay import BATCH_SIZE, Counts, Relay, Target

log = logging.getLogger(__name__)

LEASE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 1.0
"""Where the database does not tell of new messages, or that was lost."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
_LONGEST_WAIT: Final = 0.5
"""In one call to the database."""


class Relaying:
    """Belongs to one thread; `stop` may be set by any."""

    def __init__(
        self,
        open_database: Callable[[], Database],
        target: Target,
        owner: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        batch_size: int = BATCH_SIZE,
    ) -> None:
        """A lease is for a batch of at most so many messages."""
        self._open_database = open_database
        self._target = target
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._poll_seconds = poll_seconds
        self._batch_size = batch_size
        self.counts = Counts()
        self.stop = threading.Event()

    def once(self) -> int:
        """Send what is due; returns how many messages. Raises ClientError, BadDatabase and DatabaseLost."""
        with self._open_database() as database:
            return self._relay(database)[1].send_all()

    def run(self) -> None:
        """Until `stop`. Raises BadDatabase."""
        pause = _FIRST_PAUSE
        while not self.stop.is_set():
            sent_before = self.counts.batches
            try:
                with self._open_database() as database:
                    self._run(database)
            except (ClientError, DatabaseLost) as error:
                if self.counts.batches > sent_before:
                    pause = _FIRST_PAUSE
                self.counts.errors += 1
                log.warning("outbox: not possible now, trying again in %.1f s: %s", pause, error)
                self.stop.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _run(self, database: Database) -> None:
        table, relay = self._relay(database)
        while not self.stop.is_set():
            relay.send_all()
            due_in = table.due_in_ms()
            seconds = self._poll_seconds if due_in is None else min(self._poll_seconds, due_in / 1000)
            self._wait(database, seconds)

    def _wait(self, database: Database, seconds: float) -> None:
        """In slices, because `stop` may be set meanwhile."""
        until = time.monotonic() + seconds
        while not self.stop.is_set() and (left := until - time.monotonic()) > 0:
            if database.wait(min(left, _LONGEST_WAIT)):
                break

    def _relay(self, database: Database) -> tuple[OutboxTable, Relay]:
        table = OutboxTable(database, self._owner, lease_seconds=self._lease_seconds)
        relay = Relay(table, self._target, self.counts, stop=self.stop, batch_size=self._batch_size)
        for shard, reason in table.stopped():
            log.error("outbox: shard %d is stopped: %s", shard, reason)
        return table, relay
