"""Where a shared storage is: the options of commands that work on it without a broker."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from posthouse.loaded_settings import load_settings
from posthouse.model.errors import InvalidConfig

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="PostgreSQL database, postgresql://…; or POSTHOUSE_DATABASE, where a password belongs.",
    ),
]
ObjectsUrl = Annotated[
    str | None,
    typer.Option(
        "--objects",
        metavar="URL",
        help="Object store, s3://BUCKET/PREFIX or file:///DIRECTORY; or POSTHOUSE_OBJECTS.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE.toml",
        help="File with settings, as for 'posthouse serve'; or POSTHOUSE_CONFIG.",
    ),
]


def database_url(database: str | None, config: Path | None) -> str:
    """Raises InvalidConfig if no database is given."""
    return _urls(database, None, config)[0]


def storage_urls(database: str | None, objects: str | None, config: Path | None) -> tuple[str, str]:
    """Raises InvalidConfig if the database or the object store is not given."""
    found, store = _urls(database, objects, config)
    if store is None:
        raise InvalidConfig("name the object store with --objects or POSTHOUSE_OBJECTS")
    return found, store


def _urls(database: str | None, objects: str | None, config: Path | None) -> tuple[str, str | None]:
    if find_spec("psycopg") is None:
        raise InvalidConfig('shared storage needs more packages: pip install "posthouse[cluster]"')
    file = config or os.environ.get("POSTHOUSE_CONFIG")
    given = {"database": database, "objects": objects}
    settings = load_settings(file=Path(file) if file else None, flags=given).settings
    if settings.database is None:
        raise InvalidConfig("name the database with --database or POSTHOUSE_DATABASE")
    return settings.database.url, None if settings.objects is None else settings.objects.url
