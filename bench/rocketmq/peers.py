"""The brokers that are compared, each on a fresh directory.

Both use the ports that RocketMQ's users know, and upstream cannot bind its gRPC port to loopback: so all of
this runs in a network namespace of its own (`__main__`).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.processes import Served

POSTHOUSE: Final = "Posthouse"
ROCKETMQ: Final = "RocketMQ"
ADDRESS: Final = "127.0.0.1:9876"
ENDPOINTS: Final = "127.0.0.1:8081"
SERVER_VERSION: Final = "5.5.0"
_START_SECONDS: Final = 90.0
_STORE_FILE_BYTES: Final = 128 * 1024 * 1024
_OPENED: Final = (
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/jdk.internal.ref",
    "java.base/java.util",
    "java.base/java.lang",
)
"""Packages of the JDK that the server uses beside its interfaces."""


class Failed(Exception):
    """A broker that does not start, or a load that was not done."""


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    start: Callable[[Path], AbstractContextManager[Served]]
    """Given the directory with the jars of upstream."""


@contextmanager
def posthouse(_: Path) -> Iterator[Served]:
    with _directory() as directory:
        command = [sys.executable, "-m", "posthouse.cli.main", "serve", "--data", str(directory / "data")]
        command += ["--rocketmq", ADDRESS, "--rocketmq-grpc", ENDPOINTS, "--kafka", "127.0.0.1:9092"]
        command += ["--amqp", "off", "--admin", "off", "--log-level", "warning"]
        with _running(command, directory, "posthouse") as process:
            yield _ready(process, (9876, 8081), directory / "posthouse.log")


@contextmanager
def rocketmq(jars: Path, **proxy_settings: object) -> Iterator[Served]:
    """Name server, and broker and proxy in one process; memory and processor time are those of the latter."""
    with _directory() as directory:
        (directory / "conf").mkdir()
        (directory / "conf" / "broker.conf").write_text(_broker_settings(directory))
        proxy = {"rocketMQClusterName": "DefaultCluster", "namesrvAddr": ADDRESS, "proxyMode": "local"}
        (directory / "conf" / "rmq-proxy.json").write_text(json.dumps(proxy | proxy_settings))
        names = _java(
            jars, directory, "org.apache.rocketmq.namesrv.NamesrvStartup", ("-Xms256m", "-Xmx256m"), ()
        )
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        memory = ("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g")
        files = ("-bc", str(directory / "conf/broker.conf"), "-pc", str(directory / "conf/rmq-proxy.json"))
        broker = _java(jars, directory, main, memory, ("-pm", "local", "-n", ADDRESS, *files))
        with _running(names, directory, "namesrv") as process:
            _ready(process, (9876,), directory / "namesrv.log")
            with _running(broker, directory, "broker") as process:
                yield _ready(process, (10911, 8081), directory / "broker.log")


PEERS: Final = (Peer(POSTHOUSE, posthouse), Peer(ROCKETMQ, rocketmq))


def in_namespace(command: Sequence[str]) -> list[str]:
    """The command that runs this one in an empty network but for loopback. All that it has started ends with
    it, however it ends."""
    as_root = () if os.geteuid() == 0 else ("--map-root-user",)
    apart = ("--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    return ["unshare", *as_root, *apart, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]


def anonymous_mib(pid: int) -> float:
    """Without mapped files, which the kernel can drop at any time."""
    return _status_mib(pid, "RssAnon:")


def peak_mib(pid: int) -> float:
    return _status_mib(pid, "VmHWM:")


def _status_mib(pid: int, field: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise LookupError("the process has ended")


def _broker_settings(directory: Path) -> str:
    settings = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "storePathRootDir": directory / "store",
        "storePathCommitLog": directory / "store" / "commitlog",
        "mappedFileSizeCommitLog": _STORE_FILE_BYTES,
        "enablePropertyFilter": "true",
        "recallMessageEnable": "true",
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _java(jars: Path, home: Path, main: str, memory: Sequence[str], arguments: Sequence[str]) -> list[str]:
    opened = [f"--add-{kind}={each}=ALL-UNNAMED" for each in _OPENED for kind in ("opens", "exports")]
    return ["java", *memory, *opened, f"-Duser.home={home}", "-cp", f"{jars}/*", main, *arguments]


@contextmanager
def _directory() -> Iterator[Path]:
    """Not in /tmp, which may be memory: the working directory is on the disk that is to be measured."""
    scratch = Path(".bench").absolute()
    scratch.mkdir(exist_ok=True)
    os.sync()  # what the one before has left in the page cache is not to be written on this one's time
    with tempfile.TemporaryDirectory(prefix="rocketmq-", dir=scratch) as name:
        yield Path(name)


@contextmanager
def _running(command: Sequence[str], directory: Path, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    # Installed software has its bytecode; a shell that forbids writing it would be measured instead.
    left_out = ("PYTHONDONTWRITEBYTECODE", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    environment = {key: value for key, value in os.environ.items() if key not in left_out}
    environment["ROCKETMQ_HOME"] = str(directory)
    with (directory / f"{name}.log").open("w") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its data is thrown away
        process.wait()


def _ready(process: "subprocess.Popen[bytes]", ports: Sequence[int], log: Path) -> Served:
    started = time.perf_counter()
    for port in ports:
        while not _is_open(port):
            if process.poll() is not None:
                raise Failed(f"it did not start: {log.read_text()[-500:]}")
            if time.perf_counter() - started > _START_SECONDS:
                raise Failed(
                    f"port {port} is not open after {_START_SECONDS:.0f} s: {log.read_text()[-500:]}"
                )
            time.sleep(0.05)
    return Served(process.pid, ADDRESS, time.perf_counter() - started)


def _is_open(port: int) -> bool:
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", port)) == 0
