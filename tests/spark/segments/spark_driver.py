"""The driver of a Spark cluster as a process that a test talks to."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from posthouse.spark.java import find_java

PROGRAM = Path(__file__).with_name("cluster_program.py")
LOG = "driver.log"
STREAM, READ, EXECUTORS, ARCHIVE = "stream", "read", "executors", "archive"


class SparkDriver:
    def __init__(self, process: "subprocess.Popen[str]", directory: Path) -> None:
        self._process = process
        self._directory = directory
        assert self._answer() == "ready"

    def call(self, call: str, **options: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([call, options]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def read(self, **options: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call(READ, **options)
        return found

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, (self._directory / LOG).read_text()[-5000:]
        return json.loads(line)

    @property
    def warnings(self) -> str:
        """What driver and executors have said."""
        logs = [self._directory / LOG, *self._directory.rglob("stderr")]
        return "".join(each.read_text(errors="replace") for each in logs)


def spark_home(directory: Path) -> Path:
    """PySpark's, but with a directory of its own for what executors write: it would be in PySpark's."""
    home = directory / "spark"
    if not home.exists():
        home.mkdir()
        for each in Path(pyspark.__file__).parent.iterdir():
            if each.name != "work":
                (home / each.name).symlink_to(each)
    return home


@contextmanager
def spark_driver(
    master: str, bootstrap: str, directory: Path, conf: Mapping[str, str] | None = None
) -> Iterator[SparkDriver]:
    """In the network namespace of the calling thread."""
    environment = os.environ | {
        "JAVA_HOME": str(find_java(os.environ).home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home(directory)),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with (directory / LOG).open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), master, bootstrap, json.dumps(dict(conf or {}))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            cwd=directory,
        )
    try:
        yield SparkDriver(process, directory)
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
    finally:
        process.kill()
        process.wait()
