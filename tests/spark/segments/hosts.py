"""A standalone Spark cluster: database, object store, brokers, driver and workers on hosts of their own."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from posthouse.settings import Address
from posthouse.spark.java import find_java
from tests.consolidated import consolidate
from tests.postgres import PostgresServer
from tests.s3 import S3_CREDENTIALS, S3Server
from tests.served import ServedBroker
from tests.spark.segments.spark_driver import spark_home
from tests.torture.network.namespaces import Network, inside

DATABASE, STORE, DRIVER = "database", "store", "driver"
BROKERS, WORKERS = ("a", "b"), ("worker1", "worker2")
_KAFKA, _PEER, _DATABASE, _STORE, _MASTER = 9092, 9192, 5432, 9000, 7077


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    network: Network
    brokers: Mapping[str, ServedBroker]
    database: str
    objects: str
    master: str
    """Where the master of the Spark cluster listens."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.network.address(name)}:{_KAFKA}" for name in BROKERS)

    @property
    def conf(self) -> dict[str, str]:
        """Settings of a Spark application whose driver is on its host, with an executor on each worker."""
        address = self.network.address(DRIVER)
        return {
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.executor.memory": "700m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.cores.max": str(len(WORKERS)),
        }

    @contextmanager
    def at_driver(self) -> Iterator[None]:
        """The calling thread, and the processes that it starts, are on the host of the driver."""
        with inside(self.network.namespace(DRIVER)):
            yield

    def consolidate(self) -> None:
        """All that was written so far goes into segments. By a process of its own: the library that stores
        objects has threads, which stay in the namespace in which the first of them was started."""
        work = multiprocessing.get_context("spawn").Process(
            target=consolidate, args=(self.database, self.objects)
        )
        with self.at_driver(), _credentials():
            work.start()
        work.join()
        if work.exitcode:
            raise RuntimeError("not everything could be consolidated")

    def cpu_seconds(self) -> float:
        """Of all brokers."""
        return sum(_cpu_seconds(each.process.pid) for each in self.brokers.values())

    def cut(self, one: str, other: str) -> None:
        """In both directions."""
        self.network.cut(one, other)
        self.network.cut(other, one)


def _cpu_seconds(pid: int) -> float:
    """`ip netns exec` becomes the process that it starts."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _credentials() -> Iterator[None]:
    """For the object store, in the environment of processes that are started. Workers have none."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in S3_CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@contextmanager
def spark_hosts(directory: Path, place: Path, *, cache_bytes: int) -> Iterator[Hosts]:
    """Logs and data of brokers and Spark are in `directory`, the database and the objects in `place`, which
    any user must be able to enter. Raises CannotMakeNamespaces."""
    with ExitStack() as stack:
        network = Network([DATABASE, STORE, *BROKERS, DRIVER, *WORKERS])
        network.open()
        stack.callback(network.close)
        database = _database(stack, network, place)
        objects = _store(stack, network, place)
        with _credentials():
            brokers = {
                name: _broker(stack, network, directory, name, (database, objects), cache_bytes)
                for name in BROKERS
            }
        master = _spark_cluster(stack, network, directory)
        yield Hosts(network=network, brokers=brokers, database=database, objects=objects, master=master)


def _database(stack: ExitStack, network: Network, place: Path) -> str:
    server = PostgresServer(
        (place / "postgres").resolve(), _DATABASE, ("fsync=off",), host=network.address(DATABASE)
    )
    server.init()
    with inside(network.namespace(DATABASE)):
        server.start()
        stack.callback(server.kill)
        server.execute("CREATE DATABASE posthouse")
    return server.url("posthouse")


def _store(stack: ExitStack, network: Network, place: Path) -> str:
    directory = (place / "hosts-s3").resolve()
    directory.mkdir()
    server = S3Server(directory, _STORE, host=network.address(STORE))
    with inside(network.namespace(STORE)):
        server.start()
    stack.callback(server.kill)
    return server.url("objects")


def _broker(
    stack: ExitStack,
    network: Network,
    directory: Path,
    name: str,
    storage: tuple[str, str],
    cache_bytes: int,
) -> ServedBroker:
    host = network.address(name)
    database, objects = storage
    broker = ServedBroker(
        directory / name,
        wrapper=("ip", "netns", "exec", network.namespace(name)),
        environment={"POSTHOUSE_ALLOW_OPEN_NETWORK": "true"},
        database=database,
        objects=objects,
        broker_name=name,
        kafka=Address(host, _KAFKA),
        peer=Address(host, _PEER),
        amqp="off",
        admin="off",
        cache_bytes=cache_bytes,
    )
    stack.callback(broker.kill)
    return broker


def _spark_cluster(stack: ExitStack, network: Network, directory: Path) -> str:
    """Its address."""
    environment = os.environ | {
        "JAVA_HOME": str(find_java(os.environ).home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    program = (spark_home(directory) / "bin" / "spark-class").absolute()

    def start(host: str, *arguments: str) -> None:
        with inside(network.namespace(host)), (directory / f"{host}.log").open("w") as log:
            process = subprocess.Popen(
                [str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment | {"SPARK_LOCAL_IP": network.address(host)},
                cwd=directory,
            )
        stack.callback(process.wait)
        stack.callback(process.kill)

    address = network.address(DRIVER)
    start(
        *(DRIVER, "org.apache.spark.deploy.master.Master"),
        *("--host", address, "--port", str(_MASTER), "--webui-port", "0"),
    )
    for worker in WORKERS:
        start(
            *(worker, "org.apache.spark.deploy.worker.Worker", f"spark://{address}:{_MASTER}"),
            *("--host", network.address(worker), "--cores", "1", "--memory", "1g", "--webui-port", "0"),
            *("--work-dir", str((directory / "work" / worker).absolute())),
        )
    return f"spark://{address}:{_MASTER}"
