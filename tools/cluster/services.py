"""Servers on loopback: PostgreSQL from the system's packages, and how others are waited for."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_SERVER_USER = "postgres"
_START_SECONDS = 60


class Missing(Exception):
    """Something has to be installed first."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def postgres(place: Path) -> Iterator[str]:
    """The address of a database of a new server."""
    programs = _postgres_programs()
    data = place / "postgres"
    data.mkdir()
    # The server refuses to run as root.
    as_user = {"user": _SERVER_USER, "group": _SERVER_USER} if os.geteuid() == 0 else {}
    if as_user:
        shutil.chown(data, _SERVER_USER, _SERVER_USER)
    made = [programs / "initdb", "-D", data, "-U", _SERVER_USER, "--auth=trust", "-E", "UTF8"]
    subprocess.run(made, check=True, capture_output=True, cwd="/", **as_user)  # type: ignore[call-overload]
    port = free_port()
    settings = (f"port={port}", "listen_addresses=127.0.0.1", f"unix_socket_directories={data}")
    command = [programs / "postgres", "-D", data, *(text for each in settings for text in ("-c", each))]
    with (place / "postgres.log").open("wb") as log:
        process = subprocess.Popen(  # type: ignore[call-overload]
            command, cwd="/", stdout=log, stderr=log, start_new_session=True, **as_user
        )
    try:
        url = f"postgresql://{_SERVER_USER}@127.0.0.1:{port}/postgres"
        wait_until_served(
            process, place / "postgres.log", lambda: psycopg.connect(url, connect_timeout=5).close()
        )
        yield url
    finally:
        process.send_signal(signal.SIGINT)  # at once, but cleanly
        process.wait()


def _postgres_programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[-3]))
    if found:
        return found[-1].parent
    program = shutil.which("postgres")
    if program is None:
        raise Missing("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    return Path(program).resolve().parent


def wait_until_served(process: "subprocess.Popen[bytes]", log: Path, connect: Callable[[], None]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        if process.poll() is not None:
            raise Missing(f"a server has ended: {log.read_text(errors='replace')[-1000:]}")
        try:
            connect()
            return
        except (OSError, psycopg.OperationalError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
