"""The PostgreSQL servers and the object store of a run: on the disk that is measured, with real syncs."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.postgres import PostgresServer, free_port, need_postgres
from tests.s3 import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

OPTIONS = ("shared_buffers=512MB", "max_wal_size=4GB", "min_wal_size=1GB", "checkpoint_timeout=15min")
RECYCLED_BYTES = 1 << 30
"""Of the write-ahead log. A server that has run for a while writes into files that it used before; a new one
makes each file of 16 MiB, and commits wait for it."""
_MESSAGE_BYTES = 8 << 20
_STANDBY = "standby"
_SYNC_LIMIT = 60.0
_SYNCHRONOUS = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"


@dataclass(frozen=True, slots=True)
class Servers:
    directory: Path
    alone: PostgresServer
    replicated: PostgresServer
    """With a synchronous standby: a commit is answered when both have it on disk."""
    standby: PostgresServer
    store: S3Server | None
    """None: objects are files in a directory."""

    @contextlib.contextmanager
    def new_database(self, *, has_standby: bool) -> Iterator[str]:
        """The address of an empty database."""
        server = self.replicated if has_standby else self.alone
        name = "b" + os.urandom(6).hex()
        server.execute(f"CREATE DATABASE {name}")
        for each in (self.replicated, self.standby) if has_standby else (self.alone,):
            each.execute("CHECKPOINT")  # now, and not while something is measured
        try:
            yield server.url(name)
        finally:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")

    @contextlib.contextmanager
    def new_objects(self, *, in_directory: bool) -> Iterator[str]:
        """The address of an empty place for objects. They are removed afterwards: a run writes more than
        most disks have room for."""
        name = os.urandom(6).hex()
        if self.store is not None and not in_directory:
            place = self.store.directory / "buckets" / BUCKET / name
            # What docs/shared-storage.md recommends for a store without TLS that knows it.
            address = f"{self.store.url(name)}&checksum=crc64nvme"
        else:
            place = self.directory / "objects" / name
            place.mkdir(parents=True)
            address = f"file://{place.resolve()}"
        try:
            yield address
        finally:
            shutil.rmtree(place, ignore_errors=True)

    @property
    def database_pids(self) -> list[int]:
        running = [each.process for each in (self.alone, self.replicated, self.standby)]
        return [each.pid for each in running if each is not None]

    @property
    def store_pid(self) -> int | None:
        return None if self.store is None or self.store.process is None else self.store.process.pid

    @property
    def object_store(self) -> str:
        return "versitygw, an S3 server" if self.store is not None else "a directory"


@contextlib.contextmanager
def running_servers(directory: Path, *, recycled_bytes: int = RECYCLED_BYTES) -> Iterator[Servers]:
    """Raises RuntimeError without PostgreSQL."""
    try:
        need_postgres()
    except pytest.skip.Exception as missing:
        raise RuntimeError(str(missing)) from None
    directory.chmod(0o755)  # PostgreSQL runs as another user
    with contextlib.ExitStack() as cleanup:
        alone = _started(cleanup, directory / "alone")
        replicated = _started(cleanup, directory / "replicated")
        standby = _added_standby(cleanup, replicated, directory / _STANDBY)
        for each in (alone, replicated):
            _write_ahead(each, recycled_bytes)
        store = _store(cleanup, directory / "s3")
        yield Servers(directory, alone, replicated, standby, store)


def _started(cleanup: contextlib.ExitStack, directory: Path) -> PostgresServer:
    server = PostgresServer(directory.resolve(), free_port(), OPTIONS)
    server.init()
    server.start()
    cleanup.callback(_ended, server)
    return server


def _write_ahead(server: PostgresServer, size: int) -> None:
    """Let it write so much into its log; the next checkpoint recycles the files."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for _ in range(size // _MESSAGE_BYTES):
            connection.execute(
                "SELECT pg_logical_emit_message(false, 'bench', repeat('x', %s))", [_MESSAGE_BYTES]
            )


def _ended(server: PostgresServer | S3Server) -> None:
    if server.process is not None:
        server.kill()


def _added_standby(cleanup: contextlib.ExitStack, primary: PostgresServer, directory: Path) -> PostgresServer:
    standby = PostgresServer(directory.resolve(), free_port(), OPTIONS)
    address = f"{primary.url()}?application_name={_STANDBY}"
    owner = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
    directory.mkdir(mode=0o700)
    if owner:
        shutil.chown(directory, **owner)
    command = [need_postgres() / "pg_basebackup", "-D", directory.resolve(), "-R", "-c", "fast"]
    command += ["-d", address]
    subprocess.run(command, check=True, capture_output=True, cwd="/", **owner)  # type: ignore[call-overload]
    standby.start()
    cleanup.callback(_ended, standby)
    primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{_STANDBY}'")
    primary.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + _SYNC_LIMIT
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        while connection.execute(_SYNCHRONOUS).fetchone() is None:
            if time.monotonic() > deadline:
                raise RuntimeError("the standby of PostgreSQL does not become synchronous")
            time.sleep(0.05)
    return standby


def _store(cleanup: contextlib.ExitStack, directory: Path) -> S3Server | None:
    patch = cleanup.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("POSTHOUSE_CLUSTER", "1")
    patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    directory.mkdir()
    store = S3Server(directory.resolve(), free_port())
    try:
        store.start()
    except pytest.skip.Exception:
        return None
    cleanup.callback(_ended, store)
    return store
