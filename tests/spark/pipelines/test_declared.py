"""Declarative pipelines: what Spark's program is given, and a real run of it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from posthouse.client import Client
from posthouse.spark.pipelines import declared
from posthouse.spark.pipelines.declared import DeclarativeFailed, run_declared
from posthouse.spark.pipelines.programs import find_program
from posthouse.testing import running_broker
from tests.spark.pages import examples
from tests.spark.sessions import KIND, prepare_shell

pytestmark = pytest.mark.xdist_group("spark")

SPEC = """
name: shop
storage: file://{storage}
libraries:
  - glob:
      include: transformations/**
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(storage=tmp_path / "storage" / "pipelines"))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "tables.py").write_text(examples()["pipelines.md"][1])
    return tmp_path


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Instead of Spark's program: one that notes how it was called, and ends with the code in `status`."""
    home = tmp_path / "spark"
    (home / "bin").mkdir(parents=True)
    (home / "status").write_text("0")
    (home / "bin" / "spark-pipelines").write_text(
        f"{sys.executable} -c 'import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))' "
        f'"$@" > {home}/call\nexit $(cat {home}/status)\n'
    )
    monkeypatch.setattr(declared, "_spark_home", lambda: home)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return home


def test_what_it_is_given(project: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pipeline.toml").write_text('[spark]\n"spark.sql.shuffle.partitions" = 3\n')
    program = find_program(project)
    run_declared(program, bootstrap="b:1", master="local[2]")
    arguments, environment = json.loads((stand_in / "call").read_text())
    assert arguments == ["--remote", "local[2]", "run", "--spec", str(project / "spark-pipeline.yml")]
    assert environment["POSTHOUSE_BOOTSTRAP"] == "b:1"
    assert Path(environment["JAVA_HOME"], "bin", "java").exists()
    conf = Path(environment["SPARK_CONF_DIR"], "spark-defaults.conf").read_text()
    settings = dict(line.split(" ", 1) for line in conf.splitlines())
    assert settings["spark.sql.catalogImplementation"] == "hive"
    assert settings["spark.sql.warehouse.dir"] == str(project / "storage" / "warehouse")
    assert settings["spark.sql.shuffle.partitions"] == "3"
    assert "spark.master" not in settings, "Spark would not start its server then"

    (project / "conf").mkdir()
    (project / "conf" / "spark-defaults.conf").touch()
    run_declared(program, bootstrap="b:1", master=None)
    arguments, environment = json.loads((stand_in / "call").read_text())
    assert environment["SPARK_CONF_DIR"] == str(project / "conf"), "the project's own goes first"
    assert arguments[1] == "local[*]"


def test_failures_are_sentences(project: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (stand_in / "status").write_text("3")
    with pytest.raises(DeclarativeFailed, match="failed; see above for the reason"):
        run_declared(find_program(project), bootstrap="b:1", master=None)
    monkeypatch.setattr(declared, "_can_import", lambda name: name != "yaml")
    with pytest.raises(DeclarativeFailed, match=r"need more packages \(yaml\); install them with"):
        run_declared(find_program(project), bootstrap="b:1", master=None)


@pytest.fixture
def filled() -> Iterator[str]:
    """A broker with a hundred orders."""
    pytest.importorskip("grpc_status")
    with running_broker() as broker, Client(broker.kafka) as client:
        with client.producer("orders") as producer:
            for number in range(100):
                producer.send(b"%d" % number)
        yield broker.kafka


def numbers(table: Path) -> list[int]:
    import pyarrow.dataset

    files = [str(file) for file in table.glob("part-*")]
    return sorted(map(int, pyarrow.dataset.dataset(files).to_table()["value"].to_pylist()))


own_server = pytest.mark.skipif(
    KIND == "connect",
    reason="the server of the test's own session has the port that pipelines start theirs on",
)


@own_server
@pytest.mark.skipif(
    ".zip" in pyspark.__file__,
    reason="spark-submit imports PySpark from an archive without its programs",
)
@pytest.mark.long
@pytest.mark.timeout(240)
def test_spark_runs_it(project: Path, filled: str) -> None:
    run_declared(find_program(project), bootstrap=filled, master="local[2]")
    assert numbers(project / "storage" / "warehouse" / "raw_orders") == list(range(100))


@own_server
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("untuned")
def test_spark_runs_it_with_nothing_set(project: Path, filled: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment["POSTHOUSE_BOOTSTRAP"] = filled
    prepare_shell(environment)
    program = Path(sys.executable).with_name("spark-pipelines")
    run = subprocess.run(
        [str(program), "--remote", "local[2]", "run"],
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-5000:]
    assert numbers(project / "spark-warehouse" / "raw_orders") == list(range(100))
