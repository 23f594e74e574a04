"""A MariaDB server for tests: Debian's, in a directory of its own."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pymysql
import pytest

from tests.postgres import LOOPBACK, free_port

_START_SECONDS = 60.0


def need_mariadb() -> None:
    if os.environ.get("POSTHOUSE_DATABASES") != "1":
        pytest.skip("takes long: in make test-databases only")
    if not Path("/usr/sbin/mariadbd").exists():
        pytest.skip("MariaDB is not installed: apt-get install mariadb-server")


class MariaDbServer:
    def __init__(self, directory: Path) -> None:
        self._directory = directory / "data"
        self._port = free_port()
        self._databases = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._directory.mkdir(exist_ok=True)
        user = []
        if os.geteuid() == 0:
            shutil.chown(self._directory, "mysql", "mysql")
            user = ["--user=mysql"]
        place = [f"--datadir={self._directory}", *user]
        if not (self._directory / "mysql").exists():
            subprocess.run(
                ["mariadb-install-db", "--no-defaults", *place, "--auth-root-authentication-method=normal"],
                check=True,
                capture_output=True,
            )
            if user:  # the program leaves some files to root
                for each in self._directory.rglob("*"):
                    shutil.chown(each, "mysql", "mysql")
        options = [
            f"--port={self._port}",
            f"--bind-address={LOOPBACK}",
            f"--socket={self._directory}/socket",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=32M",
        ]
        with (self._directory.parent / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["/usr/sbin/mariadbd", "--no-defaults", *place, *options], stdout=log, stderr=log
            )
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._execute("SELECT 1")
                return
            except pymysql.Error:
                assert self._process.poll() is None, (self._directory.parent / "server.log").read_text()[
                    -2000:
                ]
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def new_database(self) -> str:
        """Returns its URL."""
        self._databases += 1
        name = f"shop{self._databases}"
        self._execute(f"CREATE DATABASE {name}")
        return f"mysql://root@{LOOPBACK}:{self._port}/{name}"

    def _execute(self, statement: str) -> None:
        with (
            pymysql.connect(host=LOOPBACK, port=self._port, user="root") as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
