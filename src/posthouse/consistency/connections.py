"""Statements inside the application's own transaction, whichever library it has begun it with.

A session or connection is recognised by the modules of its class, so no library is imported that the
application has not imported before.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from posthouse.consistency.dialects import Dialect
from posthouse.consistency.errors import NoTransaction, UnknownConnection
from posthouse.consistency.statements import Statement

Rows: TypeAlias = Sequence[Sequence[Any]]


class Outcome(NamedTuple):
    changed: int
    """Number of rows."""
    rows: Rows = ()


_DIALECTS: Final = {
    "postgresql": Dialect.POSTGRESQL,
    "mysql": Dialect.MARIADB,
    "mariadb": Dialect.MARIADB,
    "sqlite": Dialect.SQLITE,
}
_ADVICE: Final = (
    "pass a session or connection of SQLAlchemy, Django, psycopg, asyncpg, psycopg2, sqlite3, aiosqlite, "
    "PyMySQL, mysqlclient or mysql-connector"
)
_MYSQL: Final = ("pymysql", "MySQLdb", "mysql")
_NO_TRANSACTION: Final = (
    "no transaction is open on the connection, and it commits every statement by itself; begin one around "
    "the change and the message"
)
_IDLE: Final = 0
"""The transaction status of libpq."""
_IN_TRANSACTION: Final = 1
"""In the server status of MariaDB's protocol."""


def dialect_of(connection: Any) -> Dialect:
    """Raises UnknownConnection."""
    libraries = _libraries(connection)
    if "sqlalchemy" in libraries:
        return _named(_sqlalchemy_dialect(connection))
    if "django" in libraries:
        return _named(connection.vendor)
    if libraries & {"psycopg", "psycopg2", "asyncpg"}:
        return Dialect.POSTGRESQL
    if libraries & {"sqlite3", "aiosqlite"}:
        return Dialect.SQLITE
    if libraries & {*_MYSQL}:
        return Dialect.MARIADB
    raise UnknownConnection(f"{type(connection).__name__} is no connection that is known here; {_ADVICE}")


def run(connection: Any, statement: Statement) -> Outcome:
    """Raises UnknownConnection and NoTransaction."""
    libraries = _libraries(connection)
    if _is_async(connection, libraries):
        raise UnknownConnection(f"{type(connection).__name__} is asynchronous; use AsyncOutbox or AsyncInbox")
    if "sqlalchemy" in libraries:
        return _by_sqlalchemy(connection, statement)
    _check_in_transaction(connection, libraries)
    if "psycopg" in libraries:
        return _by_cursor(connection, statement.with_percent(), statement.values, row_factory=_as_tuples)
    if "sqlite3" in libraries:
        return _by_cursor(connection, statement.text, statement.values)
    if libraries & {"django", "psycopg2", *_MYSQL}:
        return _by_cursor(connection, statement.with_percent(), statement.values)
    raise UnknownConnection(f"{type(connection).__name__} is no connection that is known here; {_ADVICE}")


async def run_async(connection: Any, statement: Statement) -> Outcome:
    """Raises UnknownConnection and NoTransaction."""
    libraries = _libraries(connection)
    if not _is_async(connection, libraries):
        raise UnknownConnection(f"{type(connection).__name__} is synchronous; use Outbox or Inbox")
    if "sqlalchemy" in libraries:
        text, values = _named_text(statement)
        bound = await connection.connection() if hasattr(connection, "get_bind") else connection
        _check_sqlalchemy(await bound.get_raw_connection())
        return _of_result(await connection.execute(text, values))
    _check_in_transaction(connection, libraries)
    if "asyncpg" in libraries:
        return await _by_asyncpg(connection, statement)
    if "psycopg" in libraries:
        async with connection.cursor(row_factory=_as_tuples) as cursor:
            await cursor.execute(statement.with_percent(), statement.values)
            return Outcome(cursor.rowcount, await cursor.fetchall() if cursor.description else ())
    async with connection.execute(statement.text, statement.values) as cursor:  # aiosqlite
        return Outcome(cursor.rowcount, await cursor.fetchall())


