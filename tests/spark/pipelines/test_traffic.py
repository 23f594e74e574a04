"""The traffic report: the numbers from real Spark, and the page that is drawn from them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from posthouse.client import Client, Start
from posthouse.spark.pipelines.errors import WrongPipeline
from posthouse.spark.pipelines.plots import Line, plot
from posthouse.spark.pipelines.traffic import MINUTE_MS, Lag, TrafficReport, TrafficSlice, survey_traffic
from posthouse.spark.pipelines.traffic_page import page
from posthouse.testing import ThreadBroker
from tests.cli.programs import inside

pytestmark = pytest.mark.xdist_group("spark")

START = 1_790_000_040_000
"""The beginning of some minute."""


@pytest.mark.usefixtures("classic")
def test_the_numbers_and_the_command(
    spark: SparkSession, broker: ThreadBroker, client: Client, tmp_path: Path
) -> None:
    client.create_topic("t", partitions=1)
    client.create_topic("quiet", partitions=1)
    with client.producer("t") as producer:
        for minute, count in enumerate((2, 0, 5)):
            for number in range(count):
                moment = START + minute * MINUTE_MS + number
                producer.send(b"x" * (10 * (number + 1)), f"k{number % 2}".encode(), timestamp=moment)
        producer.send(b"outside", timestamp=START + 10 * MINUTE_MS)
    client.reset_offsets("readers", {"t": None}, Start.at(3))

    traffic = survey_traffic(spark, broker.kafka, start=START, end=START + 3 * MINUTE_MS)
    assert [(total.topic, total.messages, total.bytes, total.keys) for total in traffic.topics] == [
        ("t", 7, 10 + 20 + 150 + 7 * 2, 2)
    ]
    assert [(each.minute, each.messages, each.bytes, each.keys, each.sizes) for each in traffic.minutes] == [
        (START, 2, 34, 2, (10, 20, 20, 20)),
        (START + 2 * MINUTE_MS, 5, 160, 2, (30, 50, 50, 50)),
    ]
    assert traffic.lags == [Lag(group="readers", topic="t", minute=START + 2 * MINUTE_MS, messages=4)]

    out = tmp_path / "pages" / "t.html"
    times = ("--from", "2026-09-21T00:00Z", "--to", "2026-09-22T00:00Z")
    done = inside("pipeline", "report", "t", *times, "--out", out, bootstrap=broker.kafka)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"wrote {out}: 8 records of 1 topic"
    assert "<h2>t</h2>" in out.read_text()


def test_a_stretch_that_ends_before_it_begins(spark: SparkSession) -> None:
    with pytest.raises(WrongPipeline, match="ends before it begins"):
        survey_traffic(spark, "127.0.0.1:1", start=2, end=1)


def slices(topic: str, counts: list[int]) -> list[TrafficSlice]:
    return [
        TrafficSlice(
            topic=topic,
            minute=START + index * MINUTE_MS,
            messages=count,
            bytes=count * 100,
            keys=count,
            sizes=(90, 100, 110, 120),
        )
        for index, count in enumerate(counts)
        if count
    ]


def example(topic: str = "a <b>") -> TrafficReport:
    minutes = slices(topic, [5, 0, 7, 9])
    total = TrafficSlice(topic=topic, minute=None, messages=21, bytes=2100, keys=9, sizes=(90, 100, 110, 120))
    lags = [Lag(group=f"g{index}", topic=topic, minute=START, messages=index + 1) for index in range(7)]
    end = START + 4 * MINUTE_MS
    return TrafficReport(
        bootstrap="b:1", start=START, end=end, step=MINUTE_MS, topics=[total], minutes=minutes, lags=lags
    )


def test_the_page_needs_nothing_from_elsewhere_and_escapes_names() -> None:
    text = page(example())
    assert not re.search(r"https?://|<script|@import|<link|src=", text)
    assert "a &lt;b&gt;" in text and "<b>" not in text
    drawings = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    assert len(drawings) == 5, "messages, bytes, keys, sizes, lag"
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    assert drawings[4].count("<polyline") == 5, "those groups that are most behind"
    assert ">g6<" in drawings[4] and ">g0<" not in drawings[4]


def test_a_page_about_nothing() -> None:
    empty = TrafficReport(bootstrap="b:1", start=0, end=1, step=MINUTE_MS, topics=[], minutes=[], lags=[])
    assert "No messages in this time." in page(empty)


def test_lines_are_broken_where_nothing_was_measured() -> None:
    line = Line(name="x", points=[(0, 1.0), (60_000, 2.0), (300_000, 4.0)])
    drawn = ElementTree.fromstring(
        plot("title", [line], start=0, end=360_000, step=60_000, say=lambda value: f"{value:g}")
    )
    assert len(drawn.findall("polyline")) == 1 and len(drawn.findall("circle")) == 1
    [points] = [each.get("points") or "" for each in drawn.findall("polyline")]
    (_, first), (_, second) = [tuple(map(float, pair.split(","))) for pair in points.split()]
    assert second < first, "a larger value is higher"
    ticks = [each.text for each in drawn.findall("text")]
    assert ticks[0] == "title" and {"0", "2", "4", "00:00", "00:05"} <= set(ticks)
