"""pytest on a Spark session of another kind, or on another PySpark, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.spark.sessions import prepare_shell

ROOT = Path(__file__).parent.parent.parent
SUBMIT = "submit"
KINDS = ("plain", "connect", "local-cluster", SUBMIT)


def run_tests(
    kind: str, *tests: str, log: Path, python: Path | None = None, timeout: float | None = None
) -> bool:
    """Whether all passed; what pytest says is in `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    python = python or Path(sys.executable)
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "600", "--show-capture=no"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["POSTHOUSE_SPARK_SESSION"] = "plain" if kind == SUBMIT else kind
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS", "SPARK_HOME"):
        environment.pop(name, None)
    prepare_shell(environment, python)
    command = [str(python), "-m", "pytest"]
    if kind == SUBMIT:
        # The program of the PySpark that is installed, whatever else is on the PATH.
        submit = python.with_name("spark-submit")
        command = [str(submit), "--master", "local[2,3]", str(ROOT / "tests" / "spark" / "submitted.py")]
    with log.open("w") as output:
        run = subprocess.run(
            [*command, *options, *tests],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    return run.returncode == 0
