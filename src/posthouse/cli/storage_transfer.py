"""`posthouse storage import` and `export`: between a data directory and a shared storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from posthouse.cli.byte_progress import byte_progress
from posthouse.cli.options import Json
from posthouse.cli.output import counted, print_json, say
from posthouse.cli.storage_place import ConfigFile, DatabaseUrl, ObjectsUrl, storage_urls

if TYPE_CHECKING:
    from posthouse.storage.shared.administration.administration import TransferReport

    Transfer = Callable[..., Coroutine[None, None, TransferReport]]

Source = Annotated[
    Path, typer.Argument(metavar="DIR", help="Data directory, as given to 'posthouse serve --data'.")
]
Target = Annotated[
    Path, typer.Argument(metavar="DIR", help="New data directory for 'posthouse serve --data'.")
]


def import_data(
    directory: Source,
    database: DatabaseUrl = None,
    objects: ObjectsUrl = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Bring the data directory of a single broker into an empty shared storage.

    Offsets, groups, transactions, queues, schedules, users and the cluster id stay as they are. Stop all
    brokers first. At the end everything is read back from both and compared. An import that was interrupted
    goes on when it is repeated; until it is finished no broker can serve from the shared storage. The data
    directory keeps its content.
    """
    from posthouse.storage.shared.administration.administration import import_storage

    _transfer(import_storage, "importing", directory, storage_urls(database, objects, config), json)


def export_data(
    directory: Target,
    database: DatabaseUrl = None,
    objects: ObjectsUrl = None,
    config: ConfigFile = None,
    json: Json = False,
) -> None:
    """Copy a shared storage to a new data directory for a single broker.

    Stop all brokers first. At the end everything is read back from both and compared. An export that was
    interrupted goes on when it is repeated. The shared storage keeps its content: do not serve from both.
    """
    from posthouse.storage.shared.administration.administration import export_storage

    _transfer(export_storage, "exporting", directory, storage_urls(database, objects, config), json)


def _transfer(transfer: Transfer, doing: str, directory: Path, urls: tuple[str, str], json: bool) -> None:
    from posthouse.storage.shared.administration.administration import TransferProgress

    with byte_progress(f"{doing} and comparing") as (begin, advance):
        progress = TransferProgress(begin=begin, advance=advance)
        report = asyncio.run(transfer(directory, *urls, progress))
    if json:
        print_json(asdict(report))
    else:
        copied = f"{counted(report.topics, 'topic')}, {counted(report.logs, 'log')}, "
        say(f"done: {copied}{counted(report.bytes, 'byte')} copied and compared, with all other state")
