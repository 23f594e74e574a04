"""A connection that breaks while it is set up: the caller hears that the database is away."""

import pytest

from posthouse.storage.shared.database import Database, DatabaseAway
from tests.postgres import PostgresServer
from tests.storage.shared.postgres_proxy import Damage, Direction, ProxyFault, proxied


async def test_a_connection_that_breaks_before_its_first_statement(postgres: PostgresServer) -> None:
    async with proxied(postgres.url(), "posthouse tests") as (proxy, url):
        reached = 0
        for message in range(6):
            proxy.arm(ProxyFault(direction=Direction.TO_SERVER, message=message, damage=Damage.CUT))
            try:
                connection = await Database(url).connect("tests", statement_seconds=60)
            except DatabaseAway:
                reached += proxy.fired
            else:
                await connection.close()
        assert reached > 0
        with pytest.raises(DatabaseAway):
            await Database("postgresql://postgres@127.0.0.1:1/none").connect("tests", statement_seconds=60)


async def test_the_server_ends_sessions_of_a_broker_that_was_cut_off(postgres: PostgresServer) -> None:
    """By default it would keep them for two hours, and some cuts later take no connection any more."""
    connection = await Database(postgres.url()).connect("tests")
    async with connection:
        found = await connection.execute(
            "SELECT current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'), "
            "current_setting('tcp_keepalives_count'), current_setting('tcp_user_timeout')"
        )
        assert await found.fetchone() == ("5", "2", "2", "20000")
