"""Where brokers of the client and crash suites keep their records.

With POSTHOUSE_CLUSTER=1 that is a shared storage: a database of a real PostgreSQL server in the place of each
data directory, and a part of a bucket of a real S3 server, or a directory of objects where no S3 server is
installed. Without it nothing is shared, and no server is started.
"""

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.directories import IN_MEMORY
from tests.postgres import MIGRATED, PostgresServer, new_database
from tests.s3 import S3Server, running_s3, s3_program

IS_SHARED: Final = os.environ.get("POSTHOUSE_CLUSTER") == "1"
KINDS: Final = ["shared"] if IS_SHARED else ["memory", "file"]
"""Parameters for fixtures that start a broker on each storage."""


class SharedPlaces:
    """One database and one place for objects for each data directory."""

    def __init__(self, server: PostgresServer, objects: S3Server | None, stack: contextlib.ExitStack) -> None:
        self._server = server
        self._objects = objects
        self._stack = stack
        self._by_directory: dict[Path, dict[str, str]] = {}

    def of(self, data: Path | None) -> dict[str, str]:
        if data is None:
            return self._new()
        if data not in self._by_directory:
            self._by_directory[data] = self._new()
        return self._by_directory[data]

    def _new(self) -> dict[str, str]:
        made = tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-shared-")
        directory = self._stack.enter_context(made)
        return {
            "database": self._stack.enter_context(new_database(self._server, MIGRATED)),
            "objects": self._objects.url(uuid.uuid4().hex)
            if self._objects
            else f"file://{directory}/objects",
            "data": f"{directory}/data",  # for the audit log
        }


_places: SharedPlaces | None = None


@contextlib.contextmanager
def shared_places(server: PostgresServer) -> Iterator[None]:
    """`stored_in` gives places on this server meanwhile."""
    global _places
    with contextlib.ExitStack() as stack:
        objects = None if s3_program() is None else stack.enter_context(running_s3())
        _places = SharedPlaces(server, objects, stack)
        try:
            yield
        finally:
            _places = None


def stored_in(data: Path | None = None) -> dict[str, Any]:
    """Settings of a broker: the same storage again for the same directory, a new one for None."""
    if not IS_SHARED:
        return {"data": data}
    assert _places is not None, "the fixture shared_storages gives places"
    return _places.of(data)


def end_lease(data: Path) -> None:
    """As if its time had passed. The broker that held it must be dead: the next one does not wait, and does
    not name it to clients."""
    if IS_SHARED:
        with psycopg.connect(stored_in(data)["database"], autocommit=True) as connection:
            connection.execute("UPDATE posthouse.lease SET until = '-infinity'")
            connection.execute("UPDATE posthouse.broker SET seen_at = '-infinity'")
