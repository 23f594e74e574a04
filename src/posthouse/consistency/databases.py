"""Connections of a relay and of commands, by the URL of a database."""

import sqlite3
import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from posthouse.client.closable import Closable
from posthouse.consistency.connections import Outcome
from posthouse.consistency.dialects import CHANNEL, Dialect
from posthouse.consistency.errors import BadDatabase, DatabaseLost, NoTables, Unreachable
from posthouse.consistency.statements import Statement

_EXAMPLES: Final = "postgresql://USER@HOST/NAME, mysql://USER@HOST/NAME, or sqlite:////PATH"
_MARIADB_PORT: Final = 3306
_MARIADB_TEXTS: Final = frozenset({"ssl_ca", "ssl_cert", "ssl_key", "ssl_key_password", "unix_socket"})
_MARIADB_SWITCHES: Final = frozenset({"ssl_verify_cert", "ssl_verify_identity"})
_CONNECT_SECONDS: Final = 10
_LOCKED_SECONDS: Final = 30
"""For another writer of an SQLite database."""


class Database(Closable):
    """One connection. Belongs to one thread."""

    dialect: Dialect

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Committed at the end of the block, or rolled back. Raises DatabaseLost."""
        with self._told():
            self._begin()
        try:
            yield
        except BaseException:
            with suppress(self._errors):  # the connection is gone, and the transaction with it
                self._connection.rollback()
            raise
        with self._told():
            self._connection.commit()

    def run(self, text: str, values: Sequence[Any] = ()) -> Outcome:
        """One statement with `?` for values, inside of a transaction. Raises NoTables and DatabaseLost."""
        with self._told():
            cursor = self._connection.cursor()
            with closing(cursor):
                cursor.execute(self._styled(Statement(text, values)), tuple(values))
                return Outcome(cursor.rowcount, cursor.fetchall() if cursor.description else ())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            if self._is_about_tables(error):
                raise NoTables(
                    "the database has no outbox; make its tables with 'posthouse outbox init --database URL'"
                ) from None
            raise DatabaseLost(f"the database did not do it: {str(error).strip()}") from error

    def need_no_sync(self) -> None:
        """What this transaction does may be undone by a crash of the database: its commit does not wait for
        the disk, where the database can do that."""

    def wait(self, seconds: float) -> bool:
        """Until something has been published, or for so long: then it is False."""
        time.sleep(seconds)
        return False

    @property
    @abstractmethod
    def _errors(self) -> type[Exception]:
        """The base of what the library raises."""

    @abstractmethod
    def _is_about_tables(self, error: Exception) -> bool: ...

    def _styled(self, statement: Statement) -> str:
        return statement.with_percent()

    def _begin(self) -> None:
        """Most libraries begin by themselves."""


class _Postgres(Database):
    dialect = Dialect.POSTGRESQL

    @property
    def _errors(self) -> type[Exception]:
        from psycopg import Error

        return Error

    def _is_about_tables(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == "42P01"

    def need_no_sync(self) -> None:
        # The log is written in the order of commits: one that waits has these on the disk, too.
        self.run("SET LOCAL synchronous_commit = off")

    def wait(self, seconds: float) -> bool:
        # What was notified between two calls is kept by the connection, and ends the next one at once.
        with self._told():
            told = list(self._connection.notifies(timeout=seconds, stop_after=1))
            self._connection.commit()
        return bool(told)

    def listen(self) -> None:
        self._connection.execute(f"LISTEN {CHANNEL}")
        self._connection.commit()


class _MariaDb(Database):
    dialect = Dialect.MARIADB

    @property
    def _errors(self) -> type[Exception]:
        from pymysql import Error

        error: type[Exception] = Error
        return error

    def _is_about_tables(self, error: Exception) -> bool:
        return error.args[:1] == (1146,)


class _Sqlite(Database):
    dialect = Dialect.SQLITE

    @property
    def _errors(self) -> type[Exception]:
        return sqlite3.Error

    def _is_about_tables(self, error: Exception) -> bool:
        return "no such table" in str(error)

    def _styled(self, statement: Statement) -> str:
        return statement.text

    def _begin(self) -> None:
        # Takes the lock for writing at once: a transaction that begins by reading cannot wait for it.
        self._connection.execute("BEGIN IMMEDIATE")


def open_database(url: str) -> Database:
    """Raises BadDatabase and Unreachable."""
    scheme = urlsplit(url).scheme.partition("+")[0]  # as SQLAlchemy writes it, with the name of a library
    rest = url.partition(":")[2]
    if scheme in ("postgresql", "postgres"):
        return _postgres(f"postgresql:{rest}")
    if scheme in ("mysql", "mariadb"):
        return _mariadb(url)
    if scheme == "sqlite":
        return _sqlite(url)
    raise BadDatabase(f"{scheme or url!r} is no database that can have an outbox; give {_EXAMPLES}")


def _postgres(url: str) -> Database:
    try:
        import psycopg
    except ImportError:
        raise _missing("psycopg", "postgresql") from None
    try:
        made = _Postgres(psycopg.connect(url, connect_timeout=_CONNECT_SECONDS))
        made.listen()
    except psycopg.ProgrammingError as error:
        raise BadDatabase(f"the URL of the database cannot be read: {str(error).strip()}") from None
    except psycopg.Error as error:
        raise Unreachable(f"the database cannot be reached: {str(error).strip()}") from None
    return made


def _mariadb(url: str) -> Database:
    try:
        import pymysql
    except ImportError:
        raise _missing("pymysql", "mariadb") from None
    options = _mariadb_options(url)
    try:
        connection = pymysql.connect(**options, charset="utf8mb4", connect_timeout=_CONNECT_SECONDS)
        # Otherwise it would not see what others have committed while it waited for a lock.
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    except pymysql.Error as error:
        raise Unreachable(f"the database cannot be reached: {error}") from None
    except OSError as error:  # of certificates; those of the network are among the others
        raise BadDatabase(f"the certificates of the database's URL cannot be used: {error}") from None
    return _MariaDb(connection)


def _mariadb_options(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise BadDatabase(f"the URL of the database cannot be read: {error}") from None
    options: dict[str, Any] = {
        "host": parts.hostname or "127.0.0.1",
        "port": port or _MARIADB_PORT,
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": unquote(parts.path.lstrip("/")),
    }
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "charset":  # SQLAlchemy's URLs often have it; it is always utf8mb4 here
            continue
        if name not in _MARIADB_TEXTS | _MARIADB_SWITCHES:
            known = ", ".join(sorted(_MARIADB_TEXTS | _MARIADB_SWITCHES))
            raise BadDatabase(f"{name!r} is no parameter of a MariaDB URL that is known here; {known} are")
        options[name] = value.lower() in ("1", "true", "yes") if name in _MARIADB_SWITCHES else value
    return options


def _sqlite(url: str) -> Database:
    path = url.removeprefix("sqlite://").removeprefix("/")
    if not path or path == ":memory:":
        raise BadDatabase(
            "an outbox has to be in a file; give sqlite:///relative/path or sqlite:////absolute/path"
        )
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=_LOCKED_SECONDS)
    except sqlite3.Error as error:
        raise BadDatabase(f"the database {path!r} cannot be opened: {error}") from None
    return _Sqlite(connection)


def _missing(library: str, extra: str) -> BadDatabase:
    return BadDatabase(f"{library} is not installed; pip install 'posthouse[outbox-{extra}]'")