async def _by_asyncpg(connection: Any, statement: Statement) -> Outcome:
    text = statement.with_dollars()
    if text.startswith("SELECT"):
        rows = await connection.fetch(text, *statement.values)
        return Outcome(len(rows), rows)
    status: str = await connection.execute(text, *statement.values)
    return Outcome(int(status.rpartition(" ")[2]))  # as in INSERT 0 1


def _by_sqlalchemy(connection: Any, statement: Statement) -> Outcome:
    text, values = _named_text(statement)
    bound = connection.connection() if hasattr(connection, "get_bind") else connection
    _check_sqlalchemy(bound.connection)
    return _of_result(connection.execute(text, values))


def _named_text(statement: Statement) -> tuple[Any, dict[str, Any]]:
    from sqlalchemy import text

    named, values = statement.with_names()
    return text(named), values


def _of_result(result: Any) -> Outcome:
    return Outcome(result.rowcount, result.fetchall() if result.returns_rows else ())


def _as_tuples(_: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A row factory of psycopg: the application's own may make anything of a row."""
    return tuple


def _by_cursor(connection: Any, text: str, values: Sequence[Any], **options: Any) -> Outcome:
    make: Callable[..., Any] = connection.cursor
    cursor = make(**options)
    try:
        cursor.execute(text, tuple(values))
        return Outcome(cursor.rowcount, cursor.fetchall() if cursor.description else ())
    finally:
        cursor.close()


def _libraries(connection: Any) -> frozenset[str]:
    found = {each.__module__.partition(".")[0] for each in type(connection).__mro__}
    if "sqlalchemy" in found and hasattr(connection, "dbapi_connection"):  # of Engine.raw_connection()
        raise UnknownConnection(f"{type(connection).__name__} is no connection; pass its dbapi_connection")
    if "django" in found and not hasattr(connection, "vendor"):
        raise UnknownConnection(f"{type(connection).__name__} is no connection; pass django.db.connection")
    return frozenset(found)


def _is_async(connection: Any, libraries: frozenset[str]) -> bool:
    if "sqlalchemy" in libraries or "psycopg" in libraries:
        return any(each.__name__.lower().startswith("async") for each in type(connection).__mro__)
    return bool(libraries & {"asyncpg", "aiosqlite"})


def _sqlalchemy_dialect(connection: Any) -> str:
    # Sessions know their engine only when asked, connections have it.
    bound = connection.get_bind() if hasattr(connection, "get_bind") else connection
    name: str = bound.dialect.name
    return name


def _named(name: str) -> Dialect:
    try:
        return _DIALECTS[name]
    except KeyError:
        known = ", ".join(Dialect)
        raise UnknownConnection(f"an outbox cannot be in a database of {name!r}; {known} can") from None


def _check_in_transaction(connection: Any, libraries: frozenset[str]) -> None:
    """A connection that commits every statement by itself would publish what may never happen."""
    if "asyncpg" in libraries:
        is_alone = not connection.is_in_transaction()
    else:
        is_alone = _commits_alone(connection, libraries)
    if is_alone:
        raise NoTransaction(_NO_TRANSACTION)


def _check_sqlalchemy(pooled: Any) -> None:
    driver = pooled.driver_connection
    libraries = _libraries(driver)
    # SQLAlchemy begins asyncpg's transactions with the first statement.
    alone = (
        pooled.dbapi_connection.autocommit if "asyncpg" in libraries else _commits_alone(driver, libraries)
    )
    if alone:
        raise NoTransaction(_NO_TRANSACTION)


def _commits_alone(connection: Any, libraries: frozenset[str]) -> bool:
    if "django" in libraries:
        return bool(connection.get_autocommit())  # false inside of atomic()
    if libraries & {"psycopg", "psycopg2"}:
        return bool(connection.autocommit and connection.info.transaction_status == _IDLE)
    if libraries & {"sqlite3", "aiosqlite"}:
        # `autocommit` is new in Python 3.12, and a number where the isolation level decides.
        commits = connection.isolation_level is None or getattr(connection, "autocommit", -1) is True
        return commits and not connection.in_transaction
    if "pymysql" in libraries:
        return bool(connection.get_autocommit()) and not connection.server_status & _IN_TRANSACTION
    if "MySQLdb" in libraries:
        return bool(connection.get_autocommit())  # it does not tell of transactions
    if "mysql" in libraries:
        return not connection.in_transaction and bool(connection.autocommit)
    return False
