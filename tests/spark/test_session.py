"""The session and its settings."""

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from posthouse.spark.home import linked_home
from posthouse.spark.session import is_local, recommended_settings, session

pytestmark = pytest.mark.xdist_group("spark")

CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
DAEMON = "spark.python.daemon.module"
SOCKETS = "spark.python.unix.domain.socket.enabled"


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", False),
        ("yarn", False),
        ("k8s://https://host", False),
        ("localhost", False),
    ],
)
def test_what_holds_only_on_one_machine_is_set_only_there(master: str, local: bool) -> None:
    assert is_local(master) == local
    settings = recommended_settings(master)
    for name in (CHECKPOINTS, DAEMON, SOCKETS, "spark.driver.host", "spark.sql.shuffle.partitions"):
        assert (name in settings) == local
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert settings["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647b"


def test_where_checkpoints_are_may_be_said() -> None:
    assert CHECKPOINTS not in recommended_settings("local[2]", local_checkpoints=False)
    assert CHECKPOINTS in recommended_settings("spark://host:7077", local_checkpoints=True)


@pytest.mark.usefixtures("tuned")
def test_the_session_has_them_and_knows_the_source(spark: SparkSession) -> None:
    for name, value in recommended_settings("local[2]").items():
        if name != "spark.sql.shuffle.partitions":
            assert spark.sparkContext.getConf().get(name) == value, name
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2", "what is given wins"
    with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers"):
        spark.read.format("posthouse").option("subscribe", "t").load().collect()
    assert session("again") is spark or session("again").sparkContext is spark.sparkContext


@pytest.mark.usefixtures("tuned")
def test_workers_run_this_python_with_everything_imported(spark: SparkSession) -> None:
    def look(_: object) -> tuple[str, bool, str]:
        import sys

        return (
            sys.executable,
            "posthouse.spark.datasource" in sys.modules,
            sys.modules["pyspark"].__file__ or "",
        )

    [(executable, imported, place)] = spark.sparkContext.parallelize([1], 1).map(look).collect()
    assert executable == os.environ["PYSPARK_PYTHON"] == sys.executable
    assert imported
    assert place == sys.modules["pyspark"].__file__, "and not the one in a zip, which has no byte code"


def test_a_home_has_links_to_all_but_the_zip(tmp_path: Path) -> None:
    real, home = tmp_path / "real", tmp_path / "home"
    for name in ("bin", "jars", "python", "sql", "work"):
        (real / name).mkdir(parents=True)
    (real / "sql" / "__init__.py").touch()
    assert linked_home(real, home) == home
    assert sorted(each.name for each in home.iterdir()) == ["bin", "jars"]
    (home / "bin").unlink()
    (home / "bin").symlink_to(tmp_path / "elsewhere")
    linked_home(real, home)
    assert (home / "bin").readlink() == real / "bin"
