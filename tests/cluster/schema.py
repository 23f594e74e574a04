"""A database with Posthouse's tables, to copy others from."""

import asyncio

from posthouse.storage.shared.database import Database
from posthouse.storage.shared.membership.inspection import inspect
from tests.postgres import PostgresServer

TEMPLATE = "posthouse_template"


def prepare_template(server: PostgresServer) -> None:
    server.execute(f"CREATE DATABASE {TEMPLATE}")
    asyncio.run(inspect(Database(server.url(TEMPLATE))))
