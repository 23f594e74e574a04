"""The brokers that are compared: each started on a fresh directory, on loopback, with its own settings.

Only one of them runs at a time, so that nobody's housekeeping disturbs another's measurement.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from bench.processes import Served

POSTHOUSE, RABBITMQ = "Posthouse", "RabbitMQ"
_START_LIMIT = 60.0
_RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Not the one in the path, which insists on another user and on system directories."""


class Absent(Exception):
    """A peer that cannot be started here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    name: str
    start: Callable[[], AbstractContextManager[Served]]
    version: Callable[[], str]

    @property
    def product(self) -> str:
        """The name without the settings."""
        return self.name.partition(" ")[0]


@contextmanager
def posthouse() -> Iterator[Served]:
    with _directory() as directory:
        port, kafka = _free_ports(2)
        addresses = ("--kafka", f"127.0.0.1:{kafka}", "--amqp", f"127.0.0.1:{port}", "--admin", "off")
        command = [_own("posthouse"), "serve", "--data", str(directory / "data"), *addresses]
        # Installed software has its bytecode; a shell that forbids writing it would be measured instead.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        with _serving([*command, "--log-level", "warning"], port, directory, environment) as served:
            yield served


@contextmanager
def rabbitmq() -> Iterator[Served]:
    _require(str(_RABBITMQ))
    with _directory() as directory, _port_mapper():
        port, distribution = _free_ports(2)
        (directory / "plugins").write_text("[].\n")
        environment = {
            **os.environ,
            "HOME": str(directory),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_CONFIG_FILE": str(directory / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            # Then its script becomes the broker's process instead of waiting for it.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        with _serving([str(_RABBITMQ)], port, directory, environment) as served:
            yield served


def redis(sync: str) -> Callable[[], AbstractContextManager[Served]]:
    """With an append-only file that is synced `everysec`, or `always` before the answer."""

    @contextmanager
    def start() -> Iterator[Served]:
        with _directory() as directory:
            _require("redis-server")
            (port,) = _free_ports(1)
            options = {
                "bind": "127.0.0.1",
                "port": str(port),
                "dir": str(directory),
                "appendonly": "yes",
                "appendfsync": sync,
                "save": "",
                # A rewrite of the file in the background takes time and memory at moments that nobody chose.
                "auto-aof-rewrite-percentage": "0",
            }
            given = [part for name, value in options.items() for part in (f"--{name}", value)]
            with _serving(["redis-server", *given], port, directory, os.environ) as served:
                yield served

    return start


def free_memory() -> int:
    """Bytes that a broker could take without anybody being pushed out."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise LookupError("the system does not tell")


def _require(command: str) -> None:
    if shutil.which(command) is None:
        raise Absent(f"{command} is not installed")


def _own(command: str) -> str:
    return str(Path(sys.executable).with_name(command))


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _rabbitmq_version() -> str:
    return _printed("dpkg-query", "--show", "--showformat", "${Version}", "rabbitmq-server") or "unknown"


def _redis_version() -> str:
    return _printed("redis-server", "--version").partition("v=")[2].partition(" ")[0] or "unknown"


AMQP_PEERS = (
    Peer(name=POSTHOUSE, start=posthouse, version=lambda: version("posthouse")),
    Peer(name=RABBITMQ, start=rabbitmq, version=_rabbitmq_version),
)
REDIS_PEERS = (
    Peer(name="Redis everysec", start=redis("everysec"), version=_redis_version),
    Peer(name="Redis always", start=redis("always"), version=_redis_version),
)


@contextmanager
def _directory() -> Iterator[Path]:
    """Not in /tmp, which may be memory: the working directory is on the disk that is to be measured."""
    scratch = Path(".bench").absolute()
    scratch.mkdir(exist_ok=True)
    # What the one before has left in the page cache is not to be written on this one's time.
    os.sync()
    with tempfile.TemporaryDirectory(prefix="queues-", dir=scratch) as name:
        yield Path(name)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def _port_mapper() -> Iterator[None]:
    """Erlang starts one by itself where there is none, but on every interface."""
    own = None if _is_open(4369) else subprocess.Popen(["epmd", "-address", "127.0.0.1"])
    try:
        while own is not None and own.poll() is None and not _is_open(4369):
            time.sleep(0.02)
        yield
    finally:
        if own is not None:
            own.terminate()
            own.wait()


@contextmanager
def _serving(
    command: Sequence[str], port: int, directory: Path, environment: Mapping[str, str]
) -> Iterator[Served]:
    started = time.perf_counter()
    with (directory / "output").open("w+") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )
        try:
            while not _is_open(port):
                if process.poll() is not None:
                    output.seek(0)
                    raise Absent(f"it did not start: {_last_line(output.read())}")
                if time.perf_counter() - started > _START_LIMIT:
                    raise Absent(f"it did not start in {_START_LIMIT:.0f} s")
                time.sleep(0.02)
            yield Served(process.pid, f"127.0.0.1:{port}", time.perf_counter() - started)
        finally:
            _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """At once, with all that it started: its data is thrown away."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(text: str) -> str:
    lines = [line.strip(" │╭╮╰╯─") for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")


def _is_open(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0
