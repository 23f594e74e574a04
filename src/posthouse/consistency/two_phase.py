"""A transaction of PostgreSQL and one of the log that are committed together: both, or neither.

    with TwoPhase("localhost:9092", "transfers-1", connect=lambda: psycopg.connect(URL)) as two_phase:
        with two_phase.transaction() as transaction:
            transaction.connection.execute("UPDATE …")
            transaction.send("transfers", b"…", key=b"…")

The database decides. The log prepares its transaction; a row that names it is written in the transaction of
the database (see `two_phase_row`); the database commits; the log commits. After a crash at any point the next
process finds in the row whether the database has committed what the log has prepared, and decides the same:

    crash                                      the database      the log, by the next process
    before the database has committed          rolls back        aborts
    after that                                 has committed     commits

Whoever reads committed records gets them a moment after the database has committed, or after the recovery.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Final

import psycopg

from posthouse.client.backoff import RETRY_SECONDS
from posthouse.client.closable import Closable
from posthouse.client.cluster import Cluster
from posthouse.client.errors import ClientError, RequestRefused
from posthouse.client.security import OPEN, Security
from posthouse.client.two_phase_producer import (
    TRANSACTION_MS,
    PreparedTransaction,
    ProducerState,
    TwoPhaseProducer,
)
from posthouse.consistency.errors import DecidedOtherwise, TransactionInDoubt
from posthouse.consistency.two_phase_row import Connection, TwoPhaseRow, create_table
from posthouse.protocols.noop import noop
from posthouse.records.batch import Readable

__all__ = ["Step", "Transaction", "TwoPhase", "create_table"]

log = logging.getLogger(__name__)

_TIMEOUT: Final = 30.0
_NOT_OPEN: Final = 48


class Step(Enum):
    """What has just happened, in this order; a crash after any of them loses nothing."""

    LOG_FENCED = "the log has prepared what an earlier process has left, and refuses that process"
    DATABASE_FENCED = "the database refuses the earlier process, too"
    RECOVERED = "what the earlier process has left is decided"
    BEGUN = "both transactions have begun"
    WRITTEN = "the application has written to both"
    PREPARED = "the log has prepared its transaction"
    NOTED = "the row is written"
    DATABASE_COMMITTED = "the database has committed"
    COMMITTED = "the log has committed"


class Transaction:
    """The two transactions, until the end of the block."""

    __slots__ = ("_producer", "connection")

    def __init__(self, connection: Connection, producer: TwoPhaseProducer) -> None:
        self.connection = connection
        """Neither commit nor roll back."""
        self._producer = producer

    def send(
        self,
        topic: str,
        value: Readable | None,
        key: bytes | None = None,
        headers: Iterable[tuple[str, Readable | None]] = (),
        *,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        self._producer.send(topic, value, key, headers, timestamp=timestamp, partition=partition)


class TwoPhase(Closable):
    """Belongs to one thread; every process and thread needs a transactional id of its own, and the same one
    again after a crash."""

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        connect: Callable[[], Connection],
        *,
        security: Security = OPEN,
        transaction_timeout_ms: int = TRANSACTION_MS,
        patience: float = RETRY_SECONDS,
        on_step: Callable[[Step], None] = noop,
    ) -> None:
        """`connect` opens a connection without autocommit. `transaction_timeout_ms` is for a block,
        `patience` for a broker that cannot be reached, in seconds."""
        self._id = transactional_id
        self._connect = connect
        self._on_step = on_step
        self._cluster = Cluster(bootstrap, timeout=_TIMEOUT, security=security)
        self._producer = TwoPhaseProducer(
            self._cluster,
            transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            patience=patience,
        )
        self._row = TwoPhaseRow(transactional_id)
        self._connection: Connection | None = None
        self._is_settled = False
        """Nothing is open, here or of an earlier process."""
        self._last: PreparedTransaction | None = None
        """What the row had when it was taken."""

    def close(self) -> None:
        """Close the connections. What is in doubt is decided by whoever recovers next."""
        self._producer.close()
        self._cluster.close()
        self._drop_connection()

    def recover(self) -> bool | None:
        """Decide what an earlier process, or a failed call, has left: True if it is committed, False if it is
        aborted, None if there was nothing. `transaction` calls this where it is needed.

        Raises ClientError, NoTables and psycopg.Error; it may be repeated then.
        """
        self._is_settled = False
        prepared = self._producer.recover()
        self._on_step(Step.LOG_FENCED)
        self._last = self._row.take(self._connected(), self._cluster.cluster_id())
        self._on_step(Step.DATABASE_FENCED)
        outcome = None
        if prepared is not None:
            outcome = prepared == self._last
            if outcome:
                self._producer.commit()
            else:
                self._producer.abort()
            log.warning(
                "transactional id %r: the transaction of producer %d/%d was left open, and is %s now",
                self._id,
                prepared.producer_id,
                prepared.epoch,
                "committed, as in the database" if outcome else "aborted: the database has not committed it",
            )
        self._is_settled = True
        self._on_step(Step.RECOVERED)
        return outcome

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Committed at the end of the block; aborted if that raises.

        Raises TransactionInDoubt if only the next `recover` will tell, or finish it; of a block that has sent
        nothing only the database itself tells. Every other error means that neither was committed, except
        DecidedOtherwise.
        """
        if not self._is_settled or self._connection is None:
            self.recover()
        connection = self._connected()
        self._is_settled = False
        try:
            number = self._row.begin(connection)
            self._producer.begin()
            self._on_step(Step.BEGUN)
            yield Transaction(connection, self._producer)
            self._on_step(Step.WRITTEN)
            prepared = self._prepare(connection, number)
        except BaseException:
            self._give_up(connection)
            raise
        self._commit(connection, prepared)

    def _prepare(self, connection: Connection, number: int) -> PreparedTransaction | None:
        """None if nothing was sent."""
        if not self._producer.has_records:
            return None
        prepared = self._producer.prepare()
        self._on_step(Step.PREPARED)
        self._row.note(connection, number, prepared)
        self._on_step(Step.NOTED)
        return prepared

    def _commit(self, connection: Connection, prepared: PreparedTransaction | None) -> None:
        try:
            connection.commit()
        except psycopg.Error as error:
            if not _is_lost(connection):  # the database has refused it
                self._give_up(connection)
                raise
            if prepared is None:
                raise TransactionInDoubt(
                    "the database was lost while it committed a block that has sent no records, and nothing "
                    "tells whether it has: look whether the change is there"
                ) from error
            self._settle(prepared, error)
            return
        self._on_step(Step.DATABASE_COMMITTED)
        if prepared is None:
            self._is_settled = self._has_aborted()
            return
        try:
            self._producer.commit()
        except ClientError as error:
            if isinstance(error, RequestRefused) and error.code == _NOT_OPEN:
                raise DecidedOtherwise(
                    f"the database has committed, but the records of {self._id!r} were aborted by an "
                    "operator; send them again"
                ) from error
            raise TransactionInDoubt(
                f"the database has committed, and the records of {self._id!r} follow when 'recover' is "
                f"called, or the process starts again: {error}"
            ) from error
        self._is_settled = True
        self._on_step(Step.COMMITTED)

    def _settle(self, prepared: PreparedTransaction, error: psycopg.Error) -> None:
        """The connection broke while the database committed: only a new one can tell."""
        try:
            outcome = self.recover()
        except (ClientError, psycopg.Error) as another:
            raise TransactionInDoubt(
                "the database was lost while it committed, and it is open whether it has; 'recover' finds "
                f"out, and decides the records of {self._id!r} accordingly: {another}"
            ) from error
        if outcome is False:
            raise error
        if self._last != prepared:
            raise TransactionInDoubt(
                f"the database was lost while it committed, and another process has taken {self._id!r} and "
                "decided: look whether the change is there, and give every process an id of its own"
            ) from error
        self._on_step(Step.COMMITTED)

    def _give_up(self, connection: Connection) -> None:
        """Neither is committed. What fails here is decided by `recover`, before anything else."""
        with suppress(psycopg.Error):  # without a connection the database rolls back by itself
            connection.rollback()
        self._is_settled = self._has_aborted() and not _is_lost(connection)

    def _has_aborted(self) -> bool:
        if self._producer.state in (ProducerState.OPEN, ProducerState.PREPARED):
            try:
                self._producer.abort()
            except ClientError as error:
                log.warning("transactional id %r: aborting later: %s", self._id, error)
                return False
        return True

    def _connected(self) -> Connection:
        if self._connection is not None and _is_lost(self._connection):
            self._drop_connection()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


def _is_lost(connection: Connection) -> bool:
    return connection.broken or connection.closed
