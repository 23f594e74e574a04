"""The pipelines that are ready, on real Spark and a real broker, as the command line runs them."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from posthouse.client import Client
from posthouse.client.reading import Message
from posthouse.testing import ThreadBroker
from tests.cli.programs import inside

# The command makes a session of its own, or takes the one that there is; Spark Connect has another kind.
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("classic")]

START = 1_790_000_000_000
"""Some time, a multiple of ten seconds."""


def done(*arguments: str | Path, broker: ThreadBroker) -> subprocess.CompletedProcess[str]:
    finished = inside("--debug", "pipeline", *arguments, bootstrap=broker.kafka)
    assert finished.returncode == 0, finished.stderr
    return finished


def sent(client: Client, topic: str, messages: Iterable[dict[str, object]]) -> None:
    with client.producer(topic) as producer:
        for message in messages:
            producer.send(**message)  # type: ignore[arg-type]


def values(messages: Iterable[Message]) -> list[bytes]:
    return sorted(message.value or b"" for message in messages)


def order(number: int, at: int, item: str = "tea") -> dict[str, object]:
    value = {"order_id": str(number), "item": item, "quantity": 2, "price": 1.5}
    return {"value": json.dumps(value).encode(), "timestamp": START + at}


def test_the_template_makes_a_table_and_a_topic_and_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: ThreadBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", partitions=2)
    project = tmp_path / "shop"
    done("init", project, broker=broker)
    first = [order(n, n * 1000, " Tea" if n % 2 else "cake") for n in range(20)]
    broken = [{"value": b"no order", "timestamp": START}, {"value": b'{"item":"x"}', "timestamp": START}]
    # The last one closes the windows of all others.
    sent(client, "orders", [*first, *broken, order(99, 60_000)])
    finished = done("run", project, "--once", broker=broker)
    assert "done with 23 records" in finished.stderr
    assert "sales-table: batch" in finished.stderr and "100% done" in finished.stderr

    # It knows where it was: only what is new is read, and the window that was open is counted on.
    sent(client, "orders", [order(100, 61_000), order(101, 120_000)])
    assert "done with 2 records" in done("run", project, "--once", broker=broker).stderr

    rows = spark.read.parquet(str(project / "storage" / "tables" / "sales")).collect()
    found = {(int(row.start.timestamp() * 1000) - START, row["item"]): row for row in rows}
    assert {key: (row.orders, row.quantity, row.revenue) for key, row in found.items()} == {
        (0, "tea"): (5, 10, 15.0),
        (0, "cake"): (5, 10, 15.0),
        (10_000, "tea"): (5, 10, 15.0),
        (10_000, "cake"): (5, 10, 15.0),
        (60_000, "tea"): (2, 4, 6.0),
    }
    results = Counter(json.loads(message.value or b"")["item"] for message in client.messages("sales"))
    assert results == {"tea": 3, "cake": 2}, "each row once"


FIX = """
from pyspark.sql import functions as F

@F.udf("binary")
def louder(value):
    return louder_text(value)

def louder_text(value):
    return bytes(value).upper()

def transform(records):
    return records.withColumn("value", louder("value"))

def mend(records):
    return records.withColumn("value", F.replace(F.col("value").cast("string"), F.lit("?"), F.lit("!"))) \\
        .withColumn("mended", F.col("value").endswith("!"))

def forgetful(records):
    return records
