"""The same work at the end of an empty log and of a very long one.

Two brokers, one with an empty topic and one with all the records, take turns. Turns are short, so that
whatever else the machine does meets both.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from bench import wire
from bench.queues.workers import Tally, Worker, now
from bench.scale.asking import connected, delete_topic, fetch, make_topics, offset_behind
from bench.scale.brokers import Broker, scratch
from bench.scale.figures import Row
from bench.scale.plan import Stage
from posthouse.records.batch import parse_header

VALUE_BYTES = 10
BATCH_BYTES = 16 * 1024
WINDOW = 8
LEAST_SHARE = 0.95
NOTE = f"""Values of {VALUE_BYTES} bytes without keys, in batches of {BATCH_BYTES // 1024} KiB, one partition,
`durability=fsync`. One socket produces, with {WINDOW} requests in flight; *produced and read* is the same
with a consumer at the end of the log, on its own connection, until it has the last record. Two brokers take
turns, many in each round: one whose topic is new in every round, and one with all the records. A ratio is
computed within each round."""

TOPIC = "history"
_MAX_WAIT_MS = 500
_PORTION = 1000
_PORTIONS = 16
"""In each round, of each broker."""
_SMALL_PART = 1000
"""A portion is one in so many of the records."""
_POLL = 0.0002
T = TypeVar("T")


@dataclass(slots=True)
class _Rates:
    """Of one broker, round by round."""

    produced: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Seconds of the broker per million records, produced and read."""


class _Side:
    """One of the two brokers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.rates = _Rates()
        self.topic = b""
        self.spent = 0.0
        """Seconds of its turns."""

    def take_spent(self) -> float:
        spent, self.spent = self.spent, 0.0
        return spent

    def begin_anew(self) -> None:
        """An empty topic instead of the one before."""
        with connected(self.broker.kafka) as connection:
            if self.topic:
                delete_topic(connection, self.topic)
            [self.topic] = make_topics(connection, [TOPIC])


def history(stage: Stage) -> Iterator[Row]:
    section = f"{stage.plan.records:,} records in the log"
    with scratch() as empty_directory, scratch() as full_directory:
        brokers = [Broker(empty_directory), Broker(full_directory)]
        try:
            empty, full = (_Side(broker) for broker in brokers)
            full.begin_anew()
            yield from _filled(stage, section, full)
            for number in range(stage.plan.rounds):
                _take_turns(stage, number, empty, full)
            yield from _compared(section, empty.rates, full.rates)
            yield Row(section=section, name="memory", unit="MiB", rounds=(full.broker.rss_mib(),))
            brokers[1].kill()
            brokers[1] = Broker(full_directory)
            took = brokers[1].seconds_to_ready
            yield Row(section=section, name="start after kill -9", unit="s", rounds=(took,))
        finally:
            for broker in brokers:
                broker.kill()


def _filled(stage: Stage, section: str, full: _Side) -> Iterator[Row]:
    stage.display.stage = section
    batch = wire.batch(VALUE_BYTES, BATCH_BYTES)
    frame = wire.produce_frame(full.topic, 0, batch)
    count = parse_header(batch).count
    requests = -(-stage.plan.records // count)
    done = Tally()
    begun = time.perf_counter()
    with stage.display.counting("filling", requests * count, done) as watch:
        while done.value < requests * count:
            portion = min(_PORTION, requests - done.value // count)
            wire.push(full.broker.kafka, [frame], portion * len(frame), WINDOW)
            done.value += portion * count
            watch()
    rate = done.value / (time.perf_counter() - begun)
    yield Row(section=section, name="filled", unit="records/s", rounds=(rate,))
    size = requests * len(batch) / 1e9
    yield Row(section=section, name="size of the log", unit="GB", rounds=(size,))


def _take_turns(stage: Stage, number: int, empty: _Side, full: _Side) -> None:
    stage.display.stage = f"round {number + 1} of {stage.plan.rounds}"
    empty.begin_anew()
    batch = wire.batch(VALUE_BYTES, BATCH_BYTES)
    portion = _Portion(batch, max(stage.plan.records // _SMALL_PART // parse_header(batch).count, 1))
    with stage.display.waiting("producing"):
        for side in _in_turn(empty, full):
            side.spent += _produced(side, portion)
        for side in (empty, full):
            side.rates.produced.append(_PORTIONS * portion.records / side.take_spent())
    with stage.display.waiting("producing and reading"):
        readers = [_Reader(side, _PORTIONS * portion.records) for side in (empty, full)]
        try:
            for reader in readers:
                reader.worker.wait_for(reader.is_ready)
            cpu = [side.broker.cpu_seconds() for side in (empty, full)]
            for reader in _in_turn(*readers):
                begun = now()
                _produced(reader.side, portion)
                reader.wait_for(portion.records)
                reader.side.spent += now() - begun
            for side, before in zip((empty, full), cpu, strict=True):
                records = _PORTIONS * portion.records
                side.rates.cpu.append((side.broker.cpu_seconds() - before) / records * 1e6)
                side.rates.read.append(records / side.take_spent())
        finally:
            for reader in readers:
                reader.worker.end()


def _in_turn(first: T, second: T) -> Iterator[T]:
    """Each so often, one right after the other, and neither always the first."""
    for number in range(_PORTIONS):
        yield from (first, second) if number % 2 == 0 else (second, first)


@dataclass(frozen=True, slots=True)
class _Portion:
    """What is produced before it is the other one's turn."""

    batch: bytearray
    requests: int

    @property
    def records(self) -> int:
        return self.requests * parse_header(self.batch).count


class _Reader:
    """A consumer at the end of one side's log."""

    def __init__(self, side: _Side, records: int) -> None:
        self.side = side
        self.is_ready, self._read = Tally(), Tally()
        self._awaited = 0
        self.worker = Worker(read_tail, side.broker.kafka, side.topic, records, self.is_ready, self._read)

    def wait_for(self, records: int) -> None:
        """Until it has so many more."""
        self._awaited += records
        while self._read.value < self._awaited:
            if self.worker.has_ended():
                self.worker.result()
                return
            time.sleep(_POLL)


def _produced(side: _Side, portion: _Portion) -> float:
    """How long it took."""
    frame = wire.produce_frame(side.topic, 0, portion.batch)
    return wire.push(side.broker.kafka, [frame], portion.requests * len(frame), WINDOW).seconds


def read_tail(port: int, topic: bytes, records: int, is_ready: Tally, read: Tally) -> None:
    """Read so many records from the end on. Runs in a process of its own."""
    with connected(port) as connection:
        end = fetch(connection, topic, 0, wait_ms=0).high_watermark
        is_ready.value = 1
        offset = end
        while offset < end + records:
            found = fetch(connection, topic, offset, wait_ms=_MAX_WAIT_MS)
            offset = offset_behind(memoryview(found.records or b""), offset)
            read.value = offset - end


def _compared(section: str, empty: _Rates, full: _Rates) -> Iterator[Row]:
    for name, unit, at_empty, at_full in (
        ("produced", "records/s", empty.produced, full.produced),
        ("produced and read", "records/s", empty.read, full.read),
        ("broker CPU, produced and read", "s per million records", empty.cpu, full.cpu),
    ):
        yield Row(section=section, name=f"{name}, empty log", unit=unit, rounds=tuple(at_empty))
        yield Row(section=section, name=f"{name}, long log", unit=unit, rounds=tuple(at_full))
        shares = tuple(long / short for short, long in zip(at_empty, at_full, strict=True))
        is_rate = unit == "records/s"
        yield Row(
            section=section,
            name=f"{name}, long log",
            unit="× empty",
            rounds=shares,
            least=LEAST_SHARE if is_rate else None,
            most=None if is_rate else 2 - LEAST_SHARE,
        )
