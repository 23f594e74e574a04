"""Connections to PostgreSQL, each with timeouts, and what its errors mean to a broker."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg import conninfo
from psycopg.rows import tuple_row

from posthouse.model.errors import InvalidConfig, NotLeader, StorageFenced, Unavailable
from posthouse.storage.shared.migrations import SCHEMA

DatabaseConnection: TypeAlias = psycopg.AsyncConnection[tuple[Any, ...]]

LEASE_LOST = "PH001"
SCOPE_NEEDED = "PH006"
COMMITS_LOST = "PH007"

_CONNECT_SECONDS = 3
_KEEPALIVES_IDLE_SECONDS = 5
_KEEPALIVES_INTERVAL_SECONDS = 2
_KEEPALIVES = 2
_SERVER_SECONDS = 20
"""How long the server keeps the sessions of a broker that was cut off; by default it does for two hours.
Longer than a broker takes to read an answer."""
_PORTS = re.compile("[0-9,]*")
# The address and libpq's words about it may contain parts of a password.
_NOT_AN_ADDRESS = (
    "the database address is not one of PostgreSQL (postgresql://USER:PASSWORD@HOST:PORT/DATABASE). "
    "Write special characters of user and password as %XX: @ is %40, / is %2F, % is %25"
)


class DatabaseAway(Unavailable):
    """PostgreSQL cannot be reached or does not answer; whether the last statement counted is not known."""


class LeaseLost(StorageFenced):
    """Another broker has fenced this one: it must not write or answer any more."""


class ScopeNeeded(NotLeader):
    """A broker was to do what only the holder of a scope may, and does not hold it. Nothing was done."""


class CommitsLost(StorageFenced):
    """The database has lost acknowledged commits, and no operator has accepted that."""

    def __init__(self, loss: str) -> None:
        """`loss` says how it is known."""
        super().__init__(
            f"the database has lost acknowledged commits: {loss}. No broker takes over until an operator "
            "accepts the loss with 'posthouse storage accept-loss'"
        )
        self.loss = loss


class Database:
    """Where the database is, and how connections to it are made."""

    def __init__(self, url: str, *, statement_seconds: float = 5.0, lock_seconds: float = 2.0) -> None:
        try:
            given = conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise InvalidConfig(_NOT_AN_ADDRESS) from None
        authority, _, path = url.partition("?")[0].partition("://")[2].partition("/")
        has_port = _PORTS.fullmatch(str(given.get("port", "")))
        if authority.count("@") > 1 or "@" in path or not has_port:
            raise InvalidConfig(_NOT_AN_ADDRESS)
        milliseconds = int(statement_seconds * 1000)
        options = (
            f"-c statement_timeout={milliseconds} -c lock_timeout={int(lock_seconds * 1000)} "
            f"-c idle_in_transaction_session_timeout={milliseconds} -c search_path={SCHEMA} "
            "-c synchronous_commit=on -c jit=off "
            f"-c tcp_user_timeout={_SERVER_SECONDS * 1000} -c tcp_keepalives_idle={_KEEPALIVES_IDLE_SECONDS} "
            f"-c tcp_keepalives_interval={_KEEPALIVES_INTERVAL_SECONDS} -c tcp_keepalives_count={_KEEPALIVES}"
        )
        defaults: dict[str, Any] = {
            "connect_timeout": _CONNECT_SECONDS,
            "tcp_user_timeout": milliseconds,
            "keepalives_idle": _KEEPALIVES_IDLE_SECONDS,
            "keepalives_interval": _KEEPALIVES_INTERVAL_SECONDS,
            "keepalives_count": _KEEPALIVES,
            "target_session_attrs": "read-write",
        }
        given_options = f"{given.pop('options', '')} {options}".strip()
        self._conninfo = conninfo.make_conninfo("", **(defaults | given | {"options": given_options}))

    @property
    def name(self) -> str:
        """Host, port and database, without the password: for people."""
        given = conninfo.conninfo_to_dict(self._conninfo)
        host = given.get("host") or given.get("hostaddr") or "local socket"
        return f"{host}:{given.get('port', 5432)}/{given.get('dbname', given.get('user', ''))}"

    async def connect(self, purpose: str, *, statement_seconds: float | None = None) -> DatabaseConnection:
        """A connection in autocommit mode; `purpose` is what pg_stat_activity shows. The caller closes it."""
        try:
            made = await psycopg.AsyncConnection.connect(
                self._conninfo,
                autocommit=True,
                application_name=f"posthouse {purpose}",
                row_factory=tuple_row,
            )
        except psycopg.Error as error:
            raise DatabaseAway(f"PostgreSQL at {self.name} cannot be reached: {one_line(error)}") from error
        if statement_seconds is not None:
            try:
                async with meaning(f"connecting to {self.name}"):
                    await made.execute(
                        "SELECT set_config('statement_timeout', %s, false)", [f"{statement_seconds}s"]
                    )
            except BaseException:
                await made.close()
                raise
        return made


@asynccontextmanager
async def meaning(doing: str) -> AsyncIterator[None]:
    """Turn errors of PostgreSQL into those of a storage. `doing` says in words what was tried."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, doing) from error


def translated(error: psycopg.Error, doing: str) -> Unavailable:
    if error.sqlstate == LEASE_LOST:
        return LeaseLost(f"{doing}: another broker has taken over ({one_line(error)})")
    if error.sqlstate == SCOPE_NEEDED:
        return ScopeNeeded(f"{doing}: {one_line(error)}")
    return DatabaseAway(f"{doing}: PostgreSQL did not do it: {one_line(error)}")


def one_line(error: BaseException) -> str:
    """Without the context that PostgreSQL adds: the arguments of a function and its line."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return error.diag.message_primary
    return " ".join(str(error).split()) or type(error).__name__
