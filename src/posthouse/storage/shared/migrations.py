"""Versions of the database schema: each is a directory of SQL files, applied once, in one transaction.

Everything lives in the schema `posthouse` of the database. `posthouse.schema_version` says which versions are
applied. A broker starts only with the version that it was made for.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from psycopg import sql

from posthouse.model.errors import InvalidConfig, Unavailable

SCHEMA = "posthouse"
_LOCK = 0x706F7374
"""An advisory lock, so that brokers that start together do not migrate together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    version: int
    statements: str


def migrations() -> list[Migration]:
    """All that this release knows, oldest first."""
    root = files("posthouse.storage.shared").joinpath("schema")
    found = []
    for each in sorted(root.iterdir(), key=lambda each: each.name):
        if each.is_dir() and each.name.isdigit():
            parts = sorted(
                (part for part in each.iterdir() if part.name.endswith(".sql")), key=lambda p: p.name
            )
            text = "\n".join(part.read_text() for part in parts)
            found.append(Migration(version=int(each.name), statements=text))
    return found


def newest_version() -> int:
    return migrations()[-1].version


async def applied_version(connection: psycopg.AsyncConnection[Any]) -> int:
    """The version of the schema in the database, 0 if there is none."""
    found = await connection.execute("SELECT to_regclass('posthouse.schema_version') IS NOT NULL")
    row = await found.fetchone()
    if row is None or not row[0]:
        return 0
    found = await connection.execute("SELECT coalesce(max(version), 0) FROM posthouse.schema_version")
    row = await found.fetchone()
    return 0 if row is None else int(row[0])


async def migrate(connection: psycopg.AsyncConnection[Any]) -> list[int]:
    """Apply the versions that are missing, in one transaction; returns them. Needs the right to create."""
    done = []
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(SCHEMA)))
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS posthouse.schema_version "
            "(version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        await connection.execute("SET LOCAL search_path = posthouse")
        known = await applied_version(connection)
        for each in migrations():
            if each.version > known:
                await connection.execute(each.statements.encode())
                await connection.execute("INSERT INTO schema_version (version) VALUES (%s)", [each.version])
                done.append(each.version)
    return done


def check_version(applied: int) -> None:
    """Raise unless the database has the version that this release was made for."""
    newest = newest_version()
    if applied < newest:
        raise InvalidConfig(
            f"the database has version {applied} of Posthouse's tables, this release needs {newest}; run "
            "'posthouse storage migrate' with a role that may create tables"
        )
    if applied > newest:
        raise Unavailable(
            f"the database has version {applied} of Posthouse's tables, this release knows {newest}; "
            "install the release that the other brokers have"
        )
