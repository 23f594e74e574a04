"""Spark reads the history of topics from objects and from brokers, on one machine and on hosts."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cluster.contenders import OBJECT, place_of
from bench.cluster.history_reads import History, reads
from bench.cluster.plan import Stage
from bench.processes import Served
from bench.scale.figures import Row
from bench.spark.sessions import MASTER, Setup, running
from bench.spark.workload import Shape, fill
from tests.consolidated import consolidate
from tests.spark.segments.hosts import BROKERS, WORKERS, Hosts, spark_hosts
from tests.spark.segments.spark_driver import spark_home
from tests.torture.network.namespaces import CannotMakeNamespaces

EXECUTORS = "local-cluster"
HOSTS = "a standalone cluster"
NOTE = f"""Objects are in the S3 server, topics have four partitions whose records are all in segments
(*consolidated*), and Spark reads all of them into `noop`: on `{MASTER}`, on `{EXECUTORS}` (two executors as
processes of their own), and on {HOSTS}, where database, object store, {len(BROKERS)} brokers, driver
and {len(WORKERS)} workers are each in a network namespace of its own. *Signed addresses* come with the
manifest of a broker; *own credentials* is the option `objectStore`; *broker* is `readObjects=false`. They
take turns, after a round that does not count, in which rows are counted. CPU is that of all broker processes
while a query runs, without what idle brokers use in the same time. A topic is larger than the caches of the
brokers, which have to get history from the object store, too."""
_BATCH_BYTES = 100_000
_VALUE_BYTES = (1024, 100)
_CACHE_BYTES = 64 << 20
_ENVIRONMENT = {"AWS_EC2_METADATA_DISABLED": "true"}


def history(stage: Stage) -> Iterator[Row]:
    if stage.servers.store is None:
        stage.display.say("  left out: there is no S3 server")
        return
    yield from _on_one_machine(stage)
    try:
        yield from _on_hosts(stage)
    except CannotMakeNamespaces as error:
        stage.display.say(f"  {HOSTS}: left out, network namespaces cannot be made: {error}")


def _shapes(stage: Stage) -> list[Shape]:
    return [
        Shape(value_bytes=size, rows=stage.plan.history_bytes // size, batch_bytes=_BATCH_BYTES)
        for size in _VALUE_BYTES
    ]


def _on_one_machine(stage: Stage) -> Iterator[Row]:
    with place_of(OBJECT, stage.servers) as place:
        assert place.database is not None
        directory = place.directory.resolve()
        home = {"SPARK_HOME": str(spark_home(directory))}
        setups = {
            MASTER: Setup(name="local", environment=_ENVIRONMENT),
            EXECUTORS: Setup(
                name="executors", master="local-cluster[2,1,1024]", environment=_ENVIRONMENT | home
            ),
        }
        broker = place.broker()
        try:
            served = Served(os.getpid(), broker.address, 0.0)
            topics = [fill(served, shape, directory) for shape in _shapes(stage)]
            consolidate(place.database, place.objects)
            histories = [
                History(
                    filled=each,
                    bootstrap=broker.address,
                    objects=place.objects,
                    cpu_seconds=broker.cpu_seconds,
                )
                for each in topics
            ]
            for where, setup in setups.items():
                stage.display.say(f"  {where}")
                with running(setup, directory) as session:
                    for each in histories:
                        yield from reads(each, session, where, stage.plan.rounds)
        finally:
            broker.kill()


def _on_hosts(stage: Stage) -> Iterator[Row]:
    stage.display.say(f"  {HOSTS}")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(dir=stage.servers.directory))).resolve()
        directory.chmod(0o755)  # PostgreSQL runs as another user
        hosts = stack.enter_context(spark_hosts(directory, directory, cache_bytes=_CACHE_BYTES))
        environment = _ENVIRONMENT | {"SPARK_HOME": str(spark_home(directory))}
        setup = Setup(name="hosts", master=hosts.master, environment=environment, conf=hosts.conf)
        histories = _filled(stage, hosts, directory)
        with hosts.at_driver():
            session = stack.enter_context(running(setup, directory))
        for each in histories:
            yield from reads(each, session, HOSTS, stage.plan.rounds)


def _filled(stage: Stage, hosts: Hosts, directory: Path) -> list[History]:
    served = Served(os.getpid(), hosts.bootstrap.partition(",")[0], 0.0)
    with hosts.at_driver():
        topics = [fill(served, shape, directory) for shape in _shapes(stage)]
    hosts.consolidate()
    return [
        History(filled=each, bootstrap=hosts.bootstrap, objects=hosts.objects, cpu_seconds=hosts.cpu_seconds)
        for each in topics
    ]
