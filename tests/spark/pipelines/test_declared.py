"""Declarative pipelines: what Spark's program is given, and a real run of it."""

import json
import sys
from pathlib import Path

import pytest

from posthouse.client import Client
from posthouse.spark.pipelines import declared
from posthouse.spark.pipelines.declared import DeclarativeFailed, run_declared
from posthouse.spark.pipelines.programs import find_program
from posthouse.testing import running_broker

pytestmark = pytest.mark.xdist_group("spark")

SPEC = """
name: shop
storage: file://{storage}
libraries:
  - glob:
      include: transformations/**
"""
TABLES = """
import os

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def raw():
    return (
        spark.readStream.format("posthouse")
        .option("kafka.bootstrap.servers", os.environ["POSTHOUSE_BOOTSTRAP"])
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .load()
    )
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(storage=tmp_path / "storage" / "pipelines"))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "tables.py").write_text(TABLES)
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


@pytest.mark.timeout(240)
def test_spark_runs_it(project: Path) -> None:
    pytest.importorskip("grpc_status")
    with running_broker() as broker, Client(broker.kafka) as client:
        with client.producer("t") as producer:
            for number in range(100):
                producer.send(b"%d" % number)
        run_declared(find_program(project), bootstrap=broker.kafka, master="local[2]")
    import pyarrow.dataset

    files = [str(file) for file in (project / "storage" / "warehouse" / "raw").glob("part-*")]
    values = pyarrow.dataset.dataset(files).to_table()["value"].to_pylist()
    assert sorted(map(int, values)) == list(range(100))
