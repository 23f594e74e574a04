"""An object store for a cluster on one machine: the first of these that can be had.

1. versitygw, a real S3 server, on the PATH or built once by Go;
2. the server of moto, from PyPI: it speaks S3, and keeps its objects in memory, enough to look at a cluster;
3. a directory.
"""

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.cluster.services import Missing, free_port, wait_until_served

BUILD = Path(__file__).parents[2] / "build"
_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
# The extra "server" of moto would bring all of AWS.
_MOTO = ("moto[s3]>=5,<6", "flask", "flask-cors")
_INSTALL_SECONDS = 600
_BUCKET = "posthouse"
_ACCESS_KEY, _SECRET_KEY = "posthouse", "posthouse-secret"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    url: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Credentials."""
    description: str


@contextmanager
def object_store(place: Path, store: str | None = None) -> Iterator[Objects]:
    """The first that can be had, or that of a name of `STORES`. Raises Missing."""
    for name, (find, serve) in _SERVERS.items():
        program = find() if store in (None, name) else None
        if program is not None:
            with serve(program, place) as objects:
                yield objects
            return
    if store not in (None, DIRECTORY):
        raise Missing(f"{store} cannot be installed here")
    directory = place / "objects"
    why = "" if store else "; no S3 server could be installed, neither versitygw (by Go) nor moto (from PyPI)"
    yield Objects(url=f"file://{directory}", description=f"objects in the directory {directory}{why}")


@contextmanager
def _serve_versitygw(program: Path, place: Path) -> Iterator[Objects]:
    port = free_port()
    buckets, metadata = place / "buckets", place / "metadata"
    (buckets / _BUCKET).mkdir(parents=True)
    metadata.mkdir()
    command: list[str | Path] = [
        *(program, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet"),
        *("posix", "--sidecar", metadata, buckets),
    ]
    keys = {"ROOT_ACCESS_KEY_ID": _ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": _SECRET_KEY}
    with _served(command, keys, place, port):
        yield _objects(port, "an S3 server (versitygw)")


@contextmanager
def _serve_moto(program: Path, place: Path) -> Iterator[Objects]:
    port = free_port()
    with _served([program, "-H", "127.0.0.1", "-p", str(port)], {}, place, port):
        bucket = urllib.request.Request(f"http://127.0.0.1:{port}/{_BUCKET}", method="PUT")
        urllib.request.urlopen(bucket, timeout=30).close()
        yield _objects(port, "an S3 server in memory (moto)")


@contextmanager
def _served(
    command: Sequence[str | Path], environment: Mapping[str, str], place: Path, port: int
) -> Iterator[None]:
    log = place / "s3.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        wait_until_served(process, log, lambda: socket.create_connection(("127.0.0.1", port), 5).close())
        yield
    finally:
        process.terminate()
        process.wait()


def _objects(port: int, server: str) -> Objects:
    return Objects(
        url=f"s3://{_BUCKET}/demo?endpoint=http://127.0.0.1:{port}&region=us-east-1&path_style=true",
        environment={"AWS_ACCESS_KEY_ID": _ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": _SECRET_KEY},
        description=f"{server} on 127.0.0.1:{port}, bucket {_BUCKET}",
    )


def _versitygw() -> Path | None:
    found = shutil.which("versitygw", path=f"{BUILD}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is not None:
        return Path(found)
    go = shutil.which("go")
    if go is None:
        return None
    print(f"building an S3 server once: go install {_VERSITYGW}", flush=True)
    BUILD.mkdir(exist_ok=True)
    return _installed(BUILD / "versitygw", [[go, "install", _VERSITYGW]], {"GOBIN": str(BUILD)})


def _moto() -> Path | None:
    """In an environment of its own: it has requirements that the broker does not share."""
    place = BUILD / "moto"
    program = place / "bin" / "moto_server"
    if program.exists():
        return program
    print(f"installing an S3 server once: pip install {' '.join(_MOTO)}", flush=True)
    pip: list[str | Path] = [
        place / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *_MOTO,
    ]
    return _installed(program, [[sys.executable, "-m", "venv", place], pip], {})


def _installed(
    program: Path, commands: Sequence[Sequence[str | Path]], environment: Mapping[str, str]
) -> Path | None:
    try:
        for command in commands:
            subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=_INSTALL_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        print(f"it could not be installed ({error})", flush=True)
        return None
    return program


_SERVERS = {"versitygw": (_versitygw, _serve_versitygw), "moto": (_moto, _serve_moto)}
DIRECTORY = "directory"
STORES = (*_SERVERS, DIRECTORY)
