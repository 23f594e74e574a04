"""The ways in which users come by a Spark session; POSTHOUSE_SPARK_SESSION chooses one for the tests.

    tuned           posthouse.spark.session.session(), the default
    plain           SparkSession.builder.getOrCreate() with nothing set
    local-cluster   the same with executors in processes of their own
    connect         the same through Spark Connect

A plain session may also be that of spark-submit: see tests/spark/submitted.py. The master is no setting of
these sessions: it is given on the command line, as for spark-submit.
"""

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

from pyspark.sql import SparkSession

KIND = os.environ.get("POSTHOUSE_SPARK_SESSION", "tuned")
# Two cores; a task may fail twice before its job does.
LOCAL = "local[2,3]"
CLUSTER = "local-cluster[2,1,1024]"


def make_session() -> SparkSession:
    if KIND == "tuned":
        return _tuned()
    made = _plain()
    # Of the queries, not of the session: the 200 tasks of each shuffle would take minutes and show nothing.
    made.conf.set("spark.sql.shuffle.partitions", "2")
    return made


def _plain() -> SparkSession:
    prepare_shell(os.environ)
    if KIND == "connect":
        return SparkSession.builder.remote(LOCAL).getOrCreate()
    if KIND not in ("plain", "local-cluster"):
        raise ValueError(f"there is no session {KIND!r}")
    submitted = SparkSession.getActiveSession()
    if submitted is not None:
        return submitted
    master = CLUSTER if KIND == "local-cluster" else LOCAL
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master {master} pyspark-shell"
    try:
        return SparkSession.builder.getOrCreate()
    finally:
        del os.environ["PYSPARK_SUBMIT_ARGS"]  # programs that a test starts have sessions of their own


def prepare_shell(environment: MutableMapping[str, str], python: Path | None = None) -> None:
    """What an activated virtual environment and an installed Java give to a program that is not ours."""
    from posthouse.spark.java import find_java

    programs = str((python or Path(sys.executable)).parent)
    path = environment.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != programs:
        environment["PATH"] = os.pathsep.join([programs, path])
    environment["JAVA_HOME"] = str(find_java(environment).home)


def _tuned() -> SparkSession:
    from posthouse.spark.session import session

    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}
    return session("posthouse tests", master=LOCAL, conf=conf)
