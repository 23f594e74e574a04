"""Projects of Spark Declarative Pipelines: Spark runs them with its own program; this module prepares it.

Spark needs its catalog on disk; otherwise the second run would fail on the tables of the first one. Both
settings have to be in a file that Spark reads at the start, so one is written, in the project, unless the
project or the environment has its own.
"""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

from posthouse.spark.errors import SparkError
from posthouse.spark.home import swift_home
from posthouse.spark.java import find_java
from posthouse.spark.pipelines.programs import Program
from posthouse.spark.session import quiet_logging

_NEEDED = ("grpc", "grpc_status", "google.rpc", "pandas", "yaml")


class DeclarativeFailed(SparkError):
    """Spark's program for declarative pipelines ended with an error."""


def run_declared(
    program: Program, *, bootstrap: str, master: str | None, arguments: tuple[str, ...] = ()
) -> None:
    """Run it until it ends. The project finds the broker in the variable POSTHOUSE_BOOTSTRAP."""
    missing = [name for name in _NEEDED if not _can_import(name)]
    if missing:
        raise DeclarativeFailed(
            f"declarative pipelines need more packages ({', '.join(missing)}); "
            "install them with 'pip install \"pyspark[pipelines]\"'"
        )
    directory = program.file.resolve().parent
    command = [
        "bash",
        str(_spark_home() / "bin" / "spark-pipelines"),
        "--remote",
        master or program.master or "local[*]",
        "run",
        "--spec",
        str(program.file.resolve()),
        *arguments,
    ]
    process = subprocess.Popen(command, cwd=directory, env=_environment(program, directory, bootstrap))
    # Signals are forwarded: Spark's program ends in its own way, and then this process does.
    before = {
        number: signal.signal(number, lambda number, _: process.send_signal(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if status > 0:
        raise DeclarativeFailed(f"the pipeline {program.name!r} failed; see above for the reason")


def _environment(program: Program, directory: Path, bootstrap: str) -> dict[str, str]:
    environment = dict(os.environ)
    environment["JAVA_HOME"] = str(find_java().home)
    environment["SPARK_HOME"] = str(_spark_home())
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment["POSTHOUSE_BOOTSTRAP"] = bootstrap
    if "SPARK_CONF_DIR" not in environment:
        conf = directory / "conf"
        if not (conf / "spark-defaults.conf").is_file():
            conf = _written_conf(program)
        environment["SPARK_CONF_DIR"] = str(conf)
    return environment


def _written_conf(program: Program) -> Path:
    storage = Path(program.storage)
    conf = storage / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(storage / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={storage / 'metastore'};create=true"
        ),
        "spark.driver.extraJavaOptions": (
            f"-Dderby.stream.error.file={storage / 'derby.log'} {quiet_logging()}"
        ),
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        **program.spark,
    }
    lines = [f"{key} {value}" for key, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return conf


def _spark_home() -> Path:
    import pyspark

    return swift_home() or Path(pyspark.__file__).parent


def _can_import(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
