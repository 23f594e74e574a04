"""Spark sessions as processes of their own, because most settings are fixed once a JVM runs.

A process waits for functions to call with its session, one at a time, and is idle otherwise. So sessions can
take turns: whose it is, is decided outside.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, cast

from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")

MASTER = "local[2]"
HEAP = "2g"
_START_SECONDS = 300
_CALL_SECONDS = 900

_BARE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""Nothing of this is about speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    name: str
    recommended: bool = True
    """With the settings that `posthouse.spark.session` recommends, or as Spark comes."""
    master: str = MASTER
    environment: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)


class SessionFailed(Exception):
    """The session could not be made, or a call failed; the text says why."""


class Session:
    def __init__(self, setup: Setup, connection: Connection, log: Path) -> None:
        self.setup = setup
        self.log = log
        self._connection = connection

    def call(self, work: Callable[Concatenate[SparkSession, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work` with the session of that process as its first argument; importable by name."""
        self._connection.send((work, args, kwargs))
        return cast("T", self._answer(_CALL_SECONDS))

    def wait_for_start(self) -> None:
        self._answer(_START_SECONDS)

    def _answer(self, seconds: float) -> object:
        if not self._connection.poll(seconds):
            raise SessionFailed(
                f"Spark ({self.setup.name}) did not answer in {seconds:.0f} s; see {self.log}"
            )
        try:
            problem, result = self._connection.recv()
        except EOFError:
            raise SessionFailed(f"Spark ({self.setup.name}) has ended; see {self.log}") from None
        if problem:
            raise SessionFailed(problem)
        return cast("object", result)


@contextmanager
def running(setup: Setup, directory: Path) -> Iterator[Session]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    log = directory / f"{setup.name}.log"
    process = context.Process(target=_serve, args=(theirs, setup, log), daemon=False)
    process.start()
    theirs.close()
    try:
        session = Session(setup, ours, log)
        session.wait_for_start()
        yield session
    finally:
        ours.close()
        process.join(60)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(connection: Connection, setup: Setup, log: Path) -> None:
    """The process: its output, and that of Java, goes to the log."""
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        spark = _make(setup)
    except Exception as error:  # noqa: BLE001  whoever started it is told
        connection.send((_sentence(error), None))
        return
    connection.send(("", None))
    while True:
        try:
            work, args, kwargs = connection.recv()
        except EOFError:
            break
        try:
            result, problem = work(spark, *args, **kwargs), ""
        except Exception as error:  # noqa: BLE001  likewise
            result, problem = None, _sentence(error)
        connection.send((problem, result))
    spark.stop()


def _make(setup: Setup) -> SparkSession:
    root = str(Path.cwd())
    os.environ |= setup.environment
    # Workers import the ready-made source from here.
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    conf = {"spark.driver.memory": HEAP, "spark.sql.streaming.numRecentProgressUpdates": "1000", **setup.conf}
    if setup.recommended:
        from posthouse.spark.session import session

        spark = session("posthouse bench", master=setup.master, conf=conf)
    else:
        spark = _as_it_comes(setup.master, conf)
    from bench.spark.ready import ReadyMade, ReadyMadeStream

    for source in (ReadyMade, ReadyMadeStream):
        spark.dataSource.register(source)
    return spark


def _as_it_comes(master: str, conf: Mapping[str, str]) -> SparkSession:
    from posthouse.spark import register
    from posthouse.spark.java import find_java

    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("posthouse bench").master(master)
    for key, value in {**_BARE, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _sentence(error: Exception) -> str:
    """The first line that says something; Java's have their whole stack behind it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
