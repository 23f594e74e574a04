"""What tracing costs: one broker after the other, with tracing off and on, in turn on one machine.

    python -m bench.tracing [--rounds 3] [--base DIRECTORY]

`--base` names the `src` directory of another commit, to be measured beside these. Spans go to a collector in
a process of its own that forgets them.

CPU time is counted until the last batch is acknowledged: spans that are made or exported later are left out.
"""

import argparse
import multiprocessing
import os
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import librdkafka, wire
from bench.queues import loads
from bench.queues.connection import Connection
from bench.queues.workers import Load, Tally, Worker
from bench.scale.brokers import Broker, scratch
from posthouse.records.builder import BatchBuilder

MIB = 1024 * 1024
_BATCH = 16 * 1024
_RECORD = 100
_PRODUCED = 64 * MIB
_SINGLE = 1000
_MESSAGES = 10_000
_PROCESSES = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    tracing: bool = False
    every: int = 0
    """One record of so many carries a trace context; 0: none does."""
    source: Path | None = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tracing", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--base", type=Path, help="sources to compare with")
    given = parser.parse_args()
    cases = [
        Case(name="off"),
        Case(name="on, no trace contexts", tracing=True),
        Case(name="on, 1 record in 1,000", tracing=True, every=1000),
        Case(name="on, 1 record in 100", tracing=True, every=100),
    ]
    if given.base is not None:
        cases.insert(0, Case(name=str(given.base), source=given.base.resolve()))
    found: dict[str, list[list[float]]] = {case.name: [] for case in cases}
    with _collector() as url:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = url
        for number in range(given.rounds):
            for case in cases if number % 2 == 0 else reversed(cases):
                found[case.name].append(list(_measured(case)))
    table = Table("tracing", "produce MB/s", "µs CPU/batch", "single p50 ms", "AMQP publish/s", "consume/s")
    for name, rounds in found.items():
        table.add_row(name, *(f"{statistics.median(each):,.2f}" for each in zip(*rounds, strict=True)))
    Console().print(table)


def _measured(case: Case) -> Iterator[float]:
    settings = {"tracing": "on"} if case.tracing else {}
    with scratch() as directory:
        broker = Broker(directory, settings, source=case.source)
        try:
            yield from _kafka(broker, case.every)
            yield from _amqp(broker)
        finally:
            broker.kill()


def _kafka(broker: Broker, every: int) -> Iterator[float]:
    librdkafka.create_topic(broker.address, "compared", 4)
    topic = wire.topic_id(broker.kafka, "compared")
    batches = _batches(every)
    frames = [wire.produce_frame(topic, number % 4, batch) for number, batch in enumerate(batches)]
    wire.push(broker.kafka, frames, 4 * MIB, 64)
    before = broker.cpu_seconds()
    load = wire.push(broker.kafka, frames, _PRODUCED, 256)
    yield load.mb_per_second
    yield (broker.cpu_seconds() - before) / (load.bytes / _BATCH) * 1e6
    time.sleep(0.3)
    single = wire.produce_frame(topic, 0, wire.batch(_RECORD, 1))
    yield wire.push(broker.kafka, [single], _SINGLE * len(single), 1).percentile(0.5) * 1e3


def _batches(every: int) -> Sequence[bytearray]:
    """Enough of them for one record in `every` to carry a context."""
    batches = []
    now, count = time.time_ns() // 1_000_000, 0
    for _ in range(64):
        builder = BatchBuilder()
        while builder.count == 0 or builder.size_estimate + _RECORD < _BATCH:
            count += 1
            headers = [("traceparent", _traceparent())] if every and count % every == 0 else ()
            builder.add(None, os.urandom(_RECORD), headers, now)
        batches.append(builder.build())
    return batches


def _traceparent() -> bytes:
    return f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-01".encode()


def _amqp(broker: Broker) -> Iterator[float]:
    port = broker.amqp
    with Connection(port) as connection:
        connection.declare_queue("compared")
    works: tuple[Callable[[], Worker[Load]], ...] = (
        partial(Worker, loads.publish, port, "", "compared", 1024, _MESSAGES, Tally()),
        partial(Worker, loads.consume, port, ["compared"], _MESSAGES, Tally()),
    )
    for start in works:
        yield start().result().rate


@contextmanager
def _collector() -> Iterator[str]:
    ours, theirs = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_collect, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


class _Forgetting(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


def _collect(pipe: Pipe) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Forgetting)
    pipe.send(server.server_port)
    server.serve_forever()


if __name__ == "__main__":
    main()
