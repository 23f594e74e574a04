"""The Spark tests on every kind of session, with the oldest and the newest PySpark: make test-spark-versions.

    python -m tests.spark [--version VERSION ...] [--session KIND ...] [TEST ...]

The newest is the one that is installed. Another one gets a directory of its own under build/, with nothing in
it but PySpark: all other packages are those of this Python.
"""

import argparse
import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import version
from pathlib import Path

from tests.spark.runs import KINDS, ROOT, run_tests

# Those that start processes of their own bring their own sessions, and are the same whatever the session is.
TESTS = (
    "tests/spark/test_source_batch.py",
    "tests/spark/test_source_stream.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_spark_security.py",
    "tests/spark/test_spark_pages.py",
    "tests/spark/archive",
    "tests/spark/pipelines",
)


def main() -> None:
    oldest, newest = _oldest(), version("pyspark")
    parser = argparse.ArgumentParser(prog="python -m tests.spark")
    parser.add_argument("--version", action="append", help=f"of PySpark; {oldest} and {newest} otherwise")
    parser.add_argument("--session", action="append", choices=("tuned", *KINDS))
    parser.add_argument("tests", nargs="*", metavar="TEST")
    given = parser.parse_args()
    failed = []
    for each in given.version or (oldest, newest):
        python = Path(sys.executable) if each == newest else _installed(each)
        for kind in given.session or ("tuned", *KINDS):
            print(f"PySpark {each}, session {kind}:", flush=True)
            log = ROOT / "build" / "tests" / f"spark-{each}-{kind}.log"
            if not run_tests(kind, *(given.tests or TESTS), log=log, python=python):
                failed.append(f"PySpark {each}, session {kind}")
            _tell(log)
    if failed:
        sys.exit("failed: " + "; ".join(failed))


def _tell(log: Path) -> None:
    said = log.read_text()
    # Not simply the last line: Spark's own log may go on behind it.
    counts = re.findall(r"^\d+ (?:passed|failed|skipped|errors?|deselected)\b.* in .*$", said, re.MULTILINE)
    last = counts[-1] if counts else said.strip().rpartition("\n")[2]
    failures = re.findall(r"^(?:FAILED|ERROR) .*$", said, re.MULTILINE)
    print(*(f"  {line}" for line in [*failures, last, f"see {log.relative_to(ROOT)}"]), sep="\n", flush=True)


def _oldest() -> str:
    """Of those that pyproject.toml allows."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [wanted] = [each for each in extras["spark"] if each.startswith("pyspark")]
    found = re.search(r">=(\d+\.\d+(?:\.\d+)?)", wanted)
    assert found, wanted
    return found[1] if found[1].count(".") == 2 else f"{found[1]}.0"


def _installed(wanted: str) -> Path:
    home = ROOT / "build" / f"pyspark-{wanted}"
    python = home / "bin" / "python"
    done = home / ".done"
    if not done.exists():
        print(f"installing PySpark {wanted} into {home.relative_to(ROOT)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(home)], check=True)
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python", str(python)]
        subprocess.run([*pip, "install", f"pyspark=={wanted}"], check=True)
        places = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        own = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        )
        (Path(own.stdout.strip()) / "others.pth").write_text(places)
        done.touch()
    return python


if __name__ == "__main__":
    main()
