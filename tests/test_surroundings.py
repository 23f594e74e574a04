"""Nothing that a user has in the shell or in the home directory changes what is installed or tested."""

import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.surroundings import HOME, isolate

ROOT = Path(__file__).parent.parent

HOSTILE = {
    "_JAVA_OPTIONS": "-Xmx1m",
    "HADOOP_CONF_DIR": "/nonexistent",
    "JAVA_HOME": "/nonexistent",
    "JAVA_TOOL_OPTIONS": "-Duser.home=/nonexistent -Xmx1m",
    "POSTHOUSE_BOOTSTRAP": "127.0.0.1:1",
    "POSTHOUSE_CONFIG": "/nonexistent",
    "POSTHOUSE_KAFKA": "127.0.0.1:1",
    "POSTHOUSE_USER": "nobody",
    "PYSPARK_DRIVER_PYTHON": "/bin/false",
    "PYSPARK_PYTHON": "/bin/false",
    "PYSPARK_SUBMIT_ARGS": "--master spark://127.0.0.1:1 --conf spark.driver.memory=1m pyspark-shell",
    "SPARK_CONF_DIR": "/nonexistent",
    "SPARK_HOME": "/nonexistent",
    "SPARK_MASTER": "spark://127.0.0.1:1",
    "SPARK_REMOTE": "sc://127.0.0.1:1",
    "XDG_CACHE_HOME": "/proc/nonexistent",
}
FOR_PYTHON = {
    "MYPYPATH": "/nonexistent",
    "PIP_TARGET": "/nonexistent",
    "PIP_USER": "1",
    "PYTEST_ADDOPTS": "--no-such-option",
    "PYTHONHOME": "/nonexistent",
    "PYTHONOPTIMIZE": "2",
    "PYTHONPATH": "/nonexistent",
}


def test_what_is_dropped_and_what_stays() -> None:
    kept = {
        "PATH": "/bin",
        "HTTPS_PROXY": "http://proxy:1",
        "POSTHOUSE_SEED": "7",
        "PIP_INDEX_URL": "http://x",
    }
    environment = {**HOSTILE, **kept, "HOME": "/home/ann"}
    isolate(environment)
    own = {"HOME": str(HOME), "SPARK_SUBMIT_OPTS": f"-Duser.home={HOME}", "SPARK_LOCAL_IP": "127.0.0.1"}
    expected = {**kept, **own, "NPM_CONFIG_USERCONFIG": "/home/ann/.npmrc"}
    assert environment == expected
    isolate(environment)
    assert environment == expected
    submitted = {"PYSPARK_GATEWAY_PORT": "4711", "SPARK_HOME": "/spark", "HOME": str(HOME)}
    isolate(submitted)
    assert submitted["SPARK_HOME"] == "/spark", "spark-submit has made it"


def test_this_run_is_isolated() -> None:
    assert os.environ["HOME"] == str(HOME)
    assert not {"SPARK_CONF_DIR", "PYTHONPATH", "POSTHOUSE_BOOTSTRAP"} & set(os.environ)


@pytest.fixture
def hostile_home(tmp_path: Path) -> Path:
    """Its caches and settings are of no use, or do harm."""
    home = tmp_path / "home"
    connector = "org/apache/spark/spark-sql-kafka-0-10_2.13/4.0.0/spark-sql-kafka-0-10_2.13-4.0.0.pom"
    for file, text in {
        f".m2/repository/{connector}": "no pom",
        ".m2/settings.xml": "no settings",
        ".ivy2.5.2/ivysettings.xml": "no settings",
        ".config/pip/pip.conf": "[global]\nuser = true\n[install]\ntarget = /nonexistent/target\n",
    }.items():
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text(text)
    too_old = home / "bin" / "java"
    too_old.parent.mkdir()
    too_old.write_text(
        "#!/bin/sh\nprintf '    java.home = /x\\n    java.specification.version = 1.8\\n' >&2\n"
    )
    too_old.chmod(0o755)
    return home


@pytest.fixture
def taken_ports() -> Iterator[None]:
    """Those of a broker that runs already; another program may have them, which does as well."""
    with ExitStack() as held:
        for port in (9092, 5672):
            holder = held.enter_context(socket.socket())
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                continue
            holder.listen()
        yield


@pytest.mark.long
@pytest.mark.xdist_group("spark-cluster")
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("taken_ports")
def test_hostile_surroundings(hostile_home: Path) -> None:
    """Some tests of a broker, the command line and Spark, which ask their surroundings for something."""
    tests = (
        "tests/test_surroundings.py::test_this_run_is_isolated",
        "tests/test_app.py",
        "tests/cli/test_cli_serve.py::test_options_win_over_environment_and_environment_over_file",
        "tests/spark/test_session.py",
    )
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={
            **inherited,
            **HOSTILE,
            "HOME": str(hostile_home),
            "PATH": os.pathsep.join([str(hostile_home / "bin"), os.environ["PATH"]]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:]
    assert " skipped" not in run.stdout, run.stdout[-2000:]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make on this machine")
def test_recipes_do_not_see_the_shell() -> None:
    environment = {
        **os.environ,
        **FOR_PYTHON,
        "DATA": "/nonexistent",
        "KAFKA": "h:1",
        "PIP_INDEX_URL": "http://x",
    }
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        environment.pop(name, None)
    shown = subprocess.run(
        ["make", "--silent", "--eval", "show: ; @env; echo $(DATA) $(KAFKA)", "show"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert not [line for line in shown if line.partition("=")[0] in FOR_PYTHON]
    assert "PIP_INDEX_URL=http://x" in shown
    assert shown[-1] == "./data 127.0.0.1:9092"


def test_pip_installs_into_the_virtual_environment(hostile_home: Path, tmp_path: Path) -> None:
    """Its settings are those of tools/pip.conf, whatever the user's file says."""
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        file.writestr(
            "tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr("tiny-1.dist-info/RECORD", "")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    shutil.copy(ROOT / "tools" / "pip.conf", venv / "pip.conf")
    [packages] = venv.glob("lib/python*/site-packages")
    # pip looks for this file beside the Python that runs it.
    (packages / "pip.pth").write_text(
        f"{Path(sys.executable).parent.parent}/lib/{packages.parent.name}/site-packages"
    )
    environment = {**os.environ, "HOME": str(hostile_home)}
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (packages / "tiny.py").exists()
    (venv / "pip.conf").unlink()
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode != 0, "or the user's file is not looked at, and this test shows nothing"