"""


@pytest.fixture
def fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of the user's, in a directory where the storage of the pipelines goes as well."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fix.py").write_text(FIX)
    return tmp_path


def test_replay_of_a_stretch_of_time_through_changed_code(
    spark: SparkSession, broker: ThreadBroker, client: Client, fix: Path
) -> None:
    client.create_topic("raw", partitions=2)
    client.create_topic("again", partitions=2)
    sent(
        client,
        "raw",
        [
            {
                "value": f"v{second}".encode(),
                "key": f"k{second}".encode(),
                "timestamp": START + second * 1000,
                "headers": [("h", b"1")],
            }
            for second in range(40)
        ],
    )
    # START is 2026-09-21T14:13:20Z.
    times = ("--from", "2026-09-21T14:13:30Z", "--to", "2026-09-21T14:13:50Z")
    command = ("replay", "raw", *times, "--function", "fix.py:transform", "--to-topic", "again")
    done(*command, broker=broker)
    found = list(client.messages("again"))
    assert values(found) == sorted(f"V{second}".encode() for second in range(10, 30))
    assert {(message.key, message.timestamp, message.headers) for message in found} == {
        (f"k{second}".encode(), START + second * 1000, (("h", b"1"),)) for second in range(10, 30)
    }
    # The same command knows that it is done.
    done(*command, broker=broker)
    assert len(list(client.messages("again"))) == 20
    assert len(list((fix / "posthouse-storage" / "replay-raw-again" / "runs").iterdir())) == 1


def test_replay_into_a_table(spark: SparkSession, broker: ThreadBroker, client: Client, fix: Path) -> None:
    sent(client, "raw", [{"value": b"a"}, {"value": b"b"}])
    done("replay", "raw", "--to-table", "copy", "--storage", "place", broker=broker)
    rows = spark.read.parquet(str(fix / "place" / "tables" / "copy")).collect()
    assert sorted(bytes(row.value) for row in rows) == [b"a", b"b"]
    assert {row.topic for row in rows} == {"raw"}


def test_what_is_mended_goes_back_and_the_rest_aside(
    spark: SparkSession, broker: ThreadBroker, client: Client, fix: Path
) -> None:
    for topic in ("a", "b", "hopeless"):
        client.create_topic(topic, partitions=1)
    sent(
        client,
        "dead",
        [
            {"value": b"one?", "headers": [("original-topic", b"a")], "key": b"k"},
            {"value": b"two?", "headers": [("kafka_dlt-original-topic", b"b")]},
            {"value": b"three", "headers": [("original-topic", b"a")]},
            {"value": b"nowhere?"},
        ],
    )
    command = ("repair", "dead", "--function", "fix.py:mend", "--still-dead", "hopeless", "--once")
    done(*command, broker=broker)
    assert [(m.key, m.value, m.headers) for m in client.messages("a")] == [
        (b"k", b"one!", (("original-topic", b"a"),))
    ]
    assert values(client.messages("b")) == [b"two!"]
    assert values(client.messages("hopeless")) == [b"nowhere!", b"three"]
    # Only what came since is looked at.
    sent(client, "dead", [{"value": b"four?", "headers": [("original-topic", b"b")]}])
    done(*command, broker=broker)
    assert values(client.messages("b")) == [b"four!", b"two!"]
    assert len(list(client.messages("a"))) == 1


def test_a_function_that_does_not_say_what_is_mended(
    spark: SparkSession, broker: ThreadBroker, client: Client, fix: Path
) -> None:
    client.create_topic("dead")
    refused = inside(
        "pipeline", "repair", "dead", "--function", "fix.py:forgetful", "--once", bootstrap=broker.kafka
    )
    assert refused.returncode == 1
    assert "has no column 'mended'; add it as a BOOLEAN" in refused.stderr.splitlines()[-1]


def test_each_key_once_within_its_time(
    spark: SparkSession, broker: ThreadBroker, client: Client, fix: Path
) -> None:
    client.create_topic("twice", partitions=2)
    client.create_topic("once", partitions=2)
    repeated: list[dict[str, object]] = [
        {"value": b"%d" % turn, "key": key, "timestamp": START + turn * 1000}
        for turn in range(3)
        for key in (b"x", b"y")
    ]
    keyless: list[dict[str, object]] = [{"value": b"no key", "timestamp": START}] * 3
    sent(client, "twice", [*repeated, *keyless])
    command = ("deduplicate", "twice", "once", "--within", "1 minute", "--once")
    done(*command, broker=broker)
    found = Counter(message.key for message in client.messages("once"))
    assert found == {b"x": 1, b"y": 1, None: 3}
    sent(client, "twice", [{"value": b"x again", "key": b"x", "timestamp": START + 5000}])
    done(*command, broker=broker)
    assert Counter(message.key for message in client.messages("once"))[b"x"] == 1, "remembered between runs"


PROGRAM = "def pipeline(spark, context):\n    {}\n"


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (
            "return [context.to_table(context.source(context.settings['nope']), 't')]",
            "setting 'nope' is missing",
        ),
        ("return context.no_such()", "AttributeError: 'PipelineContext' object has no attribute 'no_such'"),
        ("spark.range(1).writeStream", "failed before its queries ran"),
    ],
    ids=["setting", "code", "spark"],
)
def test_programs_that_fail_are_told_so_in_a_sentence(
    spark: SparkSession, broker: ThreadBroker, tmp_path: Path, body: str, part: str
) -> None:
    (tmp_path / "pipeline.py").write_text(PROGRAM.format(body))
    refused = inside("pipeline", "run", tmp_path, "--once", bootstrap=broker.kafka)
    assert refused.returncode == 1 and part in refused.stderr.splitlines()[-1]


def test_a_query_that_fails_ends_the_pipeline_with_its_reason(
    spark: SparkSession, broker: ThreadBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("t")
    sent(client, "t", [{"value": b"x"}])
    body = "return [context.to_table(context.source('t').selectExpr('raise_error(\"too bad\") AS x'), 'bad')]"
    (tmp_path / "pipeline.py").write_text(PROGRAM.format(body))
    refused = inside("pipeline", "run", tmp_path, bootstrap=broker.kafka)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("posthouse: query 'bad' failed: ")
    assert spark.streams.active == []
