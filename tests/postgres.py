"""A PostgreSQL server for tests: a real one, in a directory of its own, from the packages of the system."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psycopg
import pytest

from posthouse.storage.shared.migrations import migrate
from tests.directories import IN_MEMORY

LOOPBACK = "127.0.0.1"
_USER = "postgres"
_START_SECONDS = 60


cluster_only = pytest.mark.skipif(
    os.environ.get("POSTHOUSE_CLUSTER") != "1", reason="takes long: in make test-cluster only"
)


@cache
def binaries() -> Path | None:
    """The directory of PostgreSQL's programs, None where it is not installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[-3]))
    if found:
        return found[-1].parent
    program = shutil.which("postgres")
    return Path(program).resolve().parent if program else None


def need_postgres() -> Path:
    place = binaries()
    if place is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    return place


def as_server_user() -> dict[str, str]:
    """The server refuses to run as root."""
    return {"user": _USER, "group": _USER} if os.geteuid() == 0 else {}


@dataclass(slots=True)
class PostgresServer:
    """One server process. `kill`, `pause` and `resume` are faults; `start` brings it back with its data."""

    directory: Path
    port: int
    options: Sequence[str] = ()
    host: str = LOOPBACK
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def init(self) -> None:
        place = need_postgres()
        self.directory.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            shutil.chown(self.directory, _USER, _USER)
        command = [
            place / "initdb",
            "-D",
            self.directory,
            "-U",
            "postgres",
            "--auth=trust",
            "-E",
            "UTF8",
            "-N",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **as_server_user())  # type: ignore[call-overload]
        if self.host != LOOPBACK:
            with (self.directory / "pg_hba.conf").open("a") as rules:
                rules.writelines(f"host {each} all samenet trust\n" for each in ("all", "replication"))

    @property
    def version(self) -> int:
        return int((self.directory / "PG_VERSION").read_text())

    def start(self) -> None:
        place = need_postgres()
        settings = [
            f"port={self.port}",
            f"listen_addresses={self.host}",
            f"unix_socket_directories={self.directory}",
            "max_connections=50",
            "shared_buffers=64MB",
            "dynamic_shared_memory_type=mmap",  # in its directory, so that a killed server leaves nothing
            *self.options,
        ]
        command: list[str | Path] = [place / "postgres", "-D", self.directory]
        for each in settings:
            command += ["-c", each]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(  # type: ignore[call-overload]
                command, cwd="/", stdout=log, stderr=log, start_new_session=True, **as_server_user()
            )
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError((self.directory / "server.log").read_text()[-2000:])
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends it at once but cleanly, SIGTERM waits for clients."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait()
        self.process = None

    def kill(self) -> None:
        """The whole server at once, as if its machine had lost power (what it had synced stays)."""
        assert self.process is not None
        self._signal(signal.SIGKILL)
        self.process.wait()
        self.process = None
        (self.directory / "postmaster.pid").unlink(missing_ok=True)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """To the server and its processes, each of which leads a session of its own."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in (self.process.pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running_server(*options: str) -> Iterator[PostgresServer]:
    """A new server; without syncs unless `options` say so: tests kill processes, not machines."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-pg-") as place:
        Path(place).chmod(0o755)
        server = PostgresServer(Path(place) / "data", free_port(), ("fsync=off", *options))
        server.init()
        server.start()
        try:
            yield server
        finally:
            if server.process is not None:
                server.kill()


@contextlib.contextmanager
def new_database(server: PostgresServer, template: str = "template1") -> Iterator[str]:
    """The address of a new database, dropped at the end."""
    name = "t" + os.urandom(6).hex()
    # Copied files cost less than a log of every block. Before 15 there was no choice.
    strategy = " STRATEGY file_copy" if server.version >= 15 else ""
    server.execute(f"CREATE DATABASE {name} TEMPLATE {template}{strategy}")
    try:
        yield server.url(name)
    finally:
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


MIGRATED = "migrated"
"""A database with all tables, to be copied."""


@contextlib.contextmanager
def migrated_server() -> Iterator[PostgresServer]:
    """A server with an empty migrated database as a template."""
    with running_server() as server:
        server.execute(f"CREATE DATABASE {MIGRATED}")
        with ThreadPoolExecutor(1) as elsewhere:  # a fixture may be made while an event loop runs
            elsewhere.submit(asyncio.run, _migrate(server.url(MIGRATED))).result()
        yield server


async def _migrate(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await migrate(connection)
