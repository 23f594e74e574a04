"""The migrations that `posthouse outbox init --print` writes, as Alembic and Django carry them out."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, TypeAlias

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config

from posthouse.consistency import Inbox, Outbox
from posthouse.consistency.databases import open_database
from posthouse.consistency.dialects import Dialect
from posthouse.consistency.errors import BadMigration
from posthouse.consistency.migrations import MigrationTool, migration
from posthouse.testing import ThreadBroker
from tests.cli.programs import inside
from tests.consistency.applications import plain_connection, sqlalchemy_url
from tests.consistency.relays import relay_of

ROOT: Final = Path(__file__).parents[2]
_ENVIRONMENT: Final = """
from alembic import context
from sqlalchemy import create_engine

with create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
_FIRST_REVISION: Final = """
from alembic import op

revision, down_revision = "first", None


def upgrade():
    op.execute("CREATE TABLE orders (id integer)")


def downgrade():
    op.execute("DROP TABLE orders")
"""
_FIRST_MIGRATION: Final = """
from django.db import migrations


class Migration(migrations.Migration):
    operations = [migrations.RunSQL("CREATE TABLE orders (id integer)", "DROP TABLE orders")]
"""
Migrate: TypeAlias = Callable[[bool], None]
"""To the newest migration, or back to the first."""


@pytest.fixture
def dialect(empty_url: str) -> Dialect:
    with open_database(empty_url) as database:
        return database.dialect


def written(*arguments: str) -> str:
    done = inside("outbox", "init", "--print", *arguments)
    assert done.returncode == 0, done
    return done.stdout


def by_alembic(place: Path, url: str, text: str) -> Migrate:
    versions = place / "versions"
    versions.mkdir()
    (place / "env.py").write_text(_ENVIRONMENT)
    (versions / "first.py").write_text(_FIRST_REVISION)
    (versions / "outbox.py").write_text(text)
    config = Config()
    config.set_main_option("script_location", str(place))
    config.set_main_option("sqlalchemy.url", sqlalchemy_url(url))

    def migrate(is_up: bool) -> None:
        if is_up:
            command.upgrade(config, "head")
        else:
            command.downgrade(config, "first")

    return migrate


def by_django(place: Path, url: str, text: str) -> Migrate:
    migrations = place / "shop" / "migrations"
    migrations.mkdir(parents=True)
    for each in (place / "shop", migrations):
        (each / "__init__.py").touch()
    (migrations / "0001_initial.py").write_text(_FIRST_MIGRATION)
    (migrations / "0002_outbox.py").write_text(text)

    def migrate(is_up: bool) -> None:
        subprocess.run(
            [sys.executable, "-m", "tests.consistency.django_migrations", url, "shop"]
            + ([] if is_up else ["0001"]),
            check=True,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    return migrate


def tables(url: str) -> set[str]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    try:
        return {each for each in sqlalchemy.inspect(engine).get_table_names() if "posthouse" in each}
    finally:
        engine.dispose()


@pytest.mark.parametrize(
    ("tool", "after", "make"),
    [("alembic", "first", by_alembic), ("django", "shop.0001_initial", by_django)],
    ids=["alembic", "django"],
)
def test_a_migration_there_and_back_and_there(
    tool: str,
    after: str,
    make: Callable[[Path, str, str], Migrate],
    empty_url: str,
    dialect: Dialect,
    tmp_path: Path,
    broker: ThreadBroker,
    topic: str,
) -> None:
    place = tmp_path / "application"
    place.mkdir()
    migrate = make(place, empty_url, written(dialect, "--as", tool, "--after", after))
    migrate(True)
    made = tables(empty_url)
    assert made == {
        "posthouse_outbox",
        "posthouse_outbox_shard",
        "posthouse_inbox",
        "posthouse_inbox_version",
    }
    migrate(False)
    assert tables(empty_url) == set()
    migrate(True)
    with closing(plain_connection(empty_url)) as connection:
        Outbox().publish(connection, topic, "1", key="k")
        with Inbox("billing").once(connection, "1") as first:
            assert first
        connection.commit()
    with relay_of(empty_url, broker) as relay:
        assert relay.send_all() == 1


def test_plain_statements_are_the_default() -> None:
    text = written("sqlite")
    assert text == written("sqlite", "--as", "sql") == migration(MigrationTool.SQL, Dialect.SQLITE)
    assert text.startswith("CREATE TABLE")


@pytest.mark.parametrize("tool", [MigrationTool.ALEMBIC, MigrationTool.DJANGO])
def test_a_first_migration(tool: MigrationTool) -> None:
    text = migration(tool, Dialect.POSTGRESQL)
    assert "down_revision = None" in text or "dependencies = []" in text
    compile(text, "migration.py", "exec")


@pytest.mark.parametrize(
    ("tool", "after", "sentence"),
    [
        (MigrationTool.ALEMBIC, 'x"; import os', "is no name of a migration"),
        (MigrationTool.ALEMBIC, "", "is no name of a migration"),
        (MigrationTool.DJANGO, "0001_initial", "give APP.NAME, such as shop.0001_initial"),
        (MigrationTool.SQL, "3f9c1a", "plain statements have no migration before them"),
    ],
)
def test_misuse(tool: MigrationTool, after: str, sentence: str) -> None:
    with pytest.raises(BadMigration, match=sentence):
        migration(tool, Dialect.SQLITE, after)
