"""A PostgreSQL server with a synchronous standby, for tests of a failover."""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.directories import IN_MEMORY
from tests.postgres import LOOPBACK, PostgresServer, as_server_user, free_port, need_postgres

_OPTIONS = ("fsync=off", "wal_keep_size=64MB", "hot_standby=on", "max_connections=100")
"""As many connections as usual: sessions of a broker that is cut off stay for some seconds."""
_SYNC_SECONDS = 30


class PostgresPair:
    """`primary` and `standby` change their places with each failover."""

    def __init__(self, place: Path, host: str = LOOPBACK) -> None:
        self._place = place
        self._host = host
        self._number = 0
        self.primary = self._server(free_port())
        self.standby = self._server(free_port())

    def _server(self, port: int) -> PostgresServer:
        self._number += 1
        return PostgresServer(self._place / f"data-{self._number}", port, _OPTIONS, self._host)

    def start(self, database: str) -> None:
        """With a new database, whose commits wait for the standby."""
        self.primary.init()
        self.primary.start()
        self.primary.execute(f"CREATE DATABASE {database}")
        self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.execute("SELECT pg_reload_conf()")
        self._add_standby()

    def url(self, database: str, *ports: int) -> str:
        """One address for both servers; `ports` are those of proxies before them."""
        hosts = ",".join(f"{self._host}:{port}" for port in ports or (self.primary.port, self.standby.port))
        return f"postgresql://postgres@{hosts}/{database}?target_session_attrs=read-write"

    def fail_over(self) -> None:
        """The primary is gone, the standby takes its place, and gets a standby of its own.

        Until that one is there, no commit is answered: the setting that says so was copied with the data.
        """
        self.primary.kill()
        gone, self.primary = self.primary, self.standby
        self.primary.execute("SELECT pg_promote(true, 30)")
        shutil.rmtree(gone.directory)
        self.standby = self._server(gone.port)
        self._add_standby()

    def _add_standby(self) -> None:
        place = self.standby.directory
        place.mkdir(mode=0o700)
        if os.geteuid() == 0:
            shutil.chown(place, "postgres", "postgres")
        command = [
            *(need_postgres() / "pg_basebackup", "-D", place, "-h", self._host),
            *("-p", str(self.primary.port), "-U", "postgres", "-R", "-X", "stream"),
            *("--checkpoint=fast", "--no-sync"),
        ]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **as_server_user())  # type: ignore[call-overload]
        self.standby.start()
        self._wait_until_synchronous()

    def _wait_until_synchronous(self) -> None:
        deadline = time.monotonic() + _SYNC_SECONDS
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            while True:
                found = connection.execute(
                    "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
                ).fetchone()
                if found == (1,):
                    return
                assert time.monotonic() < deadline, "the standby does not replicate"
                time.sleep(0.02)

    def stop(self) -> None:
        for each in (self.primary, self.standby):
            if each.process is not None:
                each.kill()


@contextlib.contextmanager
def running_pair(database: str, host: str = LOOPBACK) -> Iterator[PostgresPair]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-pg-") as place:
        Path(place).chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(place, "postgres", "postgres")
        pair = PostgresPair(Path(place), host)
        try:
            pair.start(database)
            yield pair
        finally:
            pair.stop()
