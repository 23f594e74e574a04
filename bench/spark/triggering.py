"""What a micro-batch costs that has next to nothing to do: four rows, one of each partition."""

import statistics
import uuid
from collections.abc import Iterator, Mapping

from bench.spark import queries
from bench.spark.figures import Entry, Line, Missing, Ratio, Spread, Times
from bench.spark.queries import Stream
from bench.spark.sessions import SessionFailed, Setup
from bench.spark.stage import OURS, PLAIN, Stage
from bench.spark.workload import PARTITIONS
from posthouse.client import Client

_SPARE = 20
"""More than are measured: for warming up, and those that run before the query is stopped."""

_FLOOR = "ready-made Python source → noop"


def triggering(stage: Stage) -> Iterator[Entry]:
    address = stage.served.address
    with Client(address) as client:
        client.create_topic("ticks", partitions=PARTITIONS)
        client.create_topic("ticked", partitions=PARTITIONS)
        with client.producer("ticks") as producer:
            for partition in range(PARTITIONS):
                for number in range(10 * (stage.scale.triggers + _SPARE)):
                    producer.send(b"%d" % number, partition=partition)
    ours = {
        "kafka.bootstrap.servers": address,
        "subscribe": "ticks",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(PARTITIONS),
    }
    into_topic = {"kafka.bootstrap.servers": address, "topic": "ticked"}
    streams = {
        "rate-micro-batch → noop": Stream(
            format="rate-micro-batch",
            options={"rowsPerBatch": str(PARTITIONS), "numPartitions": str(PARTITIONS)},
        ),
        _FLOOR: Stream(format="ready-made-stream"),
        "posthouse → noop": Stream(format="posthouse", options=ours),
        "ready-made Python source → posthouse": Stream(
            format="ready-made-stream", sink="posthouse", sink_options=into_topic
        ),
        "posthouse → posthouse": Stream(
            format="posthouse", options=ours, sink="posthouse", sink_options=into_topic
        ),
    }
    for setup, kind in ((OURS, "with the recommended settings"), (PLAIN, "with Spark's defaults")):
        section = f"A micro-batch of {PARTITIONS} rows, {kind}"
        yield from _measured(stage, section, setup, streams)


def _measured(stage: Stage, section: str, setup: Setup, streams: Mapping[str, Stream]) -> Iterator[Entry]:
    """The streams take turns; the first turn of each does not count."""
    seconds: dict[str, list[list[float]]] = {name: [] for name in streams}
    for turn in range(1 + stage.scale.rounds):
        for name in list(seconds):
            checkpoint = stage.directory / f"checkpoint-{setup.name}-{uuid.uuid4()}"
            try:
                session = stage.session(setup)
                found = session.call(queries.triggers, streams[name], str(checkpoint), stage.scale.triggers)
            except SessionFailed as error:
                yield Missing(section=section, name=name, reason=str(error))
                del seconds[name]
            else:
                seconds[name] += [found] if turn else []
    for name, turns in seconds.items():
        ours = "posthouse" in name
        yield Line(
            section=section,
            name=name,
            value=Spread.of([each * 1000 for turn in turns for each in turn]),
            unit="ms",
            ratios=_ratios(turns, seconds.get(_FLOOR)) if ours else (),
            is_yardstick=not ours,
        )


def _ratios(turns: list[list[float]], floor: list[list[float]] | None) -> tuple[Ratio, ...]:
    """Of the middles of every turn: how many times as long."""
    if floor is None:
        return ()
    own, least = (Times(tuple(map(statistics.median, each))) for each in (turns, floor))
    return (Ratio(spread=least.faster_than(own), to="ready-made → noop"),)
