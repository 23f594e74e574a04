"""Migrations that make the tables of outbox and inbox, as text for the application's own repository."""

from enum import StrEnum
from typing import Final

from posthouse.consistency.dialects import Dialect, removal_of_tables, tables_of_inbox, tables_of_outbox
from posthouse.consistency.errors import BadMigration

_ALEMBIC: Final = '''"""Tables of the outbox and the inbox of Posthouse, for {dialect}."""

from alembic import op

revision = "posthouse_outbox"
down_revision = {before}
branch_labels = None
depends_on = None


def upgrade() -> None:
{made}

def downgrade() -> None:
{removed}'''
_DJANGO: Final = '''"""Tables of the outbox and the inbox of Posthouse, for {dialect}."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [{before}]

    operations = [
        migrations.RunSQL(
            sql=[
{made}            ],
            reverse_sql=[
{removed}            ],
        )
    ]
'''


class MigrationTool(StrEnum):
    SQL = "sql"
    ALEMBIC = "alembic"
    DJANGO = "django"


def migration(tool: MigrationTool, dialect: Dialect, after: str | None = None) -> str:
    """The whole file. `after` is the migration before it: a revision of Alembic, APP.NAME with Django. Raises
    BadMigration."""
    made = [*tables_of_outbox(dialect), *tables_of_inbox(dialect)]
    removed = removal_of_tables(dialect)
    if tool is MigrationTool.ALEMBIC:
        return _ALEMBIC.format(
            dialect=dialect,
            before=None if after is None else _quoted(after),
            made="".join(f'    op.execute(\n        """\n{text}\n"""\n    )\n' for text in made),
            removed="".join(f'    op.execute("{text}")\n' for text in removed),
        )
    if tool is MigrationTool.DJANGO:
        return _DJANGO.format(
            dialect=dialect,
            before="" if after is None else _dependency(after),
            made="".join(f'                """\n{text}\n""",\n' for text in made),
            removed="".join(f'                "{text}",\n' for text in removed),
        )
    if after is not None:
        raise BadMigration("plain statements have no migration before them; leave it out")
    return "".join(f"{text};\n\n" for text in made)


def _dependency(after: str) -> str:
    app, point, name = after.partition(".")
    if not (app and point and name):
        raise BadMigration(f"{after!r} is no migration of Django; give APP.NAME, such as shop.0001_initial")
    return f"({_quoted(app)}, {_quoted(name)})"


def _quoted(text: str) -> str:
    """For Python."""
    if not text.replace("_", "").replace("-", "").replace(".", "").isalnum():
        raise BadMigration(
            f"{text!r} is no name of a migration: letters, digits, '-', '_' and '.' are possible"
        )
    return f'"{text}"'
