"""What a broker checks of PostgreSQL at its start."""

import psycopg
import pytest

from posthouse.model.errors import InvalidConfig, Unavailable
from posthouse.storage.shared.database import Database
from posthouse.storage.shared.membership.inspection import inspect
from tests.postgres import PostgresServer, new_database


async def test_tables_are_created_and_dangers_named(postgres: PostgresServer) -> None:
    with new_database(postgres) as url:
        warnings = await inspect(Database(url))
        assert any("synchronous_standby_names" in each for each in warnings)
        assert any("fsync off" in each for each in warnings)
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM posthouse.scope").fetchone() == (161,)
        assert await inspect(Database(url)) == warnings


async def test_a_role_that_may_not_create_tables(postgres: PostgresServer) -> None:
    postgres.execute("CREATE ROLE reader LOGIN")
    with new_database(postgres) as url, pytest.raises(InvalidConfig, match="posthouse storage init"):
        await inspect(Database(url.replace("postgres@", "reader@")))


@pytest.mark.parametrize("compatible_from", [1, 2])
async def test_tables_of_a_newer_release(url: str, compatible_from: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO posthouse.schema_version (version, compatible_from) VALUES (999, %s)",
            [compatible_from],
        )
    if compatible_from == 1:
        await inspect(Database(url))
    else:
        with pytest.raises(Unavailable, match=r"version 999 .* know version 2; this release knows 1"):
            await inspect(Database(url))


async def test_an_old_server(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("posthouse.storage.shared.membership.inspection._OLDEST", 990_000)
    with pytest.raises(InvalidConfig, match="needs 99 or newer"):
        await inspect(Database(url))
