"""`posthouse pipeline` as users type it; what the pipelines do is tested in tests/spark/pipelines."""

import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from posthouse.cli import pipeline
from posthouse.client import Client
from posthouse.testing import running_broker
from tests.cli.programs import PROGRAM, environment, inside, one_sentence

pytestmark = pytest.mark.xdist_group("spark")


@pytest.mark.parametrize("like", pipeline.READY)
def test_init_makes_a_project_that_compiles(tmp_path: Path, like: str) -> None:
    directory = tmp_path / "new" / "one"
    done = inside("pipeline", "init", directory, "--like", like)
    assert done.returncode == 0
    assert done.stderr.endswith(f"run it with 'posthouse pipeline run {directory}'\n")
    compile((directory / "pipeline.py").read_text(), "pipeline.py", "exec")
    assert "[settings]" in (directory / "pipeline.toml").read_text()
    refused = inside("pipeline", "init", directory)
    assert refused.returncode == 2 and "is not empty; choose another name" in refused.stderr


def test_init_works_without_spark(tmp_path: Path) -> None:
    """In a process where neither PySpark nor PyArrow can be imported."""
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from posthouse.cli.main import run\n"
        f"assert run(['pipeline', 'init', {str(tmp_path / 'p')!r}]) == 0\n"
        f"sys.exit(run(['pipeline', 'run', {str(tmp_path / 'p')!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "posthouse: pipelines run on Spark, which is not there; "
        "install it with 'pip install \"posthouse[spark]\"'"
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["init", "p", "--like", "nothing"], "'nothing' is none of orders, replay"),
        (["run", "p", "--from", "soon"], "'soon' is neither a duration"),
        (["replay", "t"], "give exactly one of them"),
        (["replay", "t", "--to-topic", "a", "--to-table", "b"], "give exactly one of them"),
        (["replay", "t", "--to-topic", "t"], "it is the topic that is read; name another one"),
        (["repair", "t"], "missing option '--function'"),
        (["deduplicate", "t"], "missing argument 'TO'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_misuse(arguments: list[str], part: str) -> None:
    assert part in one_sentence(inside("pipeline", *arguments), 2)


def test_what_is_no_pipeline(tmp_path: Path) -> None:
    sentence = one_sentence(inside("pipeline", "run", tmp_path / "nope"), 1)
    assert sentence == f"there is no {tmp_path}/nope; make a project with 'posthouse pipeline init'"


@pytest.mark.parametrize("command", ["init", "run", "replay", "repair", "deduplicate", "report"])
def test_help_has_an_example(command: str) -> None:
    done = inside("pipeline", command, "--help")
    assert done.returncode == 0
    assert done.stdout.count(f"posthouse pipeline {command}") > 1


def test_without_a_broker_spark_is_not_even_started(tmp_path: Path) -> None:
    """The sentence names the address that counts: the most specific one."""
    (tmp_path / "pipeline.py").touch()
    (tmp_path / "pipeline.toml").write_text('bootstrap = "127.0.0.1:3"\n')
    run = ("pipeline", "run", str(tmp_path))
    first = ("--bootstrap", "127.0.0.1:1")
    for arguments, address in (
        (("pipeline", "report", "--bootstrap", "127.0.0.1:1"), "127.0.0.1:1"),
        (run, "127.0.0.1:3"),
        ((*first, *run), "127.0.0.1:1"),
        ((*first, *run, "--bootstrap", "127.0.0.1:2"), "127.0.0.1:2"),
    ):
        assert one_sentence(inside(*arguments), 1).startswith(f"no broker answers at {address};")


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_pipeline_on_a_cluster_stops_cleanly_on_a_signal(tmp_path: Path) -> None:
    """Executors in processes of their own; Ctrl-C lets the batch end, and everything read is in the table."""
    with running_broker() as broker, Client(broker.kafka) as client:
        client.create_topic("t", partitions=2)
        (tmp_path / "pipeline.py").write_text(
            "def pipeline(spark, context):\n    return [context.to_table(context.source('t'), 'copy')]\n"
        )
        with client.producer("t") as producer:
            for number in range(1000):
                producer.send(b"%d" % number)
        running = subprocess.Popen(
            [*PROGRAM, "pipeline", "run", tmp_path, "--master", "local-cluster[2,1,1024]"],
            stderr=subprocess.PIPE,
            text=True,
            env=environment(POSTHOUSE_BOOTSTRAP=broker.kafka),
        )
        assert running.stderr is not None
        watchdog = threading.Timer(220, running.kill)
        watchdog.start()
        try:
            lines = []
            for line in running.stderr:
                lines.append(line)
                if re.match(r"copy: batch \d+, 1,000 records, [\d,]+/s, 0 behind", line):
                    running.send_signal(signal.SIGINT)
            assert running.wait() == 0, "".join(lines)
        finally:
            watchdog.cancel()
            running.stderr.close()
    assert "stopped after 1,000 records; run it again to resume from its checkpoint\n" in lines
    import pyarrow.dataset

    files = [str(file) for file in (tmp_path / "storage" / "tables" / "copy").glob("part-*")]
    values = pyarrow.dataset.dataset(files).to_table()["value"].to_pylist()
    assert sorted(map(int, values)) == list(range(1000))
