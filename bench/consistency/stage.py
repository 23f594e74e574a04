"""The database server and the broker of a run, both on the disk that is measured, with real syncs."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from bench.consistency.contenders import Contender
from bench.cpu_times import cpu_of_tree
from bench.processes import Served, broker
from tests.postgres import PostgresServer, free_port, need_postgres

PARTITIONS: Final = 4
_OPTIONS: Final = (
    "shared_buffers=256MB",
    "max_wal_size=4GB",
    "checkpoint_timeout=15min",
    "wal_level=logical",
)
_STOP_SECONDS: Final = 20
_ROOT: Final = Path(__file__).parents[2]
LOG: Final = Path(".bench/relay.log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """Seconds since the start of each."""

    relay: float
    database: float
    broker: float

    def since(self, before: "Cpu") -> "Cpu":
        return Cpu(
            relay=self.relay - before.relay,
            database=self.database - before.database,
            broker=self.broker - before.broker,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    postgres: PostgresServer
    broker: Served

    @contextlib.contextmanager
    def new_database(self) -> Iterator[str]:
        """Its URL."""
        name = "b" + os.urandom(6).hex()
        self.postgres.execute(f"CREATE DATABASE {name}")
        self.postgres.execute("CHECKPOINT")  # now, and not while something is measured
        try:
            yield self.postgres.url(name)
        finally:
            self._drop_slots()
            self.postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _drop_slots(self) -> None:
        """Of a reader of the write-ahead log that has ended."""
        self.postgres.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
        )
        self.postgres.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")

    @contextlib.contextmanager
    def relay(self, contender: Contender, database: str, topic: str) -> Iterator[subprocess.Popen[bytes]]:
        LOG.parent.mkdir(exist_ok=True)
        with LOG.open("wb") as log:
            process = subprocess.Popen(
                contender.command(database, self.broker.address, topic),
                stdout=log,
                stderr=log,
                cwd=LOG.parent,  # some write files beside them
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def cpu(self, relay: "subprocess.Popen[bytes]") -> Cpu:
        assert self.postgres.process is not None
        return Cpu(
            relay=cpu_of_tree(relay.pid),
            database=cpu_of_tree(self.postgres.process.pid),
            broker=self.broker.cpu_seconds(),
        )


@contextlib.contextmanager
def opened() -> Iterator[Stage]:
    """Raises RuntimeError without PostgreSQL."""
    try:
        need_postgres()
    except pytest.skip.Exception as missing:
        raise RuntimeError(str(missing)) from None
    scratch = Path(".bench")
    scratch.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="posthouse-bench-", dir=scratch)).resolve()
    place.chmod(0o755)  # PostgreSQL runs as another user
    server = PostgresServer(place / "data", free_port(), _OPTIONS)
    try:
        server.init()
        server.start()
        with broker() as served:
            yield Stage(postgres=server, broker=served)
    finally:
        if server.process is not None:
            server.kill()
        shutil.rmtree(place)
