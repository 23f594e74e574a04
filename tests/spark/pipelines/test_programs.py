"""Finding programs, their settings and functions."""

from pathlib import Path

import pytest

from posthouse.spark.pipelines.context import PipelineContext, PipelineSettings
from posthouse.spark.pipelines.errors import WrongPipeline
from posthouse.spark.pipelines.launching import Launch
from posthouse.spark.pipelines.programs import find_program, load_function

pytestmark = pytest.mark.xdist_group("spark")

CONFIG = """
bootstrap = "b:1"
master = "spark://h:7077"
storage = "s3a://bucket/x"
interval = "5 seconds"
[settings]
source = "orders"
[spark]
"spark.sql.shuffle.partitions" = 8
"spark.speculation" = true
"""


def project(directory: Path, config: str = "", program: str = "pipeline.py") -> Path:
    (directory / program).write_text("def pipeline(spark, context): ...\n")
    if config:
        (directory / "pipeline.toml").write_text(config)
    return directory


def test_a_project_and_what_it_says(tmp_path: Path) -> None:
    found = find_program(project(tmp_path, CONFIG))
    assert (found.file, found.name) == (tmp_path / "pipeline.py", tmp_path.name)
    assert (found.bootstrap, found.master, found.interval) == ("b:1", "spark://h:7077", "5 seconds")
    assert found.storage == "s3a://bucket/x"
    assert found.settings == {"source": "orders"}
    assert found.spark == {"spark.sql.shuffle.partitions": "8", "spark.speculation": "true"}
    assert not found.is_declared


def test_a_file_alone_is_enough(tmp_path: Path) -> None:
    found = find_program(project(tmp_path, program="mine.py") / "mine.py")
    assert (found.name, found.storage) == ("mine", str(tmp_path / "storage"))


def test_declarative_projects_are_recognised(tmp_path: Path) -> None:
    assert find_program(project(tmp_path, program="spark-pipeline.yml")).is_declared


@pytest.mark.parametrize(
    ("config", "part"),
    [
        ("nmae = 'x'", "has an unknown key 'nmae'; it may have name, bootstrap"),
        ("name = 1", "'name' in .* must be a text"),
        ("spark = 'x'", "must be a table"),
        ("[settings", "is not valid TOML"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, config: str, part: str) -> None:
    with pytest.raises(WrongPipeline, match=part):
        find_program(project(tmp_path, config))


def test_what_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(WrongPipeline, match=r"neither pipeline\.py nor spark-pipeline\.yml"):
        find_program(tmp_path)
    with pytest.raises(WrongPipeline, match="there is no"):
        find_program(tmp_path / "nope.py")
    (tmp_path / "data.csv").touch()
    with pytest.raises(WrongPipeline, match="is no pipeline"):
        find_program(tmp_path / "data.csv")


def test_functions_by_file_and_by_module(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("FACTOR = 3\n")
    (tmp_path / "fix.py").write_text("from beside import FACTOR\n\ndef triple(x):\n    return x * FACTOR\n")
    assert load_function("fix.py:triple", tmp_path)(2) == 6
    assert load_function(f"{tmp_path}/fix.py:triple")(2) == 6
    assert load_function("os.path:join")("a", "b") == "a/b"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("fix.py", "write module:function or file.py:function"),
        (":x", "write module:function"),
        ("nope.py:x", "there is no Python file"),
        ("no_such_module:x", "'no_such_module' cannot be imported"),
        ("os.path:no_such", "has no function 'no_such'"),
    ],
)
def test_functions_that_are_not_there(tmp_path: Path, name: str, part: str) -> None:
    with pytest.raises(WrongPipeline, match=part):
        load_function(name, tmp_path)


def test_a_stretch_of_time_is_kept_apart(tmp_path: Path) -> None:
    program = find_program(project(tmp_path))
    day = 86_400_000
    plain = Launch(program=program, bootstrap="b:1")
    ranged = Launch(program=program, bootstrap="b:1", start=day, end=2 * day + 5)
    assert plain.place == str(tmp_path / "storage")
    assert ranged.place == f"{tmp_path}/storage/runs/19700102T000000Z-19700103T000000.005Z"
    assert Launch(program=program, bootstrap="b:1", storage="s3a://b/").place == "s3a://b"
    assert not plain.resumes
    (tmp_path / "storage" / "checkpoints" / "q").mkdir(parents=True)
    assert plain.resumes and not ranged.resumes


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(WrongPipeline, match="the setting 'source' is missing"):
        PipelineSettings({})["source"]


def test_triggers() -> None:
    def context(**more: object) -> PipelineContext:
        return PipelineContext(spark=None, bootstrap="b:1", storage="/s", **more)  # type: ignore[arg-type]

    assert context().trigger == {"processingTime": "0 seconds"}
    assert context(interval="5 seconds").trigger == {"processingTime": "5 seconds"}
    assert context(once=True).trigger == context(end=5).trigger == {"availableNow": True}


def test_a_table_of_another_checkpoint_is_not_taken_for_ours(tmp_path: Path) -> None:
    context = PipelineContext(spark=None, bootstrap="b:1", storage=str(tmp_path))  # type: ignore[arg-type]
    (tmp_path / "tables" / "sales" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(WrongPipeline, match="was written from another checkpoint"):
        context.to_table(None, "sales")  # type: ignore[arg-type]
