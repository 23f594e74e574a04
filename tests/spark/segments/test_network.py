"""A standalone Spark cluster: database, object store, brokers, driver and workers on hosts of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from posthouse.client import Client
from posthouse.settings import Address
from posthouse.spark.java import find_java
from tests.consolidated import consolidate
from tests.directories import IN_MEMORY
from tests.postgres import PostgresServer, cluster_only
from tests.s3 import S3_CREDENTIALS, S3Server, need_s3
from tests.served import ServedBroker
from tests.spark.segments.spark_driver import EXECUTORS, SparkDriver, spark_driver, spark_home
from tests.torture.network.namespaces import Network, inside, why_not

pytestmark = [cluster_only, pytest.mark.xdist_group("spark-cluster"), pytest.mark.timeout(900)]

DATABASE, STORE, DRIVER = "database", "store", "driver"
BROKERS, WORKERS = ("a", "b"), ("worker1", "worker2")
ROWS, TAIL = 100_000, 100
VALUE = b"x" * 300
PIECES = {"minPartitions": "8"}
HISTORY = {"endingOffsets": json.dumps({"orders": {"0": ROWS // 2, "1": ROWS // 2}})}
KAFKA = 9092


@dataclass(frozen=True, slots=True)
class Hosts:
    network: Network
    brokers: dict[str, ServedBroker]
    spark: SparkDriver

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
def network() -> Iterator[Network]:
    if (reason := why_not()) is not None:
        pytest.skip(f"network namespaces cannot be made here: {reason}")
    made = Network([DATABASE, STORE, *BROKERS, DRIVER, *WORKERS])
    made.open()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    need_s3()
    with ExitStack() as stack:
        made = stack.enter_context(network())
        place = Path(stack.enter_context(TemporaryDirectory(dir=IN_MEMORY, prefix="posthouse-net-")))
        place.chmod(0o755)  # PostgreSQL runs as another user
        database = _database(stack, made, place)
        objects = _store(stack, made, place)
        with pytest.MonkeyPatch.context() as of_brokers:
            for name, value in (S3_CREDENTIALS | {"POSTHOUSE_ALLOW_OPEN_NETWORK": "true"}).items():
                of_brokers.setenv(name, value)
            brokers = {name: _broker(stack, made, tmp_path, name, database, objects) for name in BROKERS}
            bootstrap = ",".join(f"{made.address(name)}:{KAFKA}" for name in BROKERS)
            with inside(made.namespace(DRIVER)):
                _fill(bootstrap, ROWS)
                consolidate(database, objects)
                _fill(bootstrap, TAIL)
        master = _spark_cluster(stack, made, tmp_path)
        conf = {
            "spark.driver.host": made.address(DRIVER),
            "spark.driver.bindAddress": made.address(DRIVER),
            "spark.executor.memory": "700m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.cores.max": str(len(WORKERS)),
        }
        with inside(made.namespace(DRIVER)):
            spark = stack.enter_context(spark_driver(master, bootstrap, tmp_path, conf))
        yield Hosts(made, brokers, spark)


def _database(stack: ExitStack, made: Network, place: Path) -> str:
    server = PostgresServer(place / "postgres", 5432, ("fsync=off",), host=made.address(DATABASE))
    server.init()
    with inside(made.namespace(DATABASE)):
        server.start()
        stack.callback(server.kill)
        server.execute("CREATE DATABASE posthouse")
    return server.url("posthouse")


def _store(stack: ExitStack, made: Network, place: Path) -> str:
    (place / "s3").mkdir()
    server = S3Server(place / "s3", 9000, host=made.address(STORE))
    with inside(made.namespace(STORE)):
        server.start()
    stack.callback(server.kill)
    return server.url("objects")


def _broker(
    stack: ExitStack, made: Network, place: Path, name: str, database: str, objects: str
) -> ServedBroker:
    host = made.address(name)
    broker = ServedBroker(
        place / name,
        wrapper=("ip", "netns", "exec", made.namespace(name)),
        database=database,
        objects=objects,
        broker_name=name,
        kafka=Address(host, KAFKA),
        peer=Address(host, 9192),
        amqp="off",
        admin="off",
        cache_bytes=16 << 20,
    )
    stack.callback(broker.kill)
    return broker


def _fill(bootstrap: str, rows: int) -> None:
    with Client(bootstrap) as client:
        if "orders" not in [each.name for each in client.topics()]:
            client.create_topic("orders", partitions=2)
        info = client.topic("orders")
        for partition in range(info.partitions):
            with client.producer("orders") as producer:
                for number in range(rows // 2):
                    producer.send(VALUE, key=b"%d" % number, partition=partition)


def _spark_cluster(stack: ExitStack, made: Network, place: Path) -> str:
    """Its address. Workers have no credentials for the object store."""
    environment = os.environ | {
        "JAVA_HOME": str(find_java(os.environ).home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
    }
    program = spark_home(place) / "bin" / "spark-class"

    def start(host: str, *arguments: str) -> None:
        with inside(made.namespace(host)), (place / f"{host}.log").open("w") as log:
            process = subprocess.Popen(
                [str(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment | {"SPARK_LOCAL_IP": made.address(host)},
                cwd=place,
            )
        stack.callback(process.wait)
        stack.callback(process.kill)

    address, port = made.address(DRIVER), "7077"
    start(
        *(DRIVER, "org.apache.spark.deploy.master.Master"),
        *("--host", address, "--port", port, "--webui-port", "0"),
    )
    for worker in WORKERS:
        start(
            *(worker, "org.apache.spark.deploy.worker.Worker", f"spark://{address}:{port}"),
            *("--host", made.address(worker), "--cores", "1", "--memory", "1g", "--webui-port", "0"),
            *("--work-dir", str(place / "work" / worker)),
        )
    return f"spark://{address}:{port}"


def test_objects_over_a_network(hosts: Hosts) -> None:
    spark = hosts.spark
    assert len(spark.call(EXECUTORS, **PIECES)) == len(WORKERS)
    expected = spark.read(readObjects="false", **PIECES)
    assert expected["rows"] == ROWS + TAIL

    before = hosts.cpu_seconds()
    _same(expected, spark.read(readObjects="false", **PIECES))
    by_broker = hosts.cpu_seconds() - before
    before = hosts.cpu_seconds()
    _same(expected, spark.read(**PIECES))
    by_objects = hosts.cpu_seconds() - before
    assert by_objects < by_broker / 2, f"{by_objects:.2f} s of CPU instead of {by_broker:.2f} s"
    assert "instead of an object" not in spark.warnings

    # Executors that reach no broker read history all the same.
    history = spark.read(readObjects="false", **HISTORY)
    for worker in WORKERS:
        for broker in BROKERS:
            hosts.cut(worker, broker)
    _same(history, spark.read(**PIECES, **HISTORY))
    assert "instead of an object" not in spark.warnings
    hosts.network.heal()

    # A worker that does not reach the store reads from brokers.
    hosts.cut(WORKERS[0], STORE)
    _same(expected, spark.read(**PIECES))
    assert "instead of an object" in spark.warnings
    hosts.network.heal()

    # One broker is enough, also while no other one coordinates.
    hosts.brokers[BROKERS[0]].kill()
    _same(expected, spark.read(**PIECES))


def _same(expected: dict[str, Any], found: dict[str, Any]) -> None:
    assert (found["rows"], found["digest"]) == (expected["rows"], expected["digest"])
