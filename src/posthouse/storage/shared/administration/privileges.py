"""What the role of a broker may do in the database: everything with rows, nothing with tables."""

from psycopg import sql

from posthouse.model.errors import NotFound
from posthouse.storage.shared.database import DatabaseConnection, meaning
from posthouse.storage.shared.migrations import SCHEMA

_ROWS = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE"
"""TRUNCATE because slots are emptied as a whole."""

_GRANTS = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    f"GRANT {_ROWS} ON ALL TABLES IN SCHEMA {{schema}} TO {{role}}",
    "REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON {schema}.schema_version FROM {role}",
    "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}",
    # What later versions of the tables add, if the same role creates it.
    f"ALTER DEFAULT PRIVILEGES IN SCHEMA {{schema}} GRANT {_ROWS} ON TABLES TO {{role}}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT USAGE, SELECT ON SEQUENCES TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT EXECUTE ON FUNCTIONS TO {role}",
)


async def grant_to_broker(connection: DatabaseConnection, role: str) -> None:
    """Let brokers run as `role`. Raises NotFound if there is no such role."""
    async with meaning(f"granting rights to {role}"), connection.transaction():
        found = await connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        if await found.fetchone() is None:
            raise NotFound(
                f"PostgreSQL has no role {role}; create it first: CREATE ROLE {role} LOGIN PASSWORD '…'"
            )
        for each in _GRANTS:
            statement = sql.SQL(each).format(schema=sql.Identifier(SCHEMA), role=sql.Identifier(role))
            await connection.execute(statement)
