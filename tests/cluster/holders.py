"""Leases and scopes of brokers that a test only pretends to run."""

from uuid import UUID, uuid4

import psycopg

Sql = psycopg.Connection[tuple[object, ...]]


def coordinator(sql: Sql, incarnation: UUID | None = None, *, seconds: float) -> UUID:
    """A broker that has all scopes now, and a lease for so long. They must be free, or their holder's lease
    over."""
    who = incarnation or uuid4()
    sql.execute("SELECT take_lease(%s, 3600)", [who])
    sql.execute("SELECT take_scopes(%s, epoch, (SELECT array_agg(name) FROM scope)) FROM last_epoch", [who])
    sql.execute(
        "UPDATE lease SET until = clock_timestamp() + make_interval(secs => %s) WHERE holder = %s",
        [seconds, who],
    )
    return who


def fence(sql: Sql) -> None:
    """As if the coordinator had been paused: its lease has ended, and another broker has fenced it."""
    sql.execute("SELECT fence(holder) FROM scope WHERE name = 'coordinator'")
