"""Applications of every library: each changes its own table and publishes, in one transaction."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import aiosqlite
import asyncpg
import psycopg
import pymysql
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

Work: TypeAlias = Callable[[Any], Any]
"""Gets the session or connection, inside of a transaction."""


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


def sqlalchemy_url(url: str, *, is_async: bool = False) -> str:
    library = {
        "sqlite": "sqlite+aiosqlite" if is_async else "sqlite",
        "postgresql": "postgresql+asyncpg" if is_async else "postgresql+psycopg",
        "mysql": "mysql+pymysql",
    }
    scheme = urlsplit(url).scheme
    return url.replace(scheme, library[scheme], 1)


def by_session(url: str, work: Work) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    try:
        with Session(engine) as session, session.begin():
            session.execute(sqlalchemy.text("INSERT INTO orders VALUES (1, 'tea')"))
            work(session)
    finally:
        engine.dispose()


def by_engine(url: str, work: Work) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("INSERT INTO orders VALUES (1, 'tea')"))
            work(connection)
    finally:
        engine.dispose()


def by_library(url: str, work: Work) -> None:
    """psycopg, sqlite3 or PyMySQL."""
    with closing(plain_connection(url)) as connection:
        try:
            cursor = connection.cursor()
            cursor.execute("INSERT INTO orders VALUES (1, 'tea')")
            work(connection)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()


def plain_connection(url: str) -> Any:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(path_of(url), timeout=30)
    if parts.scheme == "postgresql":
        return psycopg.connect(url)
    return pymysql.connect(
        host=str(parts.hostname), port=int(parts.port or 0), user="root", database=parts.path[1:]
    )


async def by_async_session(url: str, work: Work) -> None:
    engine = create_async_engine(sqlalchemy_url(url, is_async=True))
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.execute(sqlalchemy.text("INSERT INTO orders VALUES (1, 'tea')"))
            await work(session)
    finally:
        await engine.dispose()


async def by_asyncpg(url: str, work: Work) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("INSERT INTO orders VALUES (1, 'tea')")
            await work(connection)
    finally:
        await connection.close()


async def by_async_psycopg(url: str, work: Work) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("INSERT INTO orders VALUES (1, 'tea')")
        await work(connection)


async def by_aiosqlite(url: str, work: Work) -> None:
    async with aiosqlite.connect(path_of(url)) as connection:
        try:
            await connection.execute("INSERT INTO orders VALUES (1, 'tea')")
            await work(connection)
        except BaseException:
            await connection.rollback()
            raise
        await connection.commit()


def run_django(url: str) -> None:
    """Publishes in a transaction that is rolled back, in one that is committed, and without one."""
    subprocess.run([sys.executable, "-m", "tests.consistency.django_application", url], check=True)
