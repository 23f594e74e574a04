"""What a cluster stands on: a PostgreSQL server from the system's packages, and an S3 server, on loopback."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

BUILD = Path(__file__).parents[2] / "build"
_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@latest"
_SERVER_USER = "postgres"
_START_SECONDS = 60
_INSTALL_SECONDS = 600
_BUCKET = "posthouse"
_ACCESS_KEY, _SECRET_KEY = "posthouse", "posthouse-secret"


class Missing(Exception):
    """Something has to be installed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Credentials."""
    description: str


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
        _wait(process, place / "postgres.log", lambda: psycopg.connect(url, connect_timeout=5).close())
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


@contextmanager
def object_store(place: Path) -> Iterator[Objects]:
    """A real S3 server where there is one or Go can build it; otherwise a directory."""
    program = _versitygw()
    if program is None:
        directory = place / "objects"
        yield Objects(
            url=f"file://{directory}",
            description=f"objects in the directory {directory}: there is no S3 server (versitygw), and no Go "
            "to build it",
        )
        return
    port = free_port()
    buckets, metadata = place / "buckets", place / "metadata"
    (buckets / _BUCKET).mkdir(parents=True)
    metadata.mkdir()
    command: list[str | Path] = [
        *(program, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"),
        *("posix", "--sidecar", metadata, buckets),
    ]
    keys = {"ROOT_ACCESS_KEY_ID": _ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": _SECRET_KEY}
    with (place / "s3.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=os.environ | keys, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait(process, place / "s3.log", lambda: socket.create_connection(("127.0.0.1", port), 5).close())
        yield Objects(
            url=f"s3://{_BUCKET}/demo?endpoint=http://127.0.0.1:{port}&region=us-east-1&path_style=true",
            environment={"AWS_ACCESS_KEY_ID": _ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": _SECRET_KEY},
            description=f"an S3 server (versitygw) on 127.0.0.1:{port}, bucket {_BUCKET}",
        )
    finally:
        process.terminate()
        process.wait()


def _versitygw() -> Path | None:
    found = shutil.which("versitygw", path=f"{BUILD}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is not None:
        return Path(found)
    go = shutil.which("go")
    if go is None:
        return None
    print(f"building an S3 server once: go install {_VERSITYGW}", flush=True)
    BUILD.mkdir(exist_ok=True)
    environment = os.environ | {"GOBIN": str(BUILD)}
    try:
        subprocess.run([go, "install", _VERSITYGW], env=environment, check=True, timeout=_INSTALL_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"it could not be built ({error})", flush=True)
        return None
    return BUILD / "versitygw"


def _wait(process: "subprocess.Popen[bytes]", log: Path, connect: Callable[[], None]) -> None:
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
