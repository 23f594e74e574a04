"""What a database knows of the two-phase commits of one transactional id: one row of `posthouse_two_phase`.

The row has the transaction of the log that was committed with the last transaction of the database. It is
written in that very transaction, so it tells after any crash what the database has decided. `generation`
counts the processes that have taken the transactional id. A process writes the row of its own generation
only: what an older process still has open in the database cannot be committed once the log was told to abort.
`cluster` is that of the broker: another one gives the same producer ids to other transactions.

PostgreSQL, by psycopg 3.
"""

from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from posthouse.client.two_phase_producer import PreparedTransaction
from posthouse.consistency.errors import NoTables, NoTransaction, Superseded

TABLE: Final = """CREATE TABLE IF NOT EXISTS posthouse_two_phase (
    transactional_id text PRIMARY KEY,
    generation bigint NOT NULL,
    cluster text,
    producer_id bigint,
    producer_epoch integer,
    committed_at timestamptz
)"""
_TAKE: Final = (
    "INSERT INTO posthouse_two_phase (transactional_id, generation) VALUES (%s, 1) "
    "ON CONFLICT (transactional_id) DO UPDATE SET generation = posthouse_two_phase.generation + 1 "
    "RETURNING generation, cluster, producer_id, producer_epoch"
)
_NOTE: Final = (
    "UPDATE posthouse_two_phase "
    "SET cluster = %s, producer_id = %s, producer_epoch = %s, committed_at = now() "
    "WHERE transactional_id = %s AND generation = %s"
)
_TRANSACTION: Final = "SELECT txid_current(), current_setting('synchronous_commit')"
_WAIT_FOR_DISK: Final = "SET LOCAL synchronous_commit TO on"
"""A commit that a crash of the server can undo decides nothing."""
_ATTEMPTS: Final = 5

Connection = psycopg.Connection[Any]


def create_table(connection: Connection) -> None:
    """In the transaction of the connection."""
    connection.execute(TABLE)


class TwoPhaseRow:
    """Of one transactional id, as one process has taken it. Other processes may take it at any time."""

    def __init__(self, transactional_id: str) -> None:
        self._id = transactional_id
        self._generation = 0
        self._cluster = ""

    def take(self, connection: Connection, cluster: str) -> PreparedTransaction | None:
        """Waits until an older process has committed or rolled back what it has open; it can write nothing
        after that. Returns the transaction of this cluster that was committed last. Raises NoTables and
        psycopg.Error."""
        connection.rollback()
        self._cluster = cluster
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._take(connection)
            except psycopg.errors.UndefinedTable:
                connection.rollback()
                raise NoTables(
                    "the database has no table posthouse_two_phase; make it with "
                    "posthouse.consistency.two_phase.create_table"
                ) from None
            except psycopg.errors.SerializationFailure:  # of connections that are set to stricter isolation
                connection.rollback()
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("not reached")

    def _take(self, connection: Connection) -> PreparedTransaction | None:
        with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(_TAKE, [self._id])
            found = cursor.fetchone()
        connection.commit()
        assert found is not None
        self._generation, cluster, producer_id, epoch = found
        if producer_id is None or cluster != self._cluster:
            return None
        return PreparedTransaction(transactional_id=self._id, producer_id=producer_id, epoch=epoch)

    def begin(self, connection: Connection) -> int:
        """Begin a transaction; returns its number. Raises NoTransaction and psycopg.Error."""
        if connection.autocommit:
            raise NoTransaction(
                "the connection commits every statement by itself; open it without autocommit"
            )
        if connection.info.transaction_status != TransactionStatus.IDLE:
            raise NoTransaction("the connection has a transaction open already; give one that is idle")
        return self._number(connection)[0]

    def note(self, connection: Connection, number: int, prepared: PreparedTransaction) -> None:
        """Write the row in the transaction of this number. Raises NoTransaction, Superseded and
        psycopg.Error."""
        present, durability = self._number(connection)
        if present != number:
            raise NoTransaction(
                "the transaction was committed or rolled back inside of the block; leave that to its end"
            )
        if durability == "off":
            connection.execute(_WAIT_FOR_DISK)
        values = [self._cluster, prepared.producer_id, prepared.epoch, self._id, self._generation]
        if connection.execute(_NOTE, values).rowcount != 1:
            raise Superseded(f"another process has taken {self._id!r}; give every process an id of its own")

    @staticmethod
    def _number(connection: Connection) -> tuple[int, str]:
        """Of the transaction, with its durability."""
        with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(_TRANSACTION)
            found = cursor.fetchone()
        assert found is not None
        number, durability = found
        return number, durability
