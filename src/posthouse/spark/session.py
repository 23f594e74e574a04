"""A SparkSession for Posthouse: finds Java, uses this Python for workers, and sets the needed options.

    spark = session("orders")                                   # on this machine, all cores
    spark = session("orders", master="spark://host:7077")       # the same on a cluster

A session made in another way needs `recommended_settings` and `posthouse.spark.register`.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from posthouse.spark.home import swift_home
from posthouse.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A task whose Python worker dies is retried; with plain local[*] the query would fail.
DEFAULT_MASTER = "local[*,4]"

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Otherwise Spark measures every row that it sends to Python, which costs more than sending it. Batches
    # are limited by rows instead (spark.sql.execution.arrow.maxRecordsPerBatch).
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647b",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Only if driver and executors are on this machine, with the same Python and disk.
_LOCAL = {
    # The path of such a socket is limited to about 100 characters, which temporary directories of clusters
    # exceed.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "posthouse.spark.daemon",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# Checkpoints on a local disk: plain files and rename, without a second file for checksums and without
# starting a program for permissions. Other locations (s3a://, hdfs://) keep Spark's default.
_LOCAL_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


def is_local(master: str) -> bool:
    """Whether the executors run on this machine."""
    return master == "local" or master.startswith(("local[", "local-cluster["))


def recommended_settings(
    master: str = DEFAULT_MASTER, *, local_checkpoints: bool | None = None
) -> dict[str, str]:
    """The settings for a master. Checkpoints are assumed to be local if the master is, unless given."""
    settings = dict(_ALWAYS)
    if is_local(master):
        settings |= _LOCAL
        # The default of 200 is for a cluster: each is a task and a few files in every micro-batch.
        settings["spark.sql.shuffle.partitions"] = str(max(2, os.cpu_count() or 2))
    if is_local(master) if local_checkpoints is None else local_checkpoints:
        settings |= _LOCAL_CHECKPOINTS
    return settings


def session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    local_checkpoints: bool | None = None,
) -> "SparkSession":
    """The session of this process, created if there is none; `format("posthouse")` is registered.

    `conf` overrides our settings. The default master is that of spark-submit, or this machine. Sets JAVA_HOME
    and PYSPARK_PYTHON of this process if they are needed and missing.
    """
    from pyspark.sql import SparkSession

    from posthouse.spark import register

    given = dict(conf or {})
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    chosen = master or given.get("spark.master") or ("" if submitted else DEFAULT_MASTER)
    settings = recommended_settings(chosen, local_checkpoints=local_checkpoints)
    if not submitted:
        _prepare_process(chosen)
        options = {"spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"}
        # A user's directory of settings decides about logging.
        if not options & set(given) and "SPARK_CONF_DIR" not in os.environ:
            settings["spark.driver.extraJavaOptions"] = quiet_logging()
    builder = SparkSession.builder.appName(name)
    if chosen:
        builder = builder.master(chosen)
    for key, value in {**settings, **given}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


@contextmanager
def logging_into(file: Path) -> Iterator[None]:
    """Redirect Spark's output to `file`, if Spark is started inside the block.

    The JVM and every Python process that it starts inherit stderr. PySpark's workers write tracebacks there
    even without an error, for example when a query is stopped.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)


def _prepare_process(master: str) -> None:
    """Set what the JVM and the workers inherit; it has no effect once the JVM runs."""
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        os.environ["JAVA_HOME"] = str(find_java().home)
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        home = swift_home() if os.environ["PYSPARK_PYTHON"] == sys.executable else None
        if home is not None:
            os.environ.setdefault("SPARK_HOME", str(home))


def quiet_logging() -> str:
    """The Java option that reduces Spark's log output to warnings that matter."""
    return f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
